import { Redis } from "ioredis";
import { describe, expect, test, vi } from "vitest";
import { submitGuard as expressGuard } from "../../src/express/index.ts";
import { submitGuard as fastifyGuard } from "../../src/fastify/index.ts";
import { submitGuard as fetchGuard } from "../../src/fetch/index.ts";
import type * as entry from "../../src/index.ts";
import { MemoryStore, SubmitLock } from "../../src/index.ts";
import { submitGuard as koaGuard } from "../../src/koa/index.ts";
import { invalidOption } from "./invalid-option.ts";

const lock = new SubmitLock({ store: new MemoryStore() });
const userId = () => "42";

const adapters: { name: string; submitGuard: (options: never) => unknown }[] = [
  { name: "Express", submitGuard: expressGuard },
  { name: "Koa", submitGuard: koaGuard },
  { name: "Fastify", submitGuard: fastifyGuard },
  { name: "fetch", submitGuard: fetchGuard },
];

/** Something that was passed, and how the message says so: option, expected, came. */
const wrong: [string, unknown, string[]][] = [
  ["no options", undefined, ["options", "an object", "undefined"]],
  ["null", null, ["options", "an object", "null"]],
  ["an array", [], ["options", "an object", "an array"]],
  ["a function", () => {}, ["options", "an object", "a function"]],
  ["an unknown option", { lock, userId, onConflict: () => {} }, ["lock, userId", '"onConflict"']],
  ["a misspelt option", { lock, userID: userId }, ["userId", '"userID"']],
  ["no lock", { userId }, ["lock", "a SubmitLock", "undefined"]],
  ["a store as the lock", { lock: new MemoryStore(), userId }, ["lock", "a SubmitLock", "a store"]],
  ["an empty object as the lock", { lock: {}, userId }, ["lock", "a SubmitLock", "an object"]],
  ["a string as the lock", { lock: "redis", userId }, ["lock", "a SubmitLock", '"redis"']],
  ["no userId", { lock }, ["userId", "a function", "undefined"]],
  ["a user id as userId", { lock, userId: "42" }, ["userId", "a function", '"42"']],
  ["a wrong skip", { lock, userId, skip: true }, ["skip", "a function", "true"]],
  ["a null skip", { lock, userId, skip: null }, ["skip", "a function", "null"]],
  [
    "a word for onContended",
    { lock, userId, onContended: "proceed" },
    ["onContended", "a function", '"proceed"'],
  ],
  [
    "a number for onContended",
    { lock, userId, onContended: 409 },
    ["onContended", "a function", "409"],
  ],
  [
    "a wrong word for onAnonymous",
    { lock, userId, onAnonymous: "allow" },
    ["onAnonymous", '"reject", "proceed" or a function', '"allow"'],
  ],
  [
    "null for onAnonymous",
    { lock, userId, onAnonymous: null },
    ["onAnonymous", '"reject", "proceed" or a function', "null"],
  ],
  [
    "a wrong word for onUnavailable",
    { lock, userId, onUnavailable: "open" },
    ["onUnavailable", '"reject", "proceed" or a function', '"open"'],
  ],
  [
    "true for onUnavailable",
    { lock, userId, onUnavailable: true },
    ["onUnavailable", '"reject", "proceed" or a function', "true"],
  ],
  [
    "true for idempotency",
    { lock, userId, idempotency: true },
    ["idempotency", "an object", "true"],
  ],
  [
    "an unknown option of idempotency",
    { lock, userId, idempotency: { ttlMs: 1_000 } },
    ["idempotency", "retainMs", '"ttlMs"'],
  ],
  [
    "a retention that is too short for the lock",
    { lock, userId, idempotency: { retainMs: 1_000 } },
    ["idempotency.retainMs", "from 2000", "1000"],
  ],
  [
    "a cooldown of more than a minute",
    { lock, userId, cooldownMs: 60_001 },
    ["cooldownMs", "from 0 to 60000", "60001"],
  ],
  ["a negative cooldown", { lock, userId, cooldownMs: -1 }, ["cooldownMs", "from 0", "-1"]],
  ["half a millisecond", { lock, userId, cooldownMs: 0.5 }, ["cooldownMs", "whole number", "0.5"]],
  ...["onKeyMissing", "onMismatch", "onReplay"].map((name): [string, unknown, string[]] => [
    `a word for ${name}`,
    { lock, userId, [name]: "proceed" },
    [name, "a function", '"proceed"'],
  ]),
  [
    "an object that looks like a lock",
    { lock: { acquire: () => {}, keyFor: () => "", lookUp: () => {} }, userId },
    ["a SubmitLock", "an object", "new MemoryStore()", "LockStore"],
  ],
];

test.each(wrong)("%s is refused with a message that says why", (_what, options, parts) => {
  expect(() => expressGuard(options as never)).toThrow(invalidOption(parts));
});

test("a bare client as the lock is refused", () => {
  const redis = new Redis({ lazyConnect: true });
  expect(() => expressGuard({ lock: redis, userId } as never)).toThrow(
    /lock: expected a SubmitLock/,
  );
  redis.disconnect();
});

describe.each(adapters)("on $name", ({ submitGuard }) => {
  test("a wrong option is refused", () => {
    expect(() => submitGuard({ lock, userId, skip: true } as never)).toThrow(
      invalidOption(["skip", "a function", "true"]),
    );
  });

  test("an option that is undefined is absent", () => {
    const absent = {
      idempotency: undefined,
      cooldownMs: undefined,
      onKeyMissing: undefined,
      onMismatch: undefined,
      onReplay: undefined,
      skip: undefined,
      onContended: undefined,
      onAnonymous: undefined,
      onUnavailable: undefined,
    };
    expect(() => submitGuard({ lock, userId, ...absent } as never)).not.toThrow();
  });

  test("a lock of another copy of the package is recognised by its brand", async () => {
    vi.resetModules();
    const another: typeof entry = await import("../../src/index.ts");
    expect(another.SubmitLock).not.toBe(SubmitLock);
    const foreign = new another.SubmitLock({ store: new another.MemoryStore() });
    expect(() => submitGuard({ lock: foreign, userId } as never)).not.toThrow();
  });
});

describe("guard.protect", () => {
  const guard = expressGuard({ lock, userId });

  test.each([
    ["nothing", undefined, "undefined"],
    ["a promise", Promise.resolve(), "an object"],
    ["a string", "placeOrder", '"placeOrder"'],
    [
      "an error handler",
      (_error: unknown, _req: unknown, _res: unknown, _next: unknown) => {},
      "a function",
    ],
  ])("refuses %s", (_what, handler, came) => {
    expect(() => guard.protect(handler as never)).toThrow(
      `protect: expected a request handler of up to three parameters, got ${came}`,
    );
  });

  test("refuses a guard", () => {
    expect(() => guard.protect(expressGuard({ lock, userId }))).toThrow(
      expect.objectContaining({
        code: "SUBMIT_LOCK_INVALID_OPTION",
        message:
          "protect: expected a request handler, got a guard: mount the guard itself, or write guard.protect(handler)",
      }),
    );
  });

  test("takes a handler that is protected already", () => {
    expect(guard.protect(guard.protect(async () => {}))).toBeTypeOf("function");
  });
});
