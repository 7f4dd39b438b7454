import { AsyncLocalStorage } from "node:async_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import type { Lease, LockStore } from "../../../src/index.ts";
import { asking } from "../asking.ts";
import { record } from "../channels.ts";
import { freshUser } from "../ids.ts";
import { commandOf, leaseOf, openLock } from "../locks.ts";
import { foundBy, submit } from "../submissions.ts";

const submission = { id: "cart 7" };
const never = () => expect.fail("it ran again");

/** How a call of `once` ends that does not wait, and what it leaves. */
export function endsEveryCall(openStore: () => LockStore): void {
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
      expect(completes.messages).toMatchObject([{ outcome: "late" }]);
      expect(await lock.once(user, submission, never)).toMatchObject({ value: 7, replayed: true });
      completes.stop();
    });

    test("publishes its acquire and its complete", async () => {
      const [lock, user] = [open(), freshUser()];
      const acquires = record("submit-lock:acquire", lock.keyFor(user));
      const completes = record("submit-lock:complete", lock.keyFor(user));
      await lock.once(user, submission, () => 7);
      await lock.once(user, submission, never);
      expect(acquires.messages.map(({ outcome }) => outcome)).toEqual(["acquired", "completed"]);
      expect(completes.messages).toMatchObject([{ outcome: "recorded", bodyDropped: false }]);
      acquires.stop();
      completes.stop();
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
  });
}
