import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import type { LockStore } from "../../../src/index.ts";
import { asking } from "../asking.ts";
import { record } from "../channels.ts";
import { freshUser } from "../ids.ts";
import { openLock, roomyTimes } from "../locks.ts";
import { hashesOf, onceOf } from "../submissions.ts";
import { until } from "../until.ts";
import { begun, submission } from "./begun.ts";

const never = () => expect.fail("a call that waited has run");

/** A call of `once` that meets its own submission in flight. */
export function waitsForTheSame(openStore: () => LockStore): void {
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
      const [lock, user] = [open(), freshUser()];
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

    test("does not wait with waitMs 0", async () => {
      const [lock, user] = [open(), freshUser()];
      const first = await begun(lock, user);
      const call = lock.once(user, submission, never, { waitMs: 0 });
      const flags = { sameSubmission: true, isCooldown: false, hasEnded: false };
      await expect(call).rejects.toMatchObject({ code: "SUBMIT_LOCK_CONTENDED", ...flags });
      first.end(7);
      await first.result;
    });

    test("waits for waitMs and no longer, and does not run then", async () => {
      const lock = openLock({ store: openStore(), ...roomyTimes });
      const user = freshUser();
      const first = await begun(lock, user);
      const from = performance.now();
      const call = lock.once(user, submission, never, { waitMs: 300 });
      const error = await call.catch((reason: unknown) => reason);
      expect(error).toMatchObject({ code: "SUBMIT_LOCK_CONTENDED", sameSubmission: true });
      expect(error).toMatchObject({ hasEnded: false, expiresInMs: expect.any(Number) });
      expect(performance.now() - from).toBeGreaterThanOrEqual(299);
      first.end(7);
      await first.result;
    });

    test("is told where the first has failed, and does not run", async () => {
      const [lock, user] = [open(), freshUser()];
      const first = await begun(lock, user);
      const acquires = record("submit-lock:acquire", lock.keyFor(user));
      const waiting = lock.once(user, submission, never);
      await until(() => acquires.messages.length > 0, { what: "the repeat to be contended" });
      acquires.stop();
      first.end(Promise.reject(new Error("out of stock")));
      await expect(first.result).rejects.toThrow("out of stock");
      const ended = { sameSubmission: true, hasEnded: true, expiresInMs: 0 };
      await expect(waiting).rejects.toMatchObject({ code: "SUBMIT_LOCK_CONTENDED", ...ended });
    });

    test("is told where the first's process is gone and its key has run out", async () => {
      const store = openStore();
      const [lock, user] = [openLock({ store }), freshUser()];
      // A lock that nobody extends.
      const times = { ...roomyTimes, ttlMs: 1_000 };
      const command = onceOf({ key: lock.keyFor(user), submission: hashesOf("cart 7"), times });
      expect(await asking(store).acquire(command).reply).toMatchObject({ kind: "taken" });
      const from = performance.now();
      const call = lock.once(user, submission, never, { waitMs: 30_000 });
      await expect(call).rejects.toMatchObject({ sameSubmission: true, hasEnded: true });
      expect(performance.now() - from).toBeLessThan(10_000);
      expect(await lock.once(user, submission, () => 8)).toMatchObject({ value: 8 });
    });

    test("is told where the first has left an answer of its own", async () => {
      const [lock, user] = [open(), freshUser()];
      const first = lock.once(user, submission, async (lease) => {
        await sleep(100);
        await lease.complete({ status: 200, body: "order 7" });
      });
      await sleep(20);
      const waiting = lock.once(user, submission, never);
      await expect(waiting).rejects.toMatchObject({ code: "SUBMIT_LOCK_ANSWER_UNAVAILABLE" });
      await first;
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
