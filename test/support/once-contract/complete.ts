import { describe, expect, test } from "vitest";
import type { AcquireReply, LockCommand, LockStore } from "../../../src/index.ts";
import { type Asking, asking } from "../asking.ts";
import { commandOf } from "../locks.ts";
import { bodyOf, onceOf, recordOf } from "../submissions.ts";
import { until } from "../until.ts";
import { completed, rivalOf, timeAfter, timeOf } from "./kept-answer.ts";

/** What a complete leaves, and for how long. */
export function keepsRecords(openStore: () => LockStore): void {
  const open = () => asking(openStore());

  describe("complete", () => {
    test("lets the record take the place of the key", async () => {
      const store = open();
      const { mine } = await completed(store);
      const next = onceOf({ key: mine.key });
      expect(await store.acquire(next).reply).toMatchObject({ kind: "taken" });
      expect(await store.acquire(rivalOf(mine)).reply).toMatchObject({ kind: "completed" });
    });

    test("by a second copy is recorded, and changes nothing", async () => {
      const store = open();
      const { mine, plan } = await completed(store);
      const next = onceOf({ key: mine.key });
      await store.acquire(next).reply;
      const again = { ...plan, record: recordOf(mine, "another answer") };
      expect(await store.complete(mine, again).reply).toMatchObject({ kind: "recorded" });
      const reply = await store.acquire(rivalOf(mine)).reply;
      expect(reply).toMatchObject({ kind: "completed", record: plan.record });
      expect(await store.acquire(next).reply).toMatchObject({ kind: "mine" });
    });

    test("by a second copy does not lengthen the life of the record", async () => {
      const store = open();
      const expiresAtMs = await timeAfter(store, 1_500);
      const { mine, plan } = await completed(store, {}, expiresAtMs);
      const longer = { ...plan, expiresAtMs: plan.expiresAtMs + 60_000 };
      expect(await store.complete(mine, longer).reply).toMatchObject({ kind: "recorded" });
      await isForgotten(store, mine);
    });

    test("keeps the record until its expiry and no longer", async () => {
      const store = open();
      const expiresAtMs = await timeAfter(store, 1_500);
      const { mine } = await completed(store, {}, expiresAtMs);
      const forgottenAt = await isForgotten(store, mine);
      expect(forgottenAt).toBeGreaterThanOrEqual(expiresAtMs);
    });

    test("without the lock is late, kept all the same, and leaves the next holder alone", async () => {
      const [store, mine] = [open(), onceOf()];
      const storeTimeMs = timeOf(await store.acquire(mine).reply);
      await store.release(mine).reply;
      const next = onceOf({ key: mine.key });
      await store.acquire(next).reply;
      const plan = { record: recordOf(mine), expiresAtMs: Math.ceil(storeTimeMs) + 60_000 };
      expect(await store.complete(mine, plan).reply).toMatchObject({ kind: "late" });
      expect(await store.acquire(next).reply).toMatchObject({ kind: "mine" });
      expect(await store.acquire(rivalOf(mine)).reply).toMatchObject({ kind: "completed" });
    });

    test("after its own expiry is expired, keeps nothing, and lets go of the key", async () => {
      const [store, mine] = [open(), onceOf()];
      const storeTimeMs = timeOf(await store.acquire(mine).reply);
      const plan = { record: recordOf(mine), expiresAtMs: Math.floor(storeTimeMs) };
      expect(await store.complete(mine, plan).reply).toMatchObject({ kind: "expired" });
      expect(await store.acquire(rivalOf(mine)).reply).toMatchObject({ kind: "taken" });
    });

    test("of a second run is a duplicate: the first answer stays, and the key goes", async () => {
      const store = open();
      const { mine, plan } = await completed(store);
      // It took the key before the first had recorded.
      const second = rivalOf(mine);
      await store.acquire(commandOf({ key: mine.key, ownerId: second.ownerId })).reply;
      const other = { ...plan, record: recordOf(second, "order 8") };
      expect(await store.complete(second, other).reply).toMatchObject({ kind: "duplicate" });
      const reply = await store.acquire(rivalOf(mine)).reply;
      expect(reply).toMatchObject({ kind: "completed", record: plan.record });
      expect(await store.acquire(onceOf({ key: mine.key })).reply).toMatchObject({ kind: "taken" });
    });

    test("that meets another's record after its own expiry is expired, and no duplicate", async () => {
      const store = open();
      const { mine, plan } = await completed(store);
      const old = rivalOf(mine);
      const past = { record: recordOf(old), expiresAtMs: await timeAfter(store, -1_000) };
      expect(await store.complete(old, past).reply).toMatchObject({ kind: "expired" });
      const reply = await store.acquire(rivalOf(mine)).reply;
      expect(reply).toMatchObject({ kind: "completed", record: plan.record });
    });

    test("keeps 64 KiB of any text as they are", async () => {
      const [store, mine] = [open(), onceOf()];
      const storeTimeMs = timeOf(await store.acquire(mine).reply);
      const body = "€ \u0000 \u{1f6d2} \r\n'\"\\ ".repeat(4_096);
      const plan = { record: recordOf(mine, body), expiresAtMs: Math.ceil(storeTimeMs) + 60_000 };
      await store.complete(mine, plan).reply;
      const reply = await store.acquire(rivalOf(mine)).reply;
      expect(reply).toMatchObject({ kind: "completed", record: plan.record });
    });

    test("of many in one turn keeps each its own answer", async () => {
      const store = open();
      const held = Array.from({ length: 50 }, () => onceOf());
      const taken = await Promise.all(held.map((command) => store.acquire(command).reply));
      const done = await Promise.all(
        held.map((command, i) => {
          const expiresAtMs = Math.ceil(timeOf(taken[i] as AcquireReply)) + 60_000;
          return store.complete(command, { record: recordOf(command, `${i}`), expiresAtMs }).reply;
        }),
      );
      expect(new Set(done.map(({ kind }) => kind))).toEqual(new Set(["recorded"]));
      const replies = await Promise.all(held.map((one) => store.acquire(rivalOf(one)).reply));
      const bodies = replies.map((reply) => bodyOf((reply as { record: string }).record));
      expect(bodies).toEqual(held.map((_one, i) => `${i}`));
    });
  });
}

/** Resolves when the record is no more, with the store's time of the answer that said so. */
async function isForgotten(store: Asking, { key, submission }: LockCommand): Promise<number> {
  return await until(
    async () => {
      const reply = await store.look(commandOf({ key, submission })).reply;
      if (reply.kind !== "completed") expect(reply).toMatchObject({ kind: "outOfWindow" });
      return reply.kind === "outOfWindow" && timeOf(reply);
    },
    { what: "the record to expire" },
  );
}
