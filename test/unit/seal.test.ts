import { randomBytes } from "node:crypto";
import { runInNewContext } from "node:vm";
import { afterEach, describe, expect, test, vi } from "vitest";
import { MemoryStore } from "../../src/index.ts";
import { decodeRecord, encodeRecord, type RecordContent } from "../../src/lock/record.ts";
import { Seal } from "../../src/lock/seal.ts";
import { hash22, identify, noFingerprint } from "../../src/lock/submission.ts";
import { closeLocks, openLock } from "../support/locks.ts";
import { until } from "../support/until.ts";

afterEach(closeLocks);

const [old, newest, other] = [randomBytes(32), randomBytes(32), randomBytes(32)];
const command = {
  key: "lock:submit:42",
  ownerId: "8e03978e-40d5-43dd-bc93-6894a57f9324",
  submission: { id: hash22("in Redis"), fingerprint: hash22("payload") },
  identity: { id: hash22("shown"), fingerprint: undefined },
};
const content: RecordContent = {
  status: 201,
  headers: { location: "/orders/secret" },
  body: '{"card":"secret"}',
};
const seal = (keys: Buffer[]) => new Seal({ keys, idKey: old });
const sealed = (keys = [old], given = content) =>
  encodeRecord(command, given, 1_760_000_000_000, seal(keys)) as Buffer;
const open = (record: Buffer, keys = [old], place: Parameters<typeof decodeRecord>[1] = command) =>
  decodeRecord(record, place, seal(keys));
const changed = (record: Buffer, at: number) =>
  Buffer.concat([
    record.subarray(0, at),
    Buffer.from([(record[at] ?? 0) ^ 1]),
    record.subarray(at + 1),
  ]);

describe("rule 27: a sealed record", () => {
  test.each<[what: string, content: RecordContent]>([
    ["an answer", content],
    ["bytes", { status: 200, body: randomBytes(64) }],
    ["a status alone", { status: 100 }],
    ["a value", { status: 100, json: '{"order":7}' }],
  ])("is read again as %s, with the submission's id", (_what, given) => {
    const open = decodeRecord(encodeRecord(command, given, 1_760_000_000_000), command);
    const read = decodeRecord(sealed([old], given), command, seal([old]));
    expect(read).toEqual({ ...open, id: command.identity.id });
  });

  test("is sealed with the key as it was given, though its memory is wiped", () => {
    const key = Buffer.from(newest);
    const ring = new Seal({ keys: [key], idKey: old });
    key.fill(0);
    const record = encodeRecord(command, content, 1_760_000_000_000, ring) as Buffer;
    expect(open(record, [newest]).answer.status).toBe(201);
  });

  test("is sealed with a key of another realm, as a test in jsdom has it", () => {
    const keys: Uint8Array[] = [runInNewContext("new Uint8Array(32)")];
    expect(keys[0]).not.toBeInstanceOf(Uint8Array);
    expect(new Seal({ keys }).hashesOf("a", "b").id).toHaveLength(22);
  });

  test("is looked up under the id that was asked for, where no key opens it", async () => {
    const store = new MemoryStore();
    const [lock, another] = [old, other].map((key) =>
      openLock({ store, seal: { keys: [key], idKey: old } }),
    );
    const { id } = identify("42", { id: "cart 7" });
    await lock?.once("42", { id: "cart 7" }, () => 7);
    const found = { outcome: "completed", id };
    expect(await lock?.lookUp("42", { id })).toMatchObject(found);
    const unreadable = { answer: { unreadable: "sealed with another key" } };
    expect(await another?.lookUp("42", { id })).toMatchObject({ ...found, ...unreadable });
  });

  test("shows its head, and nothing behind that", () => {
    const text = sealed().toString("latin1");
    expect(text.slice(0, 61)).toBe(`1${command.submission.fingerprint}${command.ownerId}=s`);
    for (const word of ["secret", "201", "location", "card", command.identity.id]) {
      expect(text).not.toContain(word);
    }
    expect(sealed().equals(sealed())).toBe(false);
  });

  test("is opened by any key of the ring, and sealed with the first", () => {
    expect(open(sealed([old]), [newest, old]).answer.status).toBe(201);
    expect(open(sealed([newest, old]), [other, newest]).answer.status).toBe(201);
    expect(open(sealed([newest, old]), [old]).answer.unreadable).toBe("sealed with another key");
  });

  test("is unreadable without a ring, and an open one is read with it", () => {
    const unreadable = { status: 100, headers: {}, unreadable: "sealed with another key" };
    expect(decodeRecord(sealed(), command).answer).toEqual(unreadable);
    const plain = Buffer.from(encodeRecord(command, content, 1_760_000_000_000));
    expect(open(plain).answer.status).toBe(201);
  });

  test("is unreadable wherever a bit is turned or its end is cut, and throws nothing", () => {
    const record = sealed();
    for (let at = 0; at < record.length; at++) {
      for (const each of [changed(record, at), record.subarray(0, at)]) {
        expect(open(each).answer).toMatchObject({ status: 100, unreadable: expect.any(String) });
      }
    }
  });

  test("is none of another user's, submission's, content's or run's", () => {
    const { submission } = command;
    for (const place of [
      { ...command, key: "lock:submit:43" },
      { ...command, submission: { ...submission, id: hash22("another") } },
    ]) {
      expect(open(sealed(), [old], place).answer.unreadable).toBe("damaged");
    }
  });
});

describe("ids and fingerprints under a seal", () => {
  const { id, fingerprint } = command.submission;

  test("are the same in each process that has the key, whatever the ring", () => {
    const hashes = seal([old]).hashesOf(id, fingerprint);
    expect(seal([newest, old]).hashesOf(id, fingerprint)).toEqual(hashes);
    expect(new Seal({ keys: [old] }).hashesOf(id, fingerprint)).toEqual(hashes);
    expect(new Seal({ keys: [newest, old] }).hashesOf(id, fingerprint)).toEqual(hashes);
    expect(new Seal({ keys: [other], idKey: old }).hashesOf(id, fingerprint)).toEqual(hashes);
  });

  test("are others with another key, and hashes without a secret where that is wanted", () => {
    const of = (options: ConstructorParameters<typeof Seal>[0]) =>
      new Seal(options).hashesOf(id, fingerprint);
    const hashes = of({ keys: [old] });
    expect(hashes.id).toMatch(/^[\w-]{22}$/);
    for (const each of [of({ keys: [newest] }), { id, fingerprint }]) {
      expect(each.id).not.toBe(hashes.id);
      expect(each.fingerprint).not.toBe(hashes.fingerprint);
    }
    expect(of({ keys: [old], idKey: false })).toEqual({ id, fingerprint });
  });

  test("leave the mark of no fingerprint as it is", () => {
    expect(seal([old]).hashesOf(id, noFingerprint).fingerprint).toBe(noFingerprint);
  });
});

test("only a kept answer that no key opens is warned of: what was told leaves nothing", async () => {
  const given = vi.spyOn(process, "emitWarning").mockReturnValue(undefined);
  // A copy of the package that has warned of nothing yet.
  vi.resetModules();
  const { MemoryStore: Store, SubmitLock } = await import("../../src/index.ts");
  const store = new Store();
  const sealing = new SubmitLock({ store, seal: { keys: [old], idKey: false } });
  const without = new SubmitLock({ store });
  const asked = { submission: { id: "order-7" } };
  const acquired = async () => {
    const attempt = await sealing.acquire("42", asked);
    if (attempt.outcome !== "acquired") throw new Error(attempt.outcome);
    return attempt.lease;
  };
  const identity = identify("42", { id: "order-7" });
  const asksAgain = () => without.acquireOrWait("42", { identity, retainMs: 60_000 }, 5_000);

  const declined = await acquired();
  const waiting = asksAgain();
  await until(() => without.stats().waiting === 1, { what: "the repeat to wait" });
  await declined.release({ told: { status: 402, body: "declined" } });
  expect(await waiting).toMatchObject({
    outcome: "told",
    answer: { unreadable: "sealed with another key" },
  });
  expect(given.mock.calls).toEqual([]);

  await (await acquired()).complete({ status: 201 });
  expect(await asksAgain()).toMatchObject({ outcome: "completed" });
  const code = "SUBMIT_LOCK_UNREADABLE_RECORD";
  const warning = [expect.stringContaining("none runs"), { type: "SubmitLockWarning", code }];
  expect(given.mock.calls).toEqual([warning]);
  await Promise.all([sealing.close(), without.close()]);
});
