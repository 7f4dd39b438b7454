import { setImmediate } from "node:timers/promises";
import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, type MockInstance, test, vi } from "vitest";
import type * as entry from "../../src/index.ts";
import { MemoryStore, SubmitLock, type UserId } from "../../src/index.ts";
import { submitKey } from "../../src/lock/submit-key.ts";

const keyOf = (userId: UserId) => submitKey("lock:submit:", userId);
/** Ids that are accepted: no lone surrogate, 1 to 200 UTF-16 units. */
const ids = fc
  .oneof(
    fc.string({ unit: "binary", minLength: 1, maxLength: 200 }),
    // Close relatives, so that a collision would be found if there were one.
    fc.string({
      unit: fc.constantFrom("%", "2", "5", "F", "f", ":", "{", "}", "a", "/", "."),
      minLength: 1,
    }),
  )
  .filter((id) => id.length <= 200 && !/\p{Cs}/u.test(id));

function isTaken(keyPrefix: string): boolean {
  try {
    return new SubmitLock({ store: new MemoryStore(), keyPrefix }).keyPrefix === keyPrefix;
  } catch {
    return false;
  }
}

describe("properties", () => {
  test("two different ids never share a key", () => {
    fc.assert(
      fc.property(ids, ids, (a, b) => (a === b) === (keyOf(a) === keyOf(b))),
      {
        numRuns: 2_000,
      },
    );
  });

  test("two locks of different prefixes never share a key, whatever the ids", () => {
    const whole = fc.string({ unit: fc.constantFrom("a", "1", ":", "3", "A", "."), minLength: 3 });
    fc.assert(
      fc.property(whole, fc.nat(), fc.nat(), (text, one, other) => {
        // The same text, cut into a prefix and an id at two places.
        const cuts = [one, other].map((at) => 1 + (at % (text.length - 1)));
        if (cuts[0] === cuts[1] || !cuts.every((at) => isTaken(text.slice(0, at)))) return true;
        const keys = cuts.map((at) => submitKey(text.slice(0, at), text.slice(at)));
        return keys[0] !== keys[1];
      }),
      { numRuns: 5_000 },
    );
  });

  test("an id yields nothing after the prefix but ASCII letters, digits and -._~@%", () => {
    fc.assert(
      fc.property(ids, (id) => /^lock:submit:[A-Za-z0-9\-._~@%]+$/.test(keyOf(id))),
      { numRuns: 2_000 },
    );
  });

  test("the id can be read back from its key", () => {
    fc.assert(
      fc.property(ids, (id) => decodeURIComponent(keyOf(id).slice("lock:submit:".length)) === id),
    );
  });

  test("a number and a bigint are the user of their digits", () => {
    fc.assert(fc.property(fc.maxSafeInteger(), (id) => keyOf(id) === keyOf(String(id))));
    fc.assert(fc.property(fc.bigInt(), (id) => keyOf(id) === keyOf(String(id))));
  });

  test("an id with a lone surrogate is refused, wherever it stands", () => {
    const bad = fc
      .string({ unit: "binary", maxLength: 50 })
      .chain((a) => fc.constantFrom(`${a}\ud800`, `\udc00${a}`, `${a}\ud800x`));
    fc.assert(
      fc.property(bad, (id) => {
        expect(() => keyOf(id)).toThrow(/lone surrogate/);
      }),
    );
  });
});

test.each<[UserId, string]>([
  ["42", "lock:submit:42"],
  [42, "lock:submit:42"],
  [42n, "lock:submit:42"],
  [-0, "lock:submit:0"],
  ["ann@example.org", "lock:submit:ann@example.org"],
  ["a.b-c_d~e", "lock:submit:a.b-c_d~e"],
  ["../admin", "lock:submit:..%2Fadmin"],
  ["{42}", "lock:submit:%7B42%7D"],
  ["a:b", "lock:submit:a%3Ab"],
  ["a b", "lock:submit:a%20b"],
  ["42\r\nDEL x", "lock:submit:42%0D%0ADEL%20x"],
  ["42\n", "lock:submit:42%0A"],
  ["%34", "lock:submit:%2534"],
  ["it's(*)!", "lock:submit:it%27s%28%2A%29%21"],
  ["Zoë", "lock:submit:Zo%C3%AB"],
  ["o'brien@example.org", "lock:submit:o%27brien@example.org"],
  ["undefined", "lock:submit:undefined"],
])("the key of %o", (userId, key) => {
  expect(keyOf(userId)).toBe(key);
});

test("characters that only look alike are two users", () => {
  expect(keyOf("Zo\u00eb")).not.toBe(keyOf("Zoe\u0308"));
});

/** An id as MongoDB's driver gives it. */
class ObjectId {
  readonly #hex = "65f0c0ffee65f0c0ffee65f0";
  toString(): string {
    return this.#hex;
  }
}

test.each<[what: string, userId: unknown, came: string]>([
  ["undefined", undefined, "undefined"],
  ["null", null, "null"],
  ["an empty string", "", "an empty string"],
  ["a plain object", { id: 42 }, "an object: pass the id that it holds"],
  ["an object without a prototype", Object.create(null), "an object: pass the id that it holds"],
  ["an ObjectId", new ObjectId(), "an object: pass String(…) of it, if that is the id"],
  ["a String object", new String("42"), "an object"],
  ["an array", ["42"], "an array"],
  ["a boolean", true, "a boolean"],
  ["a symbol", Symbol("Ann"), "a symbol"],
  ["a function", () => "42", "a function"],
  ["an integer that is not safe", 2 ** 53, "an unsafe integer"],
  ["a fraction", 1.5, "a fraction"],
  ["NaN", Number.NaN, "NaN"],
  ["an infinite number", -1 / 0, "-Infinity"],
  ["201 characters", "x".repeat(201), "a string of 201 characters"],
  ["a bigint of 10 000 digits", 10n ** 9_999n, "a"],
  ["a high surrogate alone", "a\ud800", "a lone surrogate"],
  ["a low surrogate alone", "\udc00a", "a lone surrogate"],
])("%s is no user id, and the message says what came, and what to pass", async (...row) => {
  const [, userId, came] = row;
  const expected = { code: "SUBMIT_LOCK_INVALID_USER_ID", name: "InvalidUserIdError" };
  const refused = () => keyOf(userId as never);
  expect(refused).toThrow(expect.objectContaining(expected));
  expect(refused).toThrow("userId: expected a string of 1 to 200 characters, a safe integer or a");
  expect(refused).toThrow(came);
  const lock = new SubmitLock({ store: new MemoryStore() });
  await expect(lock.acquire(userId as never)).rejects.toMatchObject(expected);
  await expect(lock.withLock(userId as never, {}, () => {})).rejects.toMatchObject(expected);
});

describe("a text that String(…) makes of what is no user", () => {
  let given: MockInstance<typeof process.emitWarning>;
  beforeEach(() => {
    given = vi.spyOn(process, "emitWarning").mockImplementation(() => {});
  });
  afterEach(() => given.mockRestore());

  /** Warnings are given once for each copy of the package. */
  async function freshLock() {
    vi.resetModules();
    const { MemoryStore, SubmitLock }: typeof entry = await import("../../src/index.ts");
    return new SubmitLock({ store: new MemoryStore() });
  }

  test.each(["undefined", "null", "NaN", "[object Object]"])(
    "%j is warned of once, and locks",
    async (text) => {
      const lock = await freshLock();
      expect((await lock.acquire(text)).outcome).toBe("acquired");
      expect((await lock.acquire(text)).outcome).toBe("contended");
      await lock.acquire("null");
      expect(given.mock.calls).toEqual([
        [
          expect.stringContaining(`userId: got the text ${JSON.stringify(text)}`),
          { type: "SubmitLockWarning", code: "SUBMIT_LOCK_SUSPICIOUS_USER_ID" },
        ],
      ]);
    },
  );

  test.each(["Null", "nullable", "42", 42, "object"])("%j is an id like any other", async (id) => {
    await (await freshLock()).acquire(id);
    expect(given.mock.calls).toEqual([]);
  });
});

test("200 characters are a user id, whatever they are encoded to", () => {
  expect(keyOf("ä".repeat(200))).toHaveLength("lock:submit:".length + 1_200);
});

test("a refused id is not repeated in the message", () => {
  expect(() => keyOf("secret\ud800")).toThrow(/^(?!.*secret)/);
  // A Snowflake id as a number is a person's id, rounded.
  const snowflake = Number("175928847299117063");
  expect(() => keyOf(snowflake)).toThrow(/^(?!.*1759)/);
  expect(() => keyOf(1759.5)).toThrow(/^(?!.*1759)/);
  expect(() => keyOf(true as never)).toThrow(/^(?!.*true)/);
});

describe("keyOf, the keys of a shop's own", () => {
  const lockOf = (ownKey: (userId: string) => string, keyPrefix = "lock:") =>
    new SubmitLock({ store: new MemoryStore(), keyPrefix, keyOf: ownKey });

  test.each<UserId>([42, 42n, "42"])("gets %o as text, whatever the prefix ends in", (userId) => {
    expect(lockOf((id) => `shop1${id}:lock`, "shop1").keyFor(userId)).toBe("shop142:lock");
  });

  test("an invalid id is refused before it", () => {
    const lock = lockOf((id) => `lock:${id}`);
    expect(() => lock.keyFor(undefined as never)).toThrow("userId: expected");
  });

  test.each([
    ["lock:auth0|42", true],
    ["lock:a+b@é%", true],
    [`lock:${"é".repeat(253)}x`, true],
    [`lock:${"é".repeat(254)}`, "513 bytes"],
    ["user:42", "7 bytes with another beginning"],
    ["", "0 bytes with another beginning"],
    ...[
      "lock:4 2",
      "lock:{42}",
      "lock:42\n",
      "lock:\u00a042",
      "lock:\u200b42",
      "lock:\ud80042",
    ].map((key) => [key, "bytes with one of these characters"] as const),
    [42, "a value of type number"],
    [undefined, "a value of type undefined"],
    [Promise.resolve("lock:42"), "a value of type object"],
  ] as const)("%j is a key: %s", (key, came) => {
    const lock = lockOf(() => key as string);
    if (came === true) {
      expect(lock.keyFor("42")).toBe(key);
      return;
    }
    const refused = () => lock.keyFor("42");
    expect(refused).toThrow(expect.objectContaining({ code: "SUBMIT_LOCK_INVALID_OPTION" }));
    expect(refused).toThrow(/^keyOf: expected a key of at most 512 bytes .* \("lock:"\), .*, got /);
    expect(refused).toThrow(came);
    expect(refused).toThrow(/, got (?!.*42)/);
  });

  test("an async keyOf that rejects is refused, and its rejection is heard", async () => {
    const lock = lockOf((async () => Promise.reject(new Error("of the shop"))) as never);
    expect(() => lock.keyFor("42")).toThrow("a value of type object");
    await setImmediate();
  });

  test("a wrong key, and an error of its own, reject an attempt and take nothing", async () => {
    const errors = [
      () => "42",
      () => {
        throw new TypeError("no such tenant");
      },
    ];
    for (const ownKey of errors) {
      const lock = lockOf(ownKey);
      const said = /^keyOf: expected .*, got 2 bytes with another beginning$|^no such tenant$/;
      await expect(lock.acquire("42")).rejects.toThrow(said);
      await expect(lock.once("42", { id: "cart 7" }, () => 1)).rejects.toThrow(said);
      expect(lock.stats()).toMatchObject({ attempting: 0, held: 0 });
    }
  });
});
