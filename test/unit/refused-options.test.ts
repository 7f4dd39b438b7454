import { Redis } from "ioredis";
import { describe, expect, test } from "vitest";
import { Arguments } from "../../src/cli/context.ts";
import { submitGuard } from "../../src/express/index.ts";
import { resolveIdempotencyOptions } from "../../src/http/options.ts";
import { resolveStoredHeaders } from "../../src/http/stored-answer.ts";
import { MemoryStore, RedisStore, SubmitLock } from "../../src/index.ts";
import { checkAnswer } from "../../src/lock/record.ts";
import { identify, resolveIdentity, type Submission } from "../../src/lock/submission.ts";

const store = new MemoryStore();
const lock = new SubmitLock({ store });
const userId = () => "42";
const never = () => expect.fail("it ran");
const bareClient = new Redis({ lazyConnect: true });
const storeNeeded = "a LockStore such as new RedisStore(redis) or new MemoryStore()";
const prefix = "1 to 128 characters";
const prefixEnd = 'an end that no user id has in a key, such as ":"';
const word = '"reject", "proceed" or a function';
const free = { id: "0f8fad5b", by: "anna@ops-1", reason: "ticket 4711" };
const forget = { ...free, id: "a".repeat(22) };
const secret = Buffer.alloc(32, "s");

/** What is passed, and what the message says beside that: the option, what was expected, what came. */
type Row = readonly [given: unknown, ...said: string[]];

const places: Record<string, { readonly pass: (given: never) => unknown; readonly rows: Row[] }> = {
  "a guard's options": {
    pass: submitGuard,
    rows: [
      [undefined, "options", "an object", "undefined"],
      [null, "options", "an object", "null"],
      [[], "options", "an object", "an array"],
      [() => {}, "options", "an object", "a function"],
      [{ lock, userID: userId }, "userId", '"userID"'],
      [{ userId }, "lock", "a SubmitLock", "undefined"],
      [{ lock: store, userId }, "lock", "a SubmitLock", "a store"],
      [{ lock: bareClient, userId }, "lock", "a SubmitLock"],
      [{ lock: {}, userId }, "lock", "a SubmitLock", "an object"],
      [{ lock: "redis", userId }, "lock", "a SubmitLock", '"redis"'],
      [{ lock: { acquire() {}, keyFor() {}, lookUp() {} }, userId }, "an object", "LockStore"],
      [{ lock }, "userId", "a function", "undefined"],
      [{ lock, userId: "42" }, "userId", "a function", '"42"'],
    ],
  },
  "a guard's option": {
    pass: (given: object) => submitGuard({ lock, userId, ...given }),
    rows: [
      [{ onConflict: () => {} }, "lock, userId", '"onConflict"'],
      [{ skip: true }, "skip", "a function", "true"],
      [{ skip: null }, "skip", "a function", "null"],
      [{ onContended: "proceed" }, "onContended", "a function", '"proceed"'],
      [{ onContended: 409 }, "onContended", "a function", "409"],
      [{ onKeyMissing: "proceed" }, "onKeyMissing", "a function", '"proceed"'],
      [{ onMismatch: "proceed" }, "onMismatch", "a function", '"proceed"'],
      [{ onReplay: "proceed" }, "onReplay", "a function", '"proceed"'],
      [{ onAnonymous: "allow" }, "onAnonymous", word, '"allow"'],
      [{ onAnonymous: null }, "onAnonymous", word, "null"],
      [{ onUnavailable: "open" }, "onUnavailable", word, '"open"'],
      [{ onUnavailable: true }, "onUnavailable", word, "true"],
      [{ idempotency: true }, "idempotency", "an object", "true"],
      [{ idempotency: { ttlMs: 1_000 } }, "idempotency", "retainMs", '"ttlMs"'],
      [{ idempotency: { retainMs: 1_000 } }, "idempotency.retainMs", "from 2000", "1000"],
      [{ cooldownMs: 60_001 }, "cooldownMs", "from 0 to 60000", "60001"],
      [{ cooldownMs: -1 }, "cooldownMs", "from 0", "-1"],
      [{ cooldownMs: 0.5 }, "cooldownMs", "whole number", "0.5"],
    ],
  },
  idempotency: {
    pass: (given) => resolveIdempotencyOptions(given, 1_000),
    rows: [
      [undefined, "idempotency options", "an object", "undefined"],
      [[], "idempotency options", "an object", "an array"],
      [{ ttlMs: 1 }, "key, submissionId, fingerprint, retainMs", '"ttlMs"'],
      [{ key: true }, "idempotency.key", '"optional", "required" or "ignored"', "true"],
      [{ key: "toString" }, "idempotency.key", '"toString"'],
      [{ key: null }, "idempotency.key", "null"],
      [{ key: "ignored" }, "submissionId", "nothing would identify a submission"],
      [{ submissionId: "7" }, "idempotency.submissionId", "a function", '"7"'],
      [{ submissionId: null }, "idempotency.submissionId", "null"],
      [{ fingerprint: "body" }, "idempotency.fingerprint", "a function", '"body"'],
      [{ fingerprint: { except: "_csrf" } }, "fingerprint.except", "an array", '"_csrf"'],
      [{ fingerprint: { except: ["_csrf", 7] } }, "fingerprint.except", "an array", "got 7"],
      [{ retainMs: 1_999 }, "idempotency.retainMs", "from 2000 to 604800000"],
      [{ retainMs: 604_800_001 }, "idempotency.retainMs", "604800001"],
      [{ retainMs: null }, "idempotency.retainMs", "null"],
      [{ store: "all" }, "idempotency.store", '"success", "final"', '"all"'],
      [{ store: null }, "idempotency.store", "null"],
      ...[
        ...["Set-Cookie", "Set-Cookie2", "Cookie", "Authorization", "Authentication-Info"],
        ...["Clear-Site-Data", "X-CSRF-Token", "X-Session-Id", "Proxy-Status", "Date"],
      ].map(
        (name) =>
          [{ replayHeaders: [name] }, "idempotency.replayHeaders", JSON.stringify(name)] as const,
      ),
      [{ maxBodyBytes: -1 }, "idempotency.maxBodyBytes", "from 0 to 1048576", "-1"],
      [{ maxBodyBytes: 1_048_577 }, "idempotency.maxBodyBytes", "1048577"],
      [{ maxBodyBytes: 0.5 }, "idempotency.maxBodyBytes", "0.5"],
      [{ maxBodyBytes: "64kb" }, "idempotency.maxBodyBytes", '"64kb"'],
      [{ maxBodyBytes: null }, "idempotency.maxBodyBytes", "null"],
      [{ waitMs: -1 }, "idempotency.waitMs", "from 0 to 30000", "-1"],
      [{ waitMs: 30_001 }, "idempotency.waitMs", "30001"],
      [{ waitMs: null }, "idempotency.waitMs", "null"],
      [{ docs: "/docs" }, "idempotency.docs", "an absolute http or https URL", '"/docs"'],
      [{ docs: "javascript:alert(1)" }, "idempotency.docs", '"javascript:alert(1)"'],
      [{ docs: new URL("https://a.example") }, "idempotency.docs", "an object"],
      [{ docs: "" }, "idempotency.docs", '""'],
    ],
  },
  "headers to replay": {
    pass: resolveStoredHeaders,
    rows: [
      ...["x-order", null, 7].map((given): Row => [given, "an array of header names"]),
      [new Set(["x-order"]), "idempotency.replayHeaders", "an array", "an object"],
      ...[[7], [""], ["x order"], ["x-order:"], ["x-order\n"]].map(
        (given): Row => [given, "an array of header names", JSON.stringify(given[0])],
      ),
      ...["set-cookie", "Set-Cookie", "connection", "keep-alive", "proxy-authenticate"]
        .concat("proxy-authorization", "Proxy-Connection", "te", "trailer", "transfer-encoding")
        .concat("upgrade", "Date", "Content-Length", "www-authenticate", "x-jwt", "X-Api-Key")
        .concat("X-CLIENT-SECRET", "x-password", "x-otp", "x-sid", "sid")
        .map((name): Row => [["x-order", name], `"${name}", which is never`]),
    ],
  },
  "a submission": {
    pass: (given: Submission) => {
      const identity = identify(42, given);
      return resolveIdentity({ identity, retainMs: given.retainMs }, 1_000, undefined);
    },
    rows: [
      [undefined, "submission options", "an object", "undefined"],
      ["cart-7", "submission options", "an object", '"cart-7"'],
      [{ id: "a", retainMS: 1 }, "fingerprint, retainMs", '"retainMS"'],
      [{}, "submission.id", "a string of 1 to 1024 characters", "undefined"],
      [{ id: 7 }, "submission.id", "a string", "7"],
      [{ id: "" }, "submission.id", "a string of 0 characters"],
      [{ id: "x".repeat(1_025) }, "submission.id", "a string of 1025 characters"],
      [{ id: "secret\ud800" }, "submission.id", "a lone surrogate"],
      [{ id: "a", fingerprint: null }, "submission.fingerprint", "null"],
      [{ id: "a", fingerprint: "" }, "submission.fingerprint", "0 char"],
      [{ id: "a", fingerprint: "secret".repeat(200) }, "a string of 1200 characters"],
      [{ id: "a", fingerprint: "\udc00secret" }, "submission.fingerprint", "a lone surrogate"],
      [{ id: "a", retainMs: 999 }, "milliseconds from 2000 to 604800000", "999"],
      [{ id: "a", retainMs: 691_200_000 }, "retainMs", "691200000"],
      [{ id: "a", retainMs: 2_000.5 }, "retainMs", "whole number", "2000.5"],
      [{ id: "a", retainMs: null }, "submission.retainMs", "null"],
    ],
  },
  "a forget": {
    pass: (given: object) => lock.forget(42, { ...forget, ...given }),
    rows: [
      [{ id: undefined }, "id", "the 22 characters of a submission", "undefined"],
      [{ id: "cart-7" }, "id", "the 22 characters of a submission", '"cart-7"'],
      [{ by: "" }, "by", "1 to 64 characters", '""'],
      [{ reason: "x".repeat(201) }, "reason", "a string of 201 characters"],
      [{ why: "x" }, "id, by, reason", '"why"'],
    ],
  },
  "forget's options": {
    pass: (options) => lock.forget("42", options),
    rows: [
      [undefined, "forget options", "an object", "undefined"],
      [null, "forget options", "an object", "null"],
    ],
  },
  "acquire's options": {
    pass: (options) => lock.acquire("42", options),
    rows: [
      [null, "acquire options", "an object", "null"],
      [{}, "submission options", "an object", "undefined"],
      [{ submission: undefined }, "submission options", "an object", "undefined"],
      [{ submission: "cart 7" }, "submission options", "an object", '"cart 7"'],
    ],
  },
  "a MemoryStore's options": {
    pass: (options) => new MemoryStore(options),
    rows: [[{ ttlMs: 1 }, "MemoryStore options", "none", '"ttlMs"']],
  },
  "a seal": {
    pass: (seal) => new SubmitLock({ store, seal }),
    rows: [
      ["key", "seal", "{ keys }", "a string"],
      ["", "seal", "{ keys }", "a string"],
      [null, "seal options", "an object", "null"],
      [false, "seal options", "an object", "false"],
      [{ keys: "s".repeat(44) }, "seal.keys", "32 bytes", "a string of length 44"],
      [{}, "seal.keys", "an array with at least one key", "undefined"],
      [{ keys: [] }, "seal.keys", "an array with at least one key", "an array"],
      [{ keys: ["s".repeat(32)] }, "seal.keys", "32 bytes", "a string of length 32"],
      [{ keys: [Buffer.alloc(31)] }, "seal.keys", "32 bytes", "bytes of length 31"],
      [{ keys: [secret, null] }, "seal.keys", "32 bytes", "null"],
      [{ keys: [secret], idKey: "s" }, "seal.idKey", "32 bytes", "a string of length 1"],
      [{ keys: [secret], key: secret }, "keys, idKey", '"key"'],
    ],
  },
  "an answer": {
    pass: checkAnswer,
    rows: [
      [undefined, "answer options", "an object", "undefined"],
      ["done", "answer options", "an object", '"done"'],
      [{ status: 200, header: {} }, "status, headers, body", '"header"'],
      [{}, "answer.status", "a whole number from 100 to 599", "undefined"],
      [{ status: 99 }, "answer.status", "99"],
      [{ status: 600 }, "answer.status", "600"],
      [{ status: "200" }, "answer.status", '"200"'],
      [{ status: 200, headers: new Map() }, "answer.headers", "a plain object"],
      [{ status: 200, headers: new Headers() }, "answer.headers", "an object"],
      [{ status: 200, headers: [] }, "answer.headers", "an array"],
      [{ status: 200, headers: null }, "answer.headers", "null"],
      [{ status: 200, headers: { age: 7 } }, 'answer.headers["age"]', "7"],
      [{ status: 200, headers: { a: undefined } }, '["a"]'],
      [{ status: 200, body: { id: 7 } }, "answer.body", "an object"],
      [{ status: 200, body: null }, "answer.body", "null"],
    ],
  },
  "a lock's options": {
    pass: (given) => new SubmitLock(given),
    rows: [undefined, null, 42, "options", []].map((given) => [given, "SubmitLock options"]),
  },
  "a lock's option": {
    pass: (given: object) => new SubmitLock({ store, ...given }),
    rows: [
      [{ ttl: 10_000 }, "store, ttlMs, maxHoldMs, acquireTimeoutMs, commandTimeoutMs", '"ttl"'],
      [{ ttlMs: 99 }, "ttlMs: ", "from 100 to 300000", "got 99"],
      [{ ttlMs: 300_001 }, "ttlMs: ", "from 100 to 300000", "got 300001"],
      [{ ttlMs: 1_000.5 }, "ttlMs: ", "a whole number", "got 1000.5"],
      [{ ttlMs: "10s" }, "ttlMs: ", "a whole number", 'got "10s"'],
      [{ ttlMs: Number.NaN }, "ttlMs: ", "a whole number", "got NaN"],
      [{ ttlMs: Number.POSITIVE_INFINITY }, "ttlMs: ", "a whole number", "got Infinity"],
      // Only `undefined` means absent.
      [{ ttlMs: null }, "ttlMs: ", "a whole number", "got null"],
      [{ maxHoldMs: null }, "maxHoldMs: ", "a whole number", "got null"],
      [{ acquireTimeoutMs: null }, "acquireTimeoutMs: ", "a whole number", "got null"],
      [{ commandTimeoutMs: null }, "commandTimeoutMs: ", "a whole number", "got null"],
      [{ ttlMs: 10_000, maxHoldMs: 9_999 }, "maxHoldMs: ", "from 10000 to 600000", "got 9999"],
      [{ maxHoldMs: 600_001 }, "maxHoldMs: ", "to 600000", "got 600001"],
      [{ acquireTimeoutMs: 19 }, "acquireTimeoutMs: ", "from 20", "got 19"],
      [{ ttlMs: 1_000, acquireTimeoutMs: 501 }, "acquireTimeoutMs: ", "from 20 to 500", "got 501"],
      [{ acquireTimeoutMs: 150_001 }, "acquireTimeoutMs: ", "to 150000", "got 150001"],
      [{ commandTimeoutMs: 9 }, "commandTimeoutMs: ", "from 10", "got 9"],
      [{ ttlMs: 1_000, commandTimeoutMs: 251 }, "commandTimeoutMs: ", "from 10 to 250", "got 251"],
      [{ acquireTimeoutMs: 100, commandTimeoutMs: 51 }, "commandTimeoutMs: ", "to 50", "got 51"],
      [{ commandTimeoutMs: -1 }, "commandTimeoutMs: ", "from 10", "got -1"],
      // A default that is derived from what was given is not to be blamed for it.
      [{ maxHoldMs: 50 }, "maxHoldMs: ", "from 100", "got 50"],
      [{ maxHoldMs: "x" }, "maxHoldMs: ", "a whole number", 'got "x"'],
      [{ maxHoldMs: 5_000.5 }, "maxHoldMs: ", "a whole number", "got 5000.5"],
      [{ acquireTimeoutMs: Number.NaN }, "acquireTimeoutMs: ", "a whole number", "got NaN"],
      [{ commandTimeoutMs: 3_000.1 }, "commandTimeoutMs: ", "a whole number", "got 3000.1"],
      ...["", "lock: ", "lock:\n", "lock:{a", "lock:a}", "lock:\u0000", "lock:\u007f"]
        .concat("lock:\u200b", "\ufefflock:", "lock:\ud800", `${"x".repeat(128)}:`)
        .map((keyPrefix): Row => [{ keyPrefix }, "keyPrefix: ", prefix]),
      [{ keyPrefix: 1 }, "keyPrefix: ", prefix],
      ...["shop1", "shop.", "shop-", "shop_", "shop~", "shop@", "shop%3A", "shop%", "S", ":Z"].map(
        (keyPrefix): Row => [{ keyPrefix }, "keyPrefix: ", prefixEnd, `got "${keyPrefix}"`],
      ),
      ...[7, null, "x".repeat(65), "web\n3", "web\u0085", "web\ud800"].map(
        (holder): Row => [{ holder }, "holder: ", "at most 64 characters"],
      ),
      [{ keyOf: "lock:" }, "keyOf: ", "a function", 'got "lock:"'],
      [{ keyOf: null }, "keyOf: ", "a function", "got null"],
      [{ store: undefined }, `store: expected ${storeNeeded}, got undefined`],
      [{ store: null }, `store: expected ${storeNeeded}, got null`],
      [{ store: "redis://localhost" }, storeNeeded, '"redis://localhost"'],
      [{ store: { get: () => {} } }, storeNeeded, "an object"],
      [{ store: () => {} }, storeNeeded, "a function"],
      [{ store: { acquire: 1, release: 1, attach: 1 } }, storeNeeded, "an object"],
    ],
  },
  "a RedisStore's option": {
    pass: (given) => new RedisStore(bareClient, given),
    rows: [
      ...[0, -1, 1.5, 101, Number.NaN, "1", null, true].map(
        (ackReplicas): Row => [{ ackReplicas }, "ackReplicas: ", "a whole number from 1 to 100"],
      ),
      [{ ackReplica: 1 }, "RedisStore options: ", "only ackReplicas", '"ackReplica"'],
      [1, "an object", "got 1"],
    ],
  },
  "withLock's options": {
    pass: (given) => lock.withLock("42", given, never),
    rows: [
      ...[-1, 600_001, 1.5, "1s"].map((waitMs): Row => [{ waitMs }, "waitMs"]),
      [{ wait: 5 }, "withLock options"],
      [undefined, "withLock options"],
    ],
  },
  "withLock's work": {
    pass: (given) => lock.withLock("42", {}, given),
    rows: [[{}, "work: expected a function, got an object"]],
  },
  "check's options": {
    pass: (given) => lock.check(given),
    rows: [
      [{ submissions: "yes" }, "submissions: ", "true or false", '"yes"'],
      [{ submission: true }, 'the unknown option "submission"'],
    ],
  },
  "once's options": {
    pass: (given) => lock.once("42", { id: "cart 7" }, never, given),
    rows: [
      [{ waitMs: -1 }, "waitMs: expected a whole number of milliseconds from 0"],
      [{ waitMs: 30_001 }, "to 30000, got 30001"],
      [{ waitMs: "1" }, "waitMs"],
      [{ wait: 1 }, 'the unknown option "wait"'],
      [never, "once options: expected an object, got a function"],
    ],
  },
  "once's submission": {
    pass: (given) => lock.once("42", given, never),
    rows: [
      [undefined, "submission options: expected an object, got undefined"],
      [{ id: "a", key: "b" }, 'the unknown option "key"'],
      [{ id: "a", retainMs: 0 }, "submission.retainMs"],
    ],
  },
  "lookUp's options": {
    pass: (given) => lock.lookUp("42", given),
    rows: [
      [{ ids: "a" }, "lookUp options: expected only id, submission", '"ids"'],
      [{ id: "a", submission: { id: "b" } }, "only id", 'the unknown option "submission"'],
      [undefined, "lookUp options: expected an object, got undefined"],
    ],
  },
  "once's work": {
    pass: (given) => lock.once("42", { id: "cart 7" }, given),
    rows: [[{}, "work: expected a function, got an object"]],
  },
  "free's options": {
    pass: (given: object) => lock.free("42", { ...free, ...given }),
    rows: [
      ...["", "0f8fad5", "not a number", "0".repeat(41)].map((id): Row => [{ id }, "id: "]),
      ...["", "x".repeat(65)].map((by): Row => [{ by }, "by: "]),
      ...["", "two\nlines", "x".repeat(201)].map((reason): Row => [{ reason }, "reason: "]),
      [{ now: "yes" }, "now: "],
      [{ force: true }, "free options: "],
    ],
  },
  "close's options": {
    pass: (given) => lock.close(given),
    rows: [
      ...[-1, 0.5, 600_001, Number.NaN].map((timeoutMs): Row => [{ timeoutMs }, "timeoutMs"]),
      [{ timeout: 1 }, 'unknown option "timeout"'],
    ],
  },
};

describe.each(Object.entries(places))("what is wrong in %s is refused:", (_name, place) => {
  const rows = place.rows.map(([given, ...said]) => ({ given, said, what: said.join(" … ") }));

  test.each(rows)("$what", async ({ given, said }) => {
    let error: unknown;
    try {
      await place.pass(given as never);
    } catch (thrown) {
      error = thrown;
    }
    expect(error).toMatchObject({ name: "InvalidOptionError", code: "SUBMIT_LOCK_INVALID_OPTION" });
    const { message } = error as Error;
    for (const part of ["expected", ...said]) expect(message).toContain(part);
    // What is long is not repeated, and neither is an id or a payload.
    expect(message.length).toBeLessThan(400);
    expect(message).not.toContain("secret");
  });
});

test("a long value that was refused does not fill the log", () => {
  const make = () => new SubmitLock({ store, keyPrefix: "x".repeat(10_000) });
  expect(make).toThrow(/^.{1,200}$/);
});

test("what was refused has closed nothing", async () => {
  await lock.check();
});

describe("no message shows a secret", () => {
  const url = "redis://:hunter2@10.0.0.7:6379/0";
  const places: Record<string, (secret: never) => unknown> = {
    "new RedisStore": (secret) => new RedisStore(secret),
    "its options": (secret) => new RedisStore(bareClient, secret),
    "new SubmitLock": (secret) => new SubmitLock(secret),
    store: (secret) => new SubmitLock({ store: secret }),
    "store, within a store": (secret) => new SubmitLock({ store: { url: secret } as never }),
    keyPrefix: (keyPrefix) => new SubmitLock({ store, keyPrefix }),
    seal: (seal) => new SubmitLock({ store, seal }),
    "seal.keys": (keys) => new SubmitLock({ store, seal: { keys } }),
    "one of seal.keys": (key) => new SubmitLock({ store, seal: { keys: [key] } }),
    "seal.idKey": (idKey) => new SubmitLock({ store, seal: { keys: [secret], idKey } }),
    lock: (value) => submitGuard({ lock: value, userId }),
    docs: (docs) => submitGuard({ lock, userId, idempotency: { docs } }),
  };

  test.each(Object.entries(places))("where it was passed as %s", (_name, pass) => {
    for (const secretText of [
      url,
      ":hunter2@10.0.0.7:6379",
      "redis://h?password=hunter2",
      "h:6379,password=hunter2",
    ]) {
      let message = "";
      try {
        pass(secretText as never);
      } catch (error) {
        message = (error as Error).message;
      }
      expect(message).toMatch(/expected|got/);
      expect(message).not.toContain("hunter2");
    }
  });

  test.each(["hunter2hunter2hunter2hunter2", "hunter2hunter2hunter2hunter2hunter2hunter2hu"])(
    "where a key is a text: %j",
    (key) => {
      for (const seal of [key, { keys: key }, { keys: [key] }, { keys: [secret], idKey: key }]) {
        expect(() => new SubmitLock({ store, seal: seal as never })).toThrow(/^(?!.*hunter2)/);
      }
    },
  );

  test.each([url, new URL(url)])("and a RedisStore on a URL says what to write", (given) => {
    expect(() => new RedisStore(given as never)).toThrow(
      /got a URL: write new RedisStore\(new Redis\(url\)\)$/,
    );
  });

  test("nor does the command line, where a URL is in the place of a command", () => {
    expect(() => new Arguments([url])).toThrow(/got a URL\. Try/);
    expect(() => new Arguments(["show", "42", url])).toThrow(/got a URL as well/);
  });
});
