import { describe, expect, test } from "vitest";
import type { AcquireReply, LockCommand, LockStore } from "../../../src/index.ts";
import { type Asking, asking } from "../asking.ts";
import { commandOf, expiresInMs } from "../locks.ts";
import { hashesOf, onceOf, recordOf } from "../submissions.ts";
import { until } from "../until.ts";
import { rivalOf, timeAfter, timeOf } from "./kept-answer.ts";

/** What the end of a lease leaves where a cooldown is asked for. */
export function leavesCooldowns(openStore: () => LockStore): void {
  const open = () => asking(openStore());

  describe("a cooldown", () => {
    /** Ends a lease with a cooldown, and tells when it is to be over. */
    const endings: [
      string,
      (store: Asking, mine: LockCommand, until: number) => Promise<string>,
    ][] = [
      [
        "complete",
        async (store, mine, cooldownUntilMs) => {
          const expiresAtMs = cooldownUntilMs + 60_000;
          const plan = { record: recordOf(mine), expiresAtMs, cooldownUntilMs };
          return (await store.complete(mine, plan).reply).kind;
        },
      ],
      [
        "release",
        async (store, mine, cooldownUntilMs) =>
          (await store.release(mine, cooldownUntilMs).reply).kind,
      ],
    ];

    describe.each(endings)("that a %s leaves", (_name, end) => {
      test("keeps everybody out until its time, and says that it is a cooldown", async () => {
        const [store, mine] = [open(), onceOf()];
        await store.acquire(mine).reply;
        const endsAtMs = await timeAfter(store, 1_200);
        expect(["recorded", "done"]).toContain(await end(store, mine, endsAtMs));
        for (const next of [onceOf({ key: mine.key }), commandOf({ key: mine.key })]) {
          const reply = await store.acquire(next).reply;
          expect(reply).toMatchObject({ kind: "contended", isCooldown: true });
          expect(reply).not.toMatchObject({ sameSubmission: true });
          const { expiresInMs: left } = reply as Extract<AcquireReply, { kind: "contended" }>;
          expect(left).toBeGreaterThan(0);
          expect(left).toBeLessThanOrEqual(1_200 + 2);
        }
        expect(await isFree(store, mine)).toBeGreaterThanOrEqual(endsAtMs);
      });

      test("is not lengthened by a second copy, which finds it to be its own", async () => {
        const [store, mine] = [open(), onceOf()];
        await store.acquire(mine).reply;
        const endsAtMs = await timeAfter(store, 2_000);
        const first = await end(store, mine, endsAtMs);
        expect(await end(store, mine, endsAtMs + 60_000)).toBe(first);
        const left = await expiresInMs(store.acquire(commandOf({ key: mine.key })));
        expect(left).toBeLessThanOrEqual(2_000 + 2);
      });

      test("whose time is over is none: the key is free", async () => {
        const [store, mine] = [open(), onceOf()];
        await store.acquire(mine).reply;
        expect(["recorded", "done"]).toContain(await end(store, mine, await timeAfter(store, -5)));
        const reply = await store.acquire(onceOf({ key: mine.key })).reply;
        expect(reply).toMatchObject({ kind: "taken" });
      });

      test("is left by who still held, and by nobody else", async () => {
        const [store, mine] = [open(), onceOf()];
        await store.acquire(mine).reply;
        await store.release(mine).reply;
        expect(["late", "gone"]).toContain(await end(store, mine, await timeAfter(store, 5_000)));
        const next = onceOf({ key: mine.key });
        expect(await store.acquire(next).reply).toMatchObject({ kind: "taken" });
        const other = rivalOf(mine);
        expect(["duplicate", "foreign", "late"]).toContain(
          await end(store, other, await timeAfter(store, 5_000)),
        );
        expect(await store.acquire(next).reply).toMatchObject({ kind: "mine" });
      });

      test("is foreign to the extend and the plain release of whoever left it", async () => {
        const [store, mine] = [open(), onceOf()];
        await store.acquire(mine).reply;
        await end(store, mine, await timeAfter(store, 5_000));
        expect(await store.extend(mine).reply).toMatchObject({ kind: "foreign" });
        expect(await store.release(mine).reply).toMatchObject({ kind: "foreign" });
        // A late copy of its acquire takes nothing, either.
        expect((await store.acquire({ ...mine, submission: hashesOf() }).reply).kind).toBe(
          "contended",
        );
      });
    });
  });
}

/** Resolves when the key is free, with the store's time of the answer that said so. */
async function isFree(store: Asking, { key }: LockCommand): Promise<number> {
  const next = commandOf({ key });
  return await until(
    async () => {
      const reply = await store.acquire(next).reply;
      return reply.kind === "taken" && timeOf(reply);
    },
    { what: "the key to be free" },
  );
}
