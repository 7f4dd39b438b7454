import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test, vi } from "vitest";
import * as time from "../../src/time.ts";
import { Timer, TimerWheel } from "../../src/timers.ts";
import { VirtualFixture } from "../lab/simulation/virtual-fixture.ts";
import { runChild, sourceUrl } from "../support/child.ts";
import { causeOf, leaseOf } from "../support/locks.ts";
import { until } from "../support/until.ts";

class Guest extends Timer {
  readonly wokenAt: number[] = [];
  readonly #then: (guest: Guest) => void;

  constructor(then: (guest: Guest) => void = () => {}) {
    super();
    this.#then = then;
  }

  override onDue(): void {
    this.wokenAt.push(performance.now());
    this.#then(this);
  }
}

const woken = (guest: Guest) => until(() => guest.wokenAt.length > 0, { what: "a guest to wake" });

test("a timer is woken once, and never before its time", async () => {
  const timers = new TimerWheel(5, true);
  const guests = Array.from({ length: 50 }, (_, i) => ({ guest: new Guest(), inMs: 3 * i }));
  const from = performance.now();
  for (const { guest, inMs } of guests) timers.set(guest, from + inMs);
  for (const { guest } of guests) await woken(guest);
  await sleep(30);
  for (const { guest, inMs } of guests) {
    expect(guest.wokenAt).toHaveLength(1);
    expect(guest.wokenAt[0]).toBeGreaterThanOrEqual(from + inMs);
  }
});

test("a time that has passed is the next step's", async () => {
  const timers = new TimerWheel(5, true);
  const guest = new Guest();
  timers.set(guest, performance.now() - 1_000);
  expect(guest.wokenAt).toEqual([]);
  await woken(guest);
});

test("an alarm that is called off does not ring, and one that is set anew rings at its new time", async () => {
  const timers = new TimerWheel(5, true);
  const [off, anew, last] = [new Guest(), new Guest(), new Guest()];
  const from = performance.now();
  for (const guest of [off, anew]) timers.set(guest, from + 10);
  timers.clear(off);
  timers.set(anew, from + 60);
  timers.set(last, from + 100);
  await woken(last);
  expect(off.wokenAt).toEqual([]);
  expect(anew.wokenAt).toHaveLength(1);
  expect(anew.wokenAt[0]).toBeGreaterThanOrEqual(from + 60);
});

test("an earlier alarm rings although a later one was set before", async () => {
  const timers = new TimerWheel(5, true);
  const [late, early] = [new Guest(), new Guest()];
  timers.set(late, performance.now() + 60_000);
  timers.set(early, performance.now() + 10);
  await woken(early);
  expect(late.wokenAt).toEqual([]);
  timers.clear(late);
});

test("whoever is woken may set its alarm again, and call off that of a neighbour", async () => {
  const timers = new TimerWheel(5, true);
  const neighbour = new Guest();
  const again = new Guest((guest) => {
    timers.clear(neighbour);
    // In the past: this must not keep the timers ringing for ever.
    if (guest.wokenAt.length < 3) timers.set(guest, 0);
  });
  const at = performance.now() + 10;
  for (const guest of [again, neighbour]) timers.set(guest, at);
  await until(() => again.wokenAt.length === 3, { what: "the third time" });
  expect(neighbour.wokenAt).toEqual([]);
});

test("a time that passes while the timer's own turn is blocked gets a turn of its own", async () => {
  // A step that no lock has: a lock of another test may have timers that read the same clock.
  const timers = new TimerWheel(1.37, true);
  const ours = Math.floor(1_001 / 1.37);
  const events: string[] = [];
  const second = new Guest(() => events.push("second"));
  const first = new Guest(() => {
    events.push("first");
    // Stands for an answer that lay ready.
    setImmediate(() => events.push("the turn between"));
  });
  const now = vi.spyOn(time.performance, "now").mockReturnValue(995);
  timers.set(first, 1_000);
  timers.set(second, 1_011);
  now.mockReturnValue(1_001);
  // The loop is blocked after the timer has fired, and before the immediate that it has asked for.
  const real = { ...time };
  const immediate = (run: (...args: unknown[]) => void, ...args: unknown[]) => {
    if (args[0] === ours) now.mockReturnValue(1_030);
    return real.setImmediate(run, ...args);
  };
  time.replaceTimers({ ...real, setImmediate: Object.assign(immediate, real.setImmediate) });
  while (events.length < 3) await sleep(1);
  time.replaceTimers(real);
  vi.restoreAllMocks();
  expect(events).toEqual(["first", "the turn between", "second"]);
});

test("it tells whose timers are set", async () => {
  const timers = new TimerWheel(5, true);
  const guests = Array.from({ length: 10 }, () => new Guest());
  const at = performance.now() + 60_000;
  for (const [i, guest] of guests.entries()) timers.set(guest, at + i);
  timers.clear(guests[3] as Guest);
  const left = guests.filter((_, i) => i !== 3);
  expect(new Set(timers.armed())).toEqual(new Set(left));
  for (const guest of left) timers.clear(guest);
  expect(timers.armed()).toEqual([]);
});

describe("in a process of its own", () => {
  const head = `
    const { TimerWheel, Timer } = await import(${JSON.stringify(sourceUrl("timers.ts"))});
    process.on("uncaughtException", ({ message }) => console.log(message));
    process.on("exit", () => console.log("over"));
    class Guest extends Timer { constructor(awake) { super(); this.onDue = awake; } }
    const woken = new Guest(() => console.log("woken"));
    const thrower = new Guest(() => { throw new Error("thrown"); });
    const inMs = (ms) => performance.now() + ms;`;

  test.each([
    [
      "one that throws when it is woken takes nobody's alarm away",
      `const [timers, at] = [new TimerWheel(5, true), inMs(10)];
       for (const guest of [thrower, woken]) timers.set(guest, at);`,
      ["thrown", "woken", "over"],
    ],
    [
      "an alarm keeps the process alive if that is wanted",
      "new TimerWheel(5, true).set(woken, inMs(300));",
      ["woken", "over"],
    ],
    [
      "an alarm lets the process end if that is wanted",
      "new TimerWheel(5, false).set(woken, inMs(300));",
      ["over"],
    ],
    [
      "timers that were called off keep no process alive",
      `const timers = new TimerWheel(5, true);
       for (const round of [1, 2]) {
         timers.set(woken, inMs(60_000));
         timers.clear(woken);
       }`,
      ["over"],
    ],
  ])("%s", async (_what, code, printed) => {
    const { stdout } = await runChild(head + code);
    expect(stdout.trim().split("\n")).toEqual(printed);
  });
});

describe("rule 10: our own timers, in virtual time", () => {
  test("after an event loop that was blocked beyond acquireTimeoutMs the answer is too late", async () => {
    const fixture = new VirtualFixture();
    await fixture.pass(10);
    const attempt = fixture.run(() => {
      fixture.block(1_100);
      return fixture.lock.acquire("42");
    });
    expect(causeOf(await attempt)).toMatchObject({ code: "SUBMIT_LOCK_UNAVAILABLE" });
  });

  test("after a blocked event loop a lease that was extended in time is not lost", async () => {
    const fixture = new VirtualFixture({ ttlMs: 1_000 });
    await fixture.pass(10);
    const lease = await fixture.run(() => leaseOf(fixture.lock, "42"));
    for (let round = 1; round <= 5; round++) {
      await fixture.passUntil(() => fixture.writesOf("extend").length === round);
      // Beyond the time at which the holder would be told: the answer lies behind that timer.
      fixture.block(600);
      await fixture.pass(610);
    }
    expect(fixture.look(() => lease.signal.aborted)).toBe(false);
    expect(await fixture.run(() => lease.release())).toBe("released");
  });
});
