import * as crypto from "node:crypto";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { derivedId, keyId } from "../../src/http/submission.ts";
import { MemoryStore } from "../../src/index.ts";
import {
  hash22,
  identify,
  noFingerprint,
  resolveIdentity,
  resolveRetainMs,
  type Submission,
} from "../../src/lock/submission.ts";

import { openLock } from "../support/locks.ts";

const resolve = (submission: Submission) =>
  resolveIdentity(
    { identity: identify(42, submission), retainMs: submission.retainMs },
    1_000,
    undefined,
  );

describe("hash22", () => {
  test("is the first 22 characters of SHA-256 in base64url", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), (text) => {
        const digest = crypto.createHash("sha256").update(text, "utf8").digest("base64url");
        expect(hash22(text)).toBe(digest.slice(0, 22));
      }),
    );
    expect(hash22("")).toBe("47DEQpj8HBSa-_TImW-5JC");
  });
});

describe("a submission", () => {
  test("is resolved to hashes and a day", () => {
    const id = hash22("once\n42\ncart-7:3");
    expect(resolve({ id: "cart-7:3" })).toEqual({
      identity: { id, fingerprint: undefined },
      hashes: { id, fingerprint: noFingerprint },
      retainMs: 86_400_000,
    });
    expect(noFingerprint).toBe("----------------------");
  });

  test("keeps what it is given for retainMs", () => {
    expect(resolve({ id: "a", retainMs: 2_000 }).retainMs).toBe(2_000);
    expect(resolve({ id: "a", retainMs: 604_800_000 }).retainMs).toBe(604_800_000);
  });

  test("with undefined members is one without them", () => {
    const absent = { id: "a", fingerprint: undefined, retainMs: undefined };
    expect(resolve(absent)).toEqual(resolve({ id: "a" }));
  });

  test("has another fingerprint for another payload, and for another id", () => {
    const prints = [
      resolve({ id: "a", fingerprint: "1" }),
      resolve({ id: "a", fingerprint: "2" }),
      resolve({ id: "b", fingerprint: "1" }),
    ].map(({ hashes }) => hashes.fingerprint);
    expect(new Set(prints).size).toBe(3);
    expect(resolve({ id: "a", fingerprint: "1" }).hashes.fingerprint).toBe(prints[0]);
  });

  test("has its fingerprint hashed, also where it looks like a hash or like none", () => {
    for (const fingerprint of ["a".repeat(22), noFingerprint]) {
      const resolved = resolve({ id: "a", fingerprint }).hashes.fingerprint;
      expect(resolved).toMatch(/^[\w-]{22}$/);
      expect(resolved).not.toBe(fingerprint);
    }
  });
});

test("a guard's submission is refused with a fingerprint that is not 22 characters", async () => {
  const lock = openLock({ store: new MemoryStore() });
  const identity = { id: "x".repeat(22), fingerprint: "v1" };
  await expect(lock.acquireOrWait("42", { identity }, 0)).rejects.toThrow("identity.fingerprint");
});

test.each<[string, unknown[], string]>([
  ["no options", [], "acquireOrWait options: "],
  ["no identity", [{ identity: null }, 0], "identity.id: "],
  ["no time", [{ identity: { id: "x".repeat(22) } }], "waitMs: "],
  ["a time that is no number", [{ identity: { id: "x".repeat(22) } }, Number.NaN], "waitMs: "],
  ["a time that is too long", [{ identity: { id: "x".repeat(22) } }, 30_001], "waitMs: "],
])("acquireOrWait is refused with %s", async (_name, given, said) => {
  const lock = openLock({ store: new MemoryStore() });
  const asked = lock.acquireOrWait as (...args: unknown[]) => Promise<unknown>;
  await expect(asked.call(lock, "42", ...given)).rejects.toThrow(said);
});

test("1 024 characters are an id", () => {
  expect(resolve({ id: "ä".repeat(1_024) }).hashes.id).toHaveLength(22);
});

test("an answer is kept for twice the budget of an acquire at least, and for a second", () => {
  expect(resolveRetainMs("retainMs", 1_000, 20)).toBe(1_000);
  expect(() => resolveRetainMs("retainMs", 999, 20)).toThrow(/from 1000 to/);
  expect(resolveRetainMs("retainMs", 20_000, 10_000)).toBe(20_000);
  expect(() => resolveRetainMs("retainMs", 19_999, 10_000)).toThrow(/from 20000 to/);
});

describe("the id of a guarded request", () => {
  const id = keyId(42, "lock:submit:42", "POST /orders", "order-7");

  test("is the same submission for identify, with its fingerprint as it is", () => {
    const fingerprint = hash22("content");
    expect(identify(42, { id, fingerprint })).toEqual({ id, fingerprint });
    expect(identify("42", { id })).toEqual({ id, fingerprint: undefined });
  });

  test("is any other text to another user, and so is one that was changed", () => {
    for (const [user, text] of [
      [43, id],
      [42, `${id.slice(0, -1)}${id.endsWith("x") ? "y" : "x"}`],
      [42, hash22("text of a client")],
    ] as const) {
      expect(identify(user, { id: text }).id).not.toBe(text);
    }
  });

  test("differs by user, scope, route and key", () => {
    const others = [
      keyId(43, "lock:submit:43", "POST /orders", "order-7"),
      keyId(42, "refund:42", "POST /orders", "order-7"),
      keyId(42, "lock:submit:42", "POST /carts", "order-7"),
      keyId(42, "lock:submit:42", "POST /orders", "order-8"),
      derivedId(42, "lock:submit:42", "order-7"),
    ];
    expect(new Set([id, ...others].map((each) => each.slice(0, 18))).size).toBe(6);
  });
});
