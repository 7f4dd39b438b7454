import { afterEach, describe, expect, test } from "vitest";
import {
  type LockStore,
  MemoryStore,
  type OnceOptions,
  type Submission,
  type UserId,
} from "../../src/index.ts";
import { VirtualFixture } from "../lab/simulation/virtual-fixture.ts";
import { runChild, sourceUrl } from "../support/child.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, leaseOf, openLock } from "../support/locks.ts";

afterEach(closeLocks);

const submission: Submission = { id: "cart 7" };
const never = () => expect.fail("it ran");

describe("an argument of once is refused, and nothing runs:", () => {
  test.each<[what: string, options: unknown, said: string]>([
    ["a waitMs below 0", { waitMs: -1 }, "waitMs: expected a whole number of milliseconds from 0"],
    ["a waitMs above 30 000", { waitMs: 30_001 }, "to 30000, got 30001"],
    ["a waitMs that is a string", { waitMs: "1" }, "waitMs"],
    ["an unknown option", { wait: 1 }, 'the unknown option "wait"'],
    ["a function", never, "once options: expected an object, got a function"],
  ])("%s", async (_what, options, said) => {
    const lock = openLock({ store: new MemoryStore() });
    const call = lock.once(freshUser(), submission, never, options as OnceOptions);
    await expect(call).rejects.toMatchObject({ code: "SUBMIT_LOCK_INVALID_OPTION" });
    await expect(call).rejects.toThrow(said);
  });

  test.each<[what: string, submission: unknown, said: string]>([
    ["no submission", undefined, "submission options: expected an object, got undefined"],
    ["an empty id", { id: "" }, "submission.id"],
    ["an unknown member", { id: "a", key: "b" }, 'the unknown option "key"'],
    ["a retainMs of 0", { id: "a", retainMs: 0 }, "submission.retainMs"],
  ])("%s", async (_what, given, said) => {
    const lock = openLock({ store: new MemoryStore() });
    const call = lock.once(freshUser(), given as Submission, never);
    await expect(call).rejects.toMatchObject({ code: "SUBMIT_LOCK_INVALID_OPTION" });
    await expect(call).rejects.toThrow(said);
  });

  test("work that is no function, and a user id that is an object", async () => {
    const lock = openLock({ store: new MemoryStore() });
    const noWork = lock.once(freshUser(), submission, {} as never);
    await expect(noWork).rejects.toThrow("work: expected a function, got an object");
    const noUser = lock.once({} as UserId, submission, never);
    await expect(noUser).rejects.toMatchObject({ code: "SUBMIT_LOCK_INVALID_USER_ID" });
  });

  test("a store that keeps no records", async () => {
    const store: LockStore = Object.assign(new MemoryStore(), { complete: undefined });
    const call = openLock({ store }).once(freshUser(), submission, never);
    await expect(call).rejects.toMatchObject({ code: "SUBMIT_LOCK_INVALID_OPTION" });
    await expect(call).rejects.toThrow("expected a lock whose store keeps answers");
  });
});

test("withLock says whether a cooldown kept it out", async () => {
  const [lock, user] = [openLock({ store: new MemoryStore() }), freshUser()];
  await lock.withLock(user, async (lease) => {
    await lease.release({ cooldownMs: 5_000 });
  });
  const error = await lock.withLock(user, never).catch((reason: unknown) => reason);
  expect(error).toMatchObject({ code: "SUBMIT_LOCK_CONTENDED", isCooldown: true, hasEnded: false });
});

describe("rule 14: close", () => {
  test("it ends within its bounds when Redis is silent", async () => {
    const fixture = new VirtualFixture({ acquireTimeoutMs: 300 });
    await fixture.pass(10);
    const held = await fixture.run(() => leaseOf(fixture.lock, "held"));
    const released = await fixture.run(() => leaseOf(fixture.lock, "released"));
    const { signal } = fixture.look(() => held);
    fixture.server.machine.pause(1_000_000);
    const from = fixture.now;
    await fixture.run(() => {
      void released.release();
      return fixture.lock.close({ timeoutMs: 100 });
    });
    // What is held has 100 ms, and what is retired as long as any of its requests could be late.
    expect(fixture.now - from).toBeGreaterThanOrEqual(699);
    expect(fixture.now - from).toBeLessThan(720);
    expect(signal.reason).toMatchObject({ reason: "closed" });
  });

  test("it takes a bound, and checks it", async () => {
    const lock = openLock({ store: new MemoryStore() });
    for (const timeoutMs of [-1, 0.5, 600_001, Number.NaN]) {
      await expect(lock.close({ timeoutMs })).rejects.toMatchObject({
        code: "SUBMIT_LOCK_INVALID_OPTION",
      });
    }
    await expect(lock.close({ timeout: 1 } as object)).rejects.toThrow(/unknown option "timeout"/);
    // Nothing of that has closed it.
    await lock.check();
  });

  test("a lease that nobody released keeps no process alive", async () => {
    const { code, stdout } = await runChild(`
      const { MemoryStore, SubmitLock } = await import(${JSON.stringify(sourceUrl("index.ts"))});
      await new SubmitLock({ store: new MemoryStore() }).acquire("42");
      console.log("held");`);
    expect({ code, stdout }).toEqual({ code: 0, stdout: "held\n" });
  });
});
