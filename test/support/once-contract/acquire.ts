import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import type { AcquireReply, LockCommand, LockStore } from "../../../src/index.ts";
import { asking } from "../asking.ts";
import { commandOf, expiresInMs, roomyTimes } from "../locks.ts";
import { bodyOf, hashesOf, onceOf, recordOf } from "../submissions.ts";
import { completed, rivalOf, timeOf } from "./kept-answer.ts";

/** What an acquire and a look find of a submission. */
export function findsSubmissions(openStore: () => LockStore): void {
  const open = () => asking(openStore());

  describe("acquire with a submission", () => {
    test("takes a free key, and a second copy finds it to be mine", async () => {
      const [store, mine] = [open(), onceOf()];
      expect(await store.acquire(mine).reply).toMatchObject({ kind: "taken" });
      const takenBefore = performance.now();
      await sleep(30);
      expect(await store.acquire(mine).reply).toMatchObject({ kind: "mine" });
      const askedAfter = performance.now();
      const left = await expiresInMs(store.acquire(commandOf({ key: mine.key })));
      expect(left).toBeLessThanOrEqual(roomyTimes.ttlMs - (askedAfter - takenBefore) + 2);
    });

    test("is told that the holder is at work on this very submission", async () => {
      const [store, mine] = [open(), onceOf({ submission: hashesOf("cart 7", "a payload") })];
      await store.acquire(mine).reply;
      const reply = await store.acquire(rivalOf(mine)).reply;
      expect(reply).toMatchObject({ kind: "contended", sameSubmission: true });
      const { expiresInMs: left } = reply as Extract<AcquireReply, { kind: "contended" }>;
      expect(left).toBeGreaterThan(0);
      expect(left).toBeLessThanOrEqual(roomyTimes.ttlMs);
    });

    test.each([
      ["another submission", hashesOf()],
      ["no submission", undefined],
    ])("is not told so of a holder with %s", async (_what, submission) => {
      const [store, held] = [open(), commandOf({ submission })];
      await store.acquire(held).reply;
      const reply = await store.acquire(onceOf({ key: held.key })).reply;
      expect(reply).toMatchObject({ kind: "contended" });
      expect(reply).not.toMatchObject({ sameSubmission: true });
    });

    test("is mismatched where the holder is at work on this id with another fingerprint", async () => {
      const [store, mine] = [open(), onceOf({ submission: hashesOf("cart 7", "a payload") })];
      await store.acquire(mine).reply;
      const other = onceOf({ key: mine.key, submission: hashesOf("cart 7", "another payload") });
      expect(await store.acquire(other).reply).toMatchObject({
        kind: "mismatched",
        inFlight: true,
      });
      expect(await store.release(other).reply).toMatchObject({ kind: "foreign" });
      expect(await store.acquire(mine).reply).toMatchObject({ kind: "mine" });
    });

    test.each([
      ["the holder", hashesOf("cart 7"), hashesOf("cart 7", "a payload")],
      ["the retry", hashesOf("cart 7", "a payload"), hashesOf("cart 7")],
      ["either", hashesOf("cart 7"), hashesOf("cart 7")],
    ])("compares nothing where %s has no fingerprint", async (_who, held, asked) => {
      const [store, mine] = [open(), onceOf({ submission: held })];
      const retry = onceOf({ key: mine.key, submission: asked });
      const storeTimeMs = timeOf(await store.acquire(mine).reply);
      const found = await store.acquire(retry).reply;
      expect(found).toMatchObject({ kind: "contended", sameSubmission: true });
      const record = recordOf(mine);
      const expiresAtMs = Math.ceil(storeTimeMs) + 60_000;
      await store.complete(mine, { record, expiresAtMs }).reply;
      expect(await store.acquire(retry).reply).toMatchObject({ kind: "completed", record });
    });

    test("is answered with the record once it was completed, and takes nothing", async () => {
      const store = open();
      const { mine, plan } = await completed(store);
      const retry = rivalOf(mine);
      const { record } = plan;
      expect(await store.acquire(retry).reply).toMatchObject({ kind: "completed", record });
      expect(bodyOf(record)).toBe("order 7");
      expect(await store.release(retry).reply).toMatchObject({ kind: "gone" });
    });

    test("is mismatched where it was completed with another fingerprint, and takes nothing", async () => {
      const store = open();
      const { mine } = await completed(store, { submission: hashesOf("cart 7", "a payload") });
      const other = onceOf({ key: mine.key, submission: hashesOf("cart 7", "another payload") });
      const reply = await store.acquire(other).reply;
      expect(reply).toMatchObject({ kind: "mismatched", inFlight: false });
      expect(await store.release(other).reply).toMatchObject({ kind: "gone" });
    });

    test("finds the record also while another submission holds the key", async () => {
      const store = open();
      const { mine, plan } = await completed(store);
      const next = onceOf({ key: mine.key });
      expect(await store.acquire(next).reply).toMatchObject({ kind: "taken" });
      const reply = await store.acquire(rivalOf(mine)).reply;
      expect(reply).toMatchObject({ kind: "completed", record: plan.record });
      expect(await store.acquire(next).reply).toMatchObject({ kind: "mine" });
    });

    test("finds the record also where its own copy has taken the key", async () => {
      const [store, mine] = [open(), onceOf()];
      const storeTimeMs = timeOf(await store.acquire(mine).reply);
      const late = rivalOf(mine);
      const plan = { record: recordOf(late), expiresAtMs: Math.ceil(storeTimeMs) + 60_000 };
      expect(await store.complete(late, plan).reply).toMatchObject({ kind: "late" });
      const reply = await store.acquire(mine).reply;
      expect(reply).toMatchObject({ kind: "completed", record: plan.record });
      // The key is left to the release that retires the owner id.
      expect(await store.release(mine).reply).toMatchObject({ kind: "done" });
    });

    test("knows nothing of the same id under another key", async () => {
      const store = open();
      const { mine } = await completed(store);
      const other = onceOf({ submission: mine.submission });
      expect(await store.acquire(other).reply).toMatchObject({ kind: "taken" });
    });

    test("and a lock alone know nothing of each other but that the key is held", async () => {
      const store = open();
      const { mine } = await completed(store);
      const alone = commandOf({ key: mine.key });
      expect(await store.acquire(alone).reply).toMatchObject({ kind: "taken" });
      expect(await store.release(alone).reply).toMatchObject({ kind: "done" });
    });

    test("is taken by exactly one of many at once", async () => {
      const [store, first] = [open(), onceOf()];
      const copies = Array.from({ length: 40 }, () => store.acquire(rivalOf(first)));
      const replies = await Promise.all(copies.map((copy) => copy.reply));
      expect(replies.filter(({ kind }) => kind === "taken")).toHaveLength(1);
      const others = replies.filter(({ kind }) => kind !== "taken");
      for (const reply of others) expect(reply).toMatchObject({ sameSubmission: true });
    });

    test("gets the answer that is its own, of many in one turn", async () => {
      const store = open();
      const done = await Promise.all(Array.from({ length: 20 }, () => completed(store)));
      const asked = done.flatMap(({ mine }) => [rivalOf(mine), onceOf(), commandOf()]);
      const replies = await Promise.all(asked.map((command) => store.acquire(command).reply));
      const expected = done.flatMap(({ plan }) => [plan.record, "taken", "taken"]);
      expect(replies.map((reply) => (reply as { record?: string }).record ?? reply.kind)).toEqual(
        expected,
      );
    });
  });

  describe("a look", () => {
    test("finds nothing, and leaves a free key free", async () => {
      const [store, command] = [open(), onceOf()];
      expect(await store.look(command).reply).toMatchObject({ kind: "outOfWindow" });
      expect(await store.acquire(onceOf({ key: command.key })).reply).toMatchObject({
        kind: "taken",
      });
    });

    test("finds the holder, what was completed, and what was completed with another payload", async () => {
      const [store, mine] = [open(), onceOf({ submission: hashesOf("cart 7", "a payload") })];
      const storeTimeMs = timeOf(await store.acquire(mine).reply);
      const retry = rivalOf(mine);
      const other = onceOf({ key: mine.key, submission: hashesOf("cart 7", "another payload") });
      const look = async (command: LockCommand) => await store.look(command).reply;
      expect(await look(retry)).toMatchObject({ kind: "contended", sameSubmission: true });
      expect(await look(other)).toMatchObject({ kind: "mismatched", inFlight: true });
      expect(await look(onceOf({ key: mine.key }))).not.toMatchObject({ sameSubmission: true });
      const plan = { record: recordOf(mine), expiresAtMs: Math.ceil(storeTimeMs) + 60_000 };
      await store.complete(mine, plan).reply;
      expect(await look(retry)).toMatchObject({ kind: "completed", record: plan.record });
      expect(await look(other)).toMatchObject({ kind: "mismatched", inFlight: false });
      expect(await look(onceOf({ key: mine.key }))).toMatchObject({ kind: "outOfWindow" });
    });
  });
}
