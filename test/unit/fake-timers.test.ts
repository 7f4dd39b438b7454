import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { submitGuard } from "../../src/fetch/index.ts";
import { type Lease, MemoryStore, SubmitLock } from "../../src/index.ts";
import { sources } from "../lab/simulation/mutants/workshop.ts";
import { freshUser } from "../support/ids.ts";
import { acquired } from "../support/locks.ts";

const everything = [
  ...(["setTimeout", "clearTimeout", "setInterval", "clearInterval", "setImmediate"] as const),
  ...(["clearImmediate", "queueMicrotask", "nextTick", "performance", "Date"] as const),
];

const store = new MemoryStore();
// A thread that is held up is not a store that is away.
const times = { ttlMs: 20_000, acquireTimeoutMs: 10_000, commandTimeoutMs: 4_000 };
let lock: SubmitLock;
beforeEach(() => {
  lock = new SubmitLock({ store, ...times });
});
afterEach(async () => {
  vi.useRealTimers();
  await lock.close({ timeoutMs: 0 });
});

function fake(): void {
  // An hour that a test has chosen: leases do not count by it.
  vi.useFakeTimers({ toFake: [...everything], now: 0 });
}

/** The answer, or `"never"` instead of a test that ends by its own timeout. */
async function settled<Value>(promise: Promise<Value>): Promise<Value | "never"> {
  return await Promise.race([promise, sleep(5_000).then(() => "never" as const)]);
}

const submission = { id: "cart-7" };

const calls: [name: string, call: (user: string) => Promise<unknown>, settles: unknown][] = [
  [
    "acquire and release",
    async (user) => await acquired(await lock.acquire(user)).lease.release(),
    "released",
  ],
  ["withLock", (user) => lock.withLock(user, () => 7), 7],
  [
    "withLock that waits",
    async (user) => {
      const { lease } = acquired(await lock.acquire(user));
      void sleep(50).then(() => lease.release());
      return await lock.withLock(user, { waitMs: 2_000 }, () => 7);
    },
    7,
  ],
  ["once", (user) => lock.once(user, submission, () => 7), { value: 7, replayed: false, ageMs: 0 }],
  [
    "once that waits for the first call",
    async (user) => {
      void lock.once(user, submission, () => sleep(50, 7));
      return (await lock.once(user, submission, () => 8)).value;
    },
    7,
  ],
  [
    "acquire and complete",
    async (user) => {
      const { lease } = acquired(await lock.acquire(user, { submission }));
      return await lease.complete({ status: 201 });
    },
    "recorded",
  ],
  ["lookUp", (user) => lock.lookUp(user, { submission }), { outcome: "none" }],
  ["check", () => lock.check(), undefined],
  ["inspect", (user) => lock.inspect(user), { state: "free" }],
  [
    "free",
    (user) => lock.free(user, { id: "12345678", by: "me", reason: "a test" }),
    { outcome: "already-free" },
  ],
  [
    "close, without a lease and with one",
    async (user) => {
      await lock.acquire(user);
      await lock.close({ timeoutMs: 100 });
    },
    undefined,
  ],
  [
    "a guard of fetch that keeps the answer of a stream",
    async (user) => {
      const guard = submitGuard({
        lock,
        userId: () => user,
        idempotency: { submissionId: () => "cart-7" },
      });
      const handler = guard.protect(
        () => new Response(new Blob(["placed"]).stream(), { status: 201 }),
      );
      return (await handler(new Request("http://shop.test/orders", { method: "POST" }))).status;
    },
    201,
  ],
];

describe("while an application's test has replaced every timer and clock", () => {
  test.each(calls)("%s settles", async (_name, call, settles) => {
    fake();
    expect(await settled(call(freshUser()))).toEqual(settles);
  });

  test("a lease is extended, and no second holder gets in", async () => {
    const user = freshUser();
    const { lease } = acquired(await lock.acquire(user));
    fake();
    vi.advanceTimersByTime(3_600_000);
    expect((await lock.acquire(user)).outcome).toBe("contended");
    await sleep(1_500);
    expect([lease.signal.aborted, lease.remainingMs() > 0]).toEqual([false, true]);
    expect((await lock.acquire(user)).outcome).toBe("contended");
  });

  test("a lease that cannot be extended ends all the same", async () => {
    const short = { ttlMs: 1_000, acquireTimeoutMs: 500, commandTimeoutMs: 200 };
    const limited = new SubmitLock({ store, ...short, maxHoldMs: 1_000 });
    fake();
    const { lease } = acquired(await limited.acquire(freshUser()));
    const lost = new Promise<Lease>((resolve) => {
      lease.signal.addEventListener("abort", () => resolve(lease));
    });
    expect(await settled(lost)).toBe(lease);
  });
});

test("only one file of the package takes clocks and timers from Node", async () => {
  const elsewhere = [...(await sources())].filter(
    ([file, text]) =>
      !/[\\/]src[\\/](time\.ts|browser[\\/])/.test(file) &&
      /node:(timers|perf_hooks)|process\.(nextTick|hrtime)|AbortSignal\.timeout/.test(text),
  );
  expect(elsewhere.map(([file]) => file)).toEqual([]);
});
