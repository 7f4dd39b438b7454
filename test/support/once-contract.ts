import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import type { AcquireReply, LockCommand, LockStore } from "../../src/index.ts";
import { type Asking, asking } from "./asking.ts";
import { commandOf, expiresInMs, roomyTimes } from "./locks.ts";
import { bodyOf, hashesOf, onceOf, recordOf } from "./submissions.ts";
import { until } from "./until.ts";

/** What the lock relies on where a store keeps answers. */
export function keepsAnswers(openStore: () => LockStore): void {
  findsSubmissions(openStore);
  keepsRecords(openStore);
  forgetsRecords(openStore);
  leavesCooldowns(openStore);
  raisesFencingTokens(openStore);
}

/** What an acquire and a look find of a submission. */
function findsSubmissions(openStore: () => LockStore): void {
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
      expect(left).toBeLessThanOrEqual(roomyTimes.ttlMs + 2);
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
      const plan = await taken(store, mine);
      const found = await store.acquire(retry).reply;
      expect(found).toMatchObject({ kind: "contended", sameSubmission: true });
      await store.complete(mine, plan).reply;
      const { record } = plan;
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

    test("finds the record also where its own copy has taken the key", async () => {
      const [store, mine] = [open(), onceOf()];
      const late = rivalOf(mine);
      const plan = await taken(store, mine, recordOf(late));
      expect(await store.complete(late, plan).reply).toMatchObject({ kind: "late" });
      const reply = await store.acquire(mine).reply;
      expect(reply).toMatchObject({ kind: "completed", record: plan.record });
      // The key is left to the release that retires the owner id.
      expect(await store.release(mine).reply).toMatchObject({ kind: "done" });
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
      const plan = await taken(store, mine);
      const retry = rivalOf(mine);
      const other = onceOf({ key: mine.key, submission: hashesOf("cart 7", "another payload") });
      const look = async (command: LockCommand) => await store.look(command).reply;
      expect(await look(retry)).toMatchObject({ kind: "contended", sameSubmission: true });
      expect(await look(other)).toMatchObject({ kind: "mismatched", inFlight: true });
      expect(await look(onceOf({ key: mine.key }))).not.toMatchObject({ sameSubmission: true });
      await store.complete(mine, plan).reply;
      expect(await look(retry)).toMatchObject({ kind: "completed", record: plan.record });
      expect(await look(other)).toMatchObject({ kind: "mismatched", inFlight: false });
      expect(await look(onceOf({ key: mine.key }))).toMatchObject({ kind: "outOfWindow" });
    });
  });
}

/** What a complete leaves, and for how long. */
function keepsRecords(openStore: () => LockStore): void {
  const open = () => asking(openStore());

  describe("an answer that a run tells", () => {
    const lifeMs = 30_000;

    test("is for a look that waits for that run, and for no attempt", async () => {
      const store = asking(openStore());
      const [mine, other] = [onceOf(), onceOf()];
      const retry = { ...other, key: mine.key, submission: mine.submission };
      await store.acquire(mine).reply;
      const contended = await store.acquire(retry).reply;
      expect(contended).toMatchObject({ sameSubmission: true, holderId: mine.ownerId });
      const record = recordOf(mine, "declined");
      expect((await store.release(mine, 0, { record, lifeMs }).reply).kind).toBe("done");
      expect(await store.look(retry, mine.ownerId).reply).toMatchObject({ kind: "told", record });
      expect((await store.look(retry, other.ownerId).reply).kind).toBe("outOfWindow");
      expect((await store.look(retry).reply).kind).toBe("outOfWindow");
      expect((await store.acquire(retry).reply).kind).toBe("taken");
      // Also while a later run is at work.
      expect(await store.look(mine, mine.ownerId).reply).toMatchObject({ kind: "told", record });
    });

    test("is not told by a copy that let nothing go, nor behind what is kept", async () => {
      const store = asking(openStore());
      const [mine, other] = [onceOf(), onceOf()];
      const second = { ...other, key: mine.key, submission: mine.submission };
      const told = { record: recordOf(mine, "late"), lifeMs };
      expect((await store.release(mine, 0, told).reply).kind).toBe("gone");
      expect((await store.look(second, mine.ownerId).reply).kind).toBe("outOfWindow");
      await store.acquire(mine).reply;
      await store.release(mine, 0, told).reply;
      const plan = await taken(store, second);
      await store.complete(second, plan).reply;
      expect(await store.look(mine, mine.ownerId).reply).toMatchObject({
        kind: "completed",
        record: plan.record,
      });
    });

    test("is gone after its time, and leaves a cooldown as it is", async () => {
      const store = asking(openStore());
      const mine = onceOf();
      const { storeTimeMs } = (await store.acquire(mine).reply) as { storeTimeMs: number };
      const told = { record: recordOf(mine), lifeMs: 50 };
      await store.release(mine, Math.ceil(storeTimeMs) + 60_000, told).reply;
      expect((await store.acquire(onceOf({ key: mine.key })).reply).kind).toBe("contended");
      const isGone = async () => (await store.look(mine, mine.ownerId).reply).kind !== "told";
      await until(isGone, { what: "what was told to be forgotten" });
    });
  });

  describe("complete", () => {
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

    test("keeps the record until its expiry, which a second copy does not move", async () => {
      const store = open();
      const expiresAtMs = await timeAfter(store, 1_500);
      const { mine, plan } = await completed(store, {}, expiresAtMs);
      const longer = { ...plan, expiresAtMs: expiresAtMs + 60_000 };
      expect(await store.complete(mine, longer).reply).toMatchObject({ kind: "recorded" });
      expect(await isForgotten(store, mine)).toBeGreaterThanOrEqual(expiresAtMs);
    });

    test("without the lock is late, kept all the same, and leaves the next holder alone", async () => {
      const [store, mine] = [open(), onceOf()];
      const plan = await taken(store, mine);
      await store.release(mine).reply;
      const next = onceOf({ key: mine.key });
      await store.acquire(next).reply;
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
      const body = "€ \u0000 \u{1f6d2} \r\n'\"\\ ".repeat(4_096);
      const plan = await taken(store, mine, recordOf(mine, body));
      await store.complete(mine, plan).reply;
      const reply = await store.acquire(rivalOf(mine)).reply;
      expect(reply).toMatchObject({ kind: "completed", record: plan.record });
    });

    test("of many in one turn keeps each its own answer", async () => {
      const store = open();
      const held = Array.from({ length: 50 }, () => onceOf());
      const plans = await Promise.all(
        held.map((command, i) => taken(store, command, recordOf(command, `${i}`))),
      );
      const done = await Promise.all(
        held.map((command, i) => store.complete(command, plans[i] as Plan).reply),
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

/** What the end of a lease leaves where a cooldown is asked for. */
function leavesCooldowns(openStore: () => LockStore): void {
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
        const endsAtMs = await timeAfter(store, 4_000);
        expect(["recorded", "done"]).toContain(await end(store, mine, endsAtMs));
        for (const next of [onceOf({ key: mine.key }), commandOf({ key: mine.key })]) {
          const reply = await store.acquire(next).reply;
          expect(reply).toMatchObject({ kind: "contended", isCooldown: true });
          expect(reply).not.toMatchObject({ sameSubmission: true });
          const { expiresInMs: left } = reply as Extract<AcquireReply, { kind: "contended" }>;
          expect(left).toBeGreaterThan(0);
          expect(left).toBeLessThanOrEqual(4_000 + 2);
        }
        expect(await isFree(store, mine)).toBeGreaterThanOrEqual(endsAtMs);
      });

      test("is not lengthened by a second copy, which finds it to be its own", async () => {
        const [store, mine] = [open(), onceOf()];
        await store.acquire(mine).reply;
        const endsAtMs = await timeAfter(store, 30_000);
        const first = await end(store, mine, endsAtMs);
        expect(await end(store, mine, endsAtMs + 60_000)).toBe(first);
        const left = await expiresInMs(store.acquire(commandOf({ key: mine.key })));
        expect(left).toBeLessThanOrEqual(30_000 + 2);
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

/** What tells one lease of a key from the next. */
function raisesFencingTokens(openStore: () => LockStore): void {
  const open = () => asking(openStore());

  describe("the fencing token", () => {
    const tokenOf = async (store: Asking, command: LockCommand): Promise<number> => {
      const reply = await store.acquire(command).reply;
      if (reply.kind !== "taken" && reply.kind !== "mine") throw new Error(reply.kind);
      expect(reply.fencingToken).toSatisfy(Number.isSafeInteger);
      return reply.fencingToken as number;
    };

    test.each([
      ["a lock alone", () => commandOf()],
      ["a submission", () => onceOf()],
    ])("of %s rises from lease to lease", async (_what, make) => {
      const [store, { key }] = [open(), make()];
      let last = 0;
      for (let i = 0; i < 20; i++) {
        const command = { ...make(), key };
        const token = await tokenOf(store, command);
        expect(token).toBeGreaterThan(last);
        last = token;
        await store.release(command).reply;
      }
    });

    test.each([
      ["a lock alone", commandOf],
      ["a submission", onceOf],
    ])(
      "of %s is the same however often the acquire is confirmed and extended",
      async (_what, make) => {
        const [store, mine] = [open(), make()];
        const token = await tokenOf(store, mine);
        for (let i = 0; i < 3; i++) {
          expect(await tokenOf(store, mine)).toBe(token);
          await store.extend(mine).reply;
        }
      },
    );
  });
}

function forgetsRecords(openStore: () => LockStore): void {
  const open = () => asking(openStore());

  describe("rule 26: forget", () => {
    test("deletes the record of the run that was looked at, and the next one is let in", async () => {
      const store = open();
      const { mine } = await completed(store);
      expect(await store.look(rivalOf(mine)).reply).toMatchObject({ kind: "completed" });
      expect(await store.forget(rivalOf(mine), mine.ownerId).reply).toMatchObject({
        kind: "forgotten",
      });
      expect(await store.forget(rivalOf(mine), mine.ownerId).reply).toMatchObject({
        kind: "absent",
      });
      expect(await store.acquire(rivalOf(mine)).reply).toMatchObject({ kind: "taken" });
    });

    test("leaves the record of another run", async () => {
      const store = open();
      const { mine } = await completed(store);
      const { ownerId } = onceOf();
      expect(await store.forget(rivalOf(mine), ownerId).reply).toMatchObject({ kind: "changed" });
      expect(await store.acquire(rivalOf(mine)).reply).toMatchObject({ kind: "completed" });
    });

    test("does nothing while the submission is under way, and while another one is, it does", async () => {
      const store = open();
      const { mine } = await completed(store);
      const other = onceOf({ key: mine.key });
      await store.acquire(other).reply;
      expect(await store.forget(rivalOf(other), other.ownerId).reply).toMatchObject({
        kind: "inFlight",
      });
      expect(await store.forget(rivalOf(mine), mine.ownerId).reply).toMatchObject({
        kind: "forgotten",
      });
      expect(await store.extend(other).reply).toMatchObject({ kind: "done" });
    });
  });
}

/** The same submission by another process. */
function rivalOf({ key, submission }: LockCommand): LockCommand {
  return commandOf({ key, submission });
}

type Plan = Parameters<Asking["complete"]>[1];

/** Takes the key, and says what a complete is given that keeps the record for a minute. */
async function taken(store: Asking, mine: LockCommand, record = recordOf(mine)): Promise<Plan> {
  const storeTimeMs = timeOf(await store.acquire(mine).reply);
  return { record, expiresAtMs: Math.ceil(storeTimeMs) + 60_000 };
}

/** An owner whose answer is kept, for a minute unless another time is given. */
async function completed(store: Asking, given: Partial<LockCommand> = {}, expiresAtMs?: number) {
  const mine = onceOf(given);
  const kept = await taken(store, mine);
  const plan = { ...kept, expiresAtMs: expiresAtMs ?? kept.expiresAtMs };
  expect(await store.complete(mine, plan).reply).toMatchObject({ kind: "recorded" });
  return { mine, plan };
}

/** By the store's clock, so many milliseconds from now on. */
async function timeAfter(store: Asking, inMs: number): Promise<number> {
  const reply = await store.acquire(commandOf()).reply;
  return Math.ceil(timeOf(reply)) + inMs;
}

/** The store's time of an answer. */
function timeOf(reply: AcquireReply): number {
  if ("storeTimeMs" in reply) return reply.storeTimeMs;
  throw new Error(`no answer: ${reply.kind}`);
}
