import { AsyncLocalStorage } from "node:async_hooks";
import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import type { Lease, LockStore, SubmitLock } from "../../src/index.ts";
import { identify } from "../../src/lock/submission.ts";
import { asking } from "./asking.ts";
import { record } from "./channels.ts";
import { freshUser } from "./ids.ts";
import { commandOf, leaseOf, openLock, roomyTimes } from "./locks.ts";
import { foundBy, hashesOf, onceOf, submit } from "./submissions.ts";
import { until } from "./until.ts";

/** `lock.once`, on any store that keeps records. */
export function runsOnce(openStore: () => LockStore): void {
  keepsValues(openStore);
  forgetsValues(openStore);
  endsEveryCall(openStore);
  waitsForTheSame(openStore);
}

export const never = (): never => expect.fail("it ran again");

/** The submission of {@link begun}. */
export const submission = { id: "cart 7" };

/** Calls once with work that the test ends; resolves when it runs. */
export async function begun(lock: SubmitLock, user: string) {
  let end!: (value: number | Promise<never>) => void;
  let result!: ReturnType<typeof lock.once<number>>;
  await new Promise<void>((running) => {
    result = lock.once(user, submission, () => {
      running();
      return new Promise<number>((resolve) => {
        end = resolve;
      });
    });
  });
  return { end, result };
}

/** The value of `once`: read back from JSON, kept, and repeated. */
function keepsValues(openStore: () => LockStore): void {
  const open = () => openLock({ store: openStore() });

  describe("the value of once", () => {
    test.each<[what: string, value: unknown, said: unknown]>([
      ["an object", { number: 7, items: ["a", null] }, { number: 7, items: ["a", null] }],
      ["undefined", undefined, undefined],
      ["null", null, null],
      ["false", false, false],
      ["a text", '€ \u0000 \u2028 \u{1f6d2} \r\n"\\ ]}', '€ \u0000 \u2028 \u{1f6d2} \r\n"\\ ]}'],
      ["half a character", "\ud800", "\ud800"],
      ["members that JSON leaves out", { a: undefined, b: () => 1, c: 1 }, { c: 1 }],
      ["a member called __proto__", JSON.parse('{"__proto__":{"a":1}}'), undefined],
    ])("is what JSON says of %s, for the first caller and for a repeat", async (_what, ...pair) => {
      const [value, said] = pair;
      const expected = JSON.stringify(value)?.includes("__proto__") ? value : said;
      const [lock, user] = [open(), freshUser()];
      let runs = 0;
      const call = () =>
        lock.once(user, submission, () => {
          runs++;
          return value;
        });
      const first = await call();
      expect(first).toEqual({ value: expected, replayed: false, ageMs: 0 });
      expect(Object.keys(first)).toEqual(["value", "replayed", "ageMs"]);
      const repeat = await call();
      expect(repeat).toEqual({ value: expected, replayed: true, ageMs: expect.any(Number) });
      expect(repeat.ageMs).toBeGreaterThanOrEqual(0);
      expect(runs).toBe(1);
    });

    test.each<[what: string, value: unknown]>([
      ["a BigInt", { number: 7n }],
      ["a function", () => 7],
    ])("that is %s is refused, and the submission does not run again", async (_what, value) => {
      const [lock, user] = [open(), freshUser()];
      let runs = 0;
      const call = () =>
        lock.once(user, submission, () => {
          runs++;
          return value;
        });
      const status = { status: 500, statusCode: 500, expose: false };
      await expect(call()).rejects.toMatchObject({ code: "SUBMIT_LOCK_INVALID_VALUE", ...status });
      const notKept = { code: "SUBMIT_LOCK_ANSWER_UNAVAILABLE", status: 409, statusCode: 409 };
      await expect(call()).rejects.toMatchObject(notKept);
      expect(runs).toBe(1);
      // The lock is free: the user's next submission runs.
      expect(await lock.once(user, { id: "cart 8" }, () => 8)).toMatchObject({ value: 8 });
    });

    test("of 1 MiB of JSON is kept, and one of a byte more is returned and not kept", async () => {
      const [lock, user] = [open(), freshUser()];
      const most = "x".repeat(1_048_576 - 2);
      const longer = `${"x".repeat(1_048_576 - 4)}€`;
      for (const [id, text] of Object.entries({ most, longer })) {
        const first = await lock.once(user, { id }, () => text);
        expect(first.value === text && !first.replayed).toBe(true);
      }
      expect((await lock.once(user, { id: "most" }, never)).value === most).toBe(true);
      const repeat = lock.once(user, { id: "longer" }, never);
      await expect(repeat).rejects.toMatchObject({ code: "SUBMIT_LOCK_ANSWER_UNAVAILABLE" });
    });

    test("is shown to acquire and lookUp as returned, and not as an answer", async () => {
      const [lock, user] = [open(), freshUser()];
      await lock.once(user, submission, () => ({ number: 7 }));
      const completed = {
        outcome: "completed",
        answer: { status: 100, headers: {}, body: undefined, returned: { value: { number: 7 } } },
        ageMs: expect.any(Number),
      };
      const { id } = identify(user, submission);
      const seen = { ...completed, id, completedAt: expect.any(Number) };
      expect(await lock.lookUp(user, { submission })).toEqual(seen);
      expect(await lock.lookUp(user, { id })).toEqual(seen);
      expect(await submit(lock, user)).toEqual(completed);
    });
  });
}

/** A kept value that a person deletes, with a seal and without. */
function forgetsValues(openStore: () => LockStore): void {
  const keys = [randomBytes(32)];
  const audit = { by: "anna@ops-1", reason: "ticket 4711" };

  describe.each([
    ["as it is", undefined],
    ["sealed", { keys }],
  ])("a value that is kept %s, and forgotten", (_how, seal) => {
    const open = () => openLock({ store: openStore(), seal });

    test("is shown, and a repeat runs", async () => {
      const [lock, user] = [open(), freshUser()];
      const messages = record("submit-lock:forget", lock.keyFor(user));
      await lock.once(user, submission, () => 7);
      const { id } = identify(user, submission);
      const forgotten = { outcome: "forgotten", answer: { returned: { value: 7 } } };
      expect(await lock.forget(user, { id, ...audit })).toMatchObject(forgotten);
      expect(messages).toMatchObject([{ submission: id, ...audit }]);
      expect(await lock.forget(user, { id, ...audit })).toEqual({ outcome: "none" });
      expect(await lock.once(user, submission, () => 8)).toMatchObject({ value: 8 });
      expect(messages).toHaveLength(1);
    });

    test("is kept where another user, or another submission, is meant", async () => {
      const [lock, user] = [open(), freshUser()];
      await lock.once(user, submission, () => 7);
      const { id } = identify(user, submission);
      const other = identify(user, { id: "cart 8" }).id;
      expect(await lock.forget(freshUser(), { id, ...audit })).toEqual({ outcome: "none" });
      expect(await lock.forget(user, { id: other, ...audit })).toEqual({ outcome: "none" });
      expect(await lock.once(user, submission, never)).toMatchObject({ value: 7 });
    });

    test("is in flight while its work runs", async () => {
      const [lock, user] = [open(), freshUser()];
      const first = await begun(lock, user);
      const { id } = identify(user, submission);
      expect(await lock.forget(user, { id, ...audit })).toEqual({ outcome: "in-flight" });
      first.end(7);
      expect(await first.result).toMatchObject({ value: 7 });
    });
  });
}

/** How a call of `once` ends that does not wait, and what it leaves. */
function endsEveryCall(openStore: () => LockStore): void {
  const open = () => openLock({ store: openStore() });

  describe("a call of once", () => {
    test("gives its work the lease of the user's lock, and has given it back by then", async () => {
      const [lock, user] = [open(), freshUser()];
      const { value } = await lock.once(user, submission, async (lease) => {
        expect(lease.key).toBe(`lock:submit:${user}`);
        expect(lease.remainingMs()).toBeGreaterThan(0);
        expect((await lock.acquire(user)).outcome).toBe("contended");
        return lease.fencingToken;
      });
      expect(value).toSatisfy(Number.isSafeInteger);
      await (await leaseOf(lock, user)).release();
    });

    test("runs its work in the asynchronous context of its caller", async () => {
      const [lock, current] = [open(), new AsyncLocalStorage<number>()];
      const stores = [1, 2, 3].map((store) =>
        current.run(store, async () => {
          const { value } = await lock.once(freshUser(), submission, () => current.getStore());
          return [value, current.getStore()];
        }),
      );
      expect(await Promise.all(stores)).toEqual([1, 2, 3].map((store) => [store, store]));
    });

    test.each<[how: string, fail: (error: Error) => unknown]>([
      [
        "throws",
        (error) => {
          throw error;
        },
      ],
      ["rejects", (error) => Promise.reject(error)],
    ])(
      "whose work %s rejects with that very error, keeps nothing, and a repeat runs",
      async (_how, fail) => {
        const [lock, user] = [open(), freshUser()];
        const error = new Error("out of stock");
        const thrown = await lock.once(user, submission, () => fail(error)).catch((e) => e);
        expect(thrown).toBe(error);
        expect(await lock.lookUp(user, { submission })).toEqual({ outcome: "none" });
        expect(await lock.once(user, submission, () => 7)).toMatchObject({ replayed: false });
      },
    );

    test("whose work has released the lease keeps nothing", async () => {
      const [lock, user] = [open(), freshUser()];
      const release = async (lease: Lease) => {
        expect(await lease.release()).toBe("released");
        return 7;
      };
      const result = { value: 7, replayed: false, ageMs: 0 };
      expect(await lock.once(user, submission, release)).toEqual(result);
      expect(await lock.once(user, submission, release)).toEqual(result);
    });

    test("whose work has completed the lease keeps that answer and no value", async () => {
      const [lock, user] = [open(), freshUser()];
      const first = await lock.once(user, submission, async (lease) => {
        await lease.complete({ status: 201, body: "order 7" });
        return 7;
      });
      expect(first).toEqual({ value: 7, replayed: false, ageMs: 0 });
      expect(foundBy(await submit(lock, user))).toBe("order 7");
    });

    test("whose lease is lost during its work keeps its value all the same", async () => {
      const store = openStore();
      const [lock, user] = [openLock({ store }), freshUser()];
      const completes = record("submit-lock:complete", lock.keyFor(user));
      const first = await lock.once(user, submission, async ({ key, ownerId }) => {
        await asking(store).release(commandOf({ key, ownerId })).reply;
        return 7;
      });
      expect(first).toMatchObject({ value: 7, replayed: false });
      expect(completes).toMatchObject([{ outcome: "late" }]);
      expect(await lock.once(user, submission, never)).toMatchObject({ value: 7, replayed: true });
    });

    test("of another submission of the user is contended at once, whatever waitMs is", async () => {
      const [lock, user] = [open(), freshUser()];
      const lease = await leaseOf(lock, user);
      const from = performance.now();
      const call = lock.once(user, submission, never, { waitMs: 30_000 });
      const flags = { sameSubmission: false, isCooldown: false, hasEnded: false, status: 409 };
      await expect(call).rejects.toMatchObject({ code: "SUBMIT_LOCK_CONTENDED", ...flags });
      expect(performance.now() - from).toBeLessThan(10_000);
      await lease.release({ cooldownMs: 5_000 });
      const cooling = lock.once(user, submission, never, { waitMs: 30_000 });
      const isCooldown = { code: "SUBMIT_LOCK_CONTENDED", isCooldown: true };
      await expect(cooling).rejects.toMatchObject(isCooldown);
    });

    test("with another fingerprint is mismatched, in flight and completed", async () => {
      const [lock, user] = [open(), freshUser()];
      const other = () => lock.once(user, { ...submission, fingerprint: "b" }, never);
      const mismatched = { code: "SUBMIT_LOCK_MISMATCHED", status: 422, statusCode: 422 };
      await lock.once(user, { ...submission, fingerprint: "a" }, async () => {
        await expect(other()).rejects.toMatchObject({ ...mismatched, inFlight: true });
      });
      await expect(other()).rejects.toMatchObject({ ...mismatched, inFlight: false });
    });

    test("on a closed lock is refused, and one under way ends with its value", async () => {
      const [lock, user] = [open(), freshUser()];
      const under = lock.once(user, submission, async () => {
        await sleep(100);
        return 7;
      });
      await sleep(50);
      const closing = lock.close();
      const refused = lock.once(freshUser(), submission, never);
      await expect(refused).rejects.toMatchObject({ code: "SUBMIT_LOCK_CLOSED", status: 503 });
      expect(await under).toMatchObject({ value: 7 });
      await closing;
    });

    test("is waited for by its repeat, also on a lock that is closed meanwhile", async () => {
      const [lock, user] = [open(), freshUser()];
      const first = await begun(lock, user);
      const repeat = lock.once(user, submission, never, { waitMs: 30_000 });
      await until(() => lock.stats().waiting === 1, { what: "the repeat to wait" });
      const closing = lock.close({ timeoutMs: 30_000 });
      first.end(7);
      expect(await repeat).toMatchObject({ value: 7, replayed: true });
      await closing;
      expect(lock.stats()).toMatchObject({ held: 0, waiting: 0 });
    });
  });
}

/** A call of `once` that meets its own submission in flight. */
function waitsForTheSame(openStore: () => LockStore): void {
  const open = () => openLock({ store: openStore() });

  describe("a repeat of once that meets its submission in flight", () => {
    test("waits for the value of the first, in another process too", async () => {
      const [lock, other, user] = [open(), open(), freshUser()];
      const first = await begun(lock, user);
      const waiting = [lock, other].map((each) => each.once(user, submission, never));
      await sleep(100);
      first.end(7);
      for (const call of waiting) {
        expect(await call).toEqual({ value: 7, replayed: true, ageMs: expect.any(Number) });
      }
      expect(await first.result).toMatchObject({ value: 7, replayed: false });
    });

    test("is one of 50 calls at once, of which one runs", async () => {
      const [lock, user] = [openLock({ store: openStore(), ...roomyTimes }), freshUser()];
      let runs = 0;
      const calls = Array.from({ length: 50 }, () =>
        lock.once(user, submission, async () => {
          await sleep(50);
          return ++runs;
        }),
      );
      const results = await Promise.all(calls);
      expect(results.map(({ value }) => value)).toEqual(Array(50).fill(1));
      expect(results.filter(({ replayed }) => !replayed)).toHaveLength(1);
    });

    test.each([0, 300])(
      "waits for waitMs and no longer, and does not run then: %i",
      async (waitMs) => {
        const lock = openLock({ store: openStore(), ...roomyTimes });
        const user = freshUser();
        const first = await begun(lock, user);
        const from = performance.now();
        const error = await lock
          .once(user, submission, never, { waitMs })
          .catch((reason) => reason);
        const flags = { sameSubmission: true, isCooldown: false, hasEnded: false };
        expect(error).toMatchObject({ code: "SUBMIT_LOCK_CONTENDED", ...flags });
        expect(error).toMatchObject({ expiresInMs: expect.any(Number) });
        expect(performance.now() - from).toBeGreaterThanOrEqual(waitMs - 1);
        first.end(7);
        await first.result;
      },
    );

    test("is told where the first has failed, and does not run", async () => {
      const [lock, user] = [open(), freshUser()];
      const first = await begun(lock, user);
      const acquires = record("submit-lock:acquire", lock.keyFor(user));
      const waiting = lock.once(user, submission, never);
      await until(() => acquires.length > 0, { what: "the repeat to be contended" });
      first.end(Promise.reject(new Error("out of stock")));
      await expect(first.result).rejects.toThrow("out of stock");
      const ended = { sameSubmission: true, hasEnded: true, expiresInMs: 0 };
      await expect(waiting).rejects.toMatchObject({ code: "SUBMIT_LOCK_CONTENDED", ...ended });
    });

    test("is told where the first's process is gone and its key has run out", async () => {
      const store = openStore();
      const [lock, user] = [openLock({ store }), freshUser()];
      // A lock that nobody extends.
      const times = { ...roomyTimes, ttlMs: 4_000 };
      const command = onceOf({
        key: lock.keyFor(user),
        submission: hashesOf("cart 7", undefined, user),
        times,
      });
      expect(await asking(store).acquire(command).reply).toMatchObject({ kind: "taken" });
      const from = performance.now();
      const call = lock.once(user, submission, never, { waitMs: 30_000 });
      await expect(call).rejects.toMatchObject({ sameSubmission: true, hasEnded: true });
      expect(performance.now() - from).toBeLessThan(20_000);
      expect(await lock.once(user, submission, () => 8)).toMatchObject({ value: 8 });
    });

    test("ends with the close of its lock", async () => {
      const [lock, other, user] = [open(), open(), freshUser()];
      const first = await begun(other, user);
      const waiting = lock.once(user, submission, never, { waitMs: 30_000 });
      const error = waiting.catch((reason: unknown) => reason);
      await sleep(50);
      await lock.close({ timeoutMs: 0 });
      expect(await error).toMatchObject({ code: "SUBMIT_LOCK_CLOSED", status: 503 });
      first.end(7);
      await first.result;
    });
  });
}
