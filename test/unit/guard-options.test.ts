import { describe, expect, test, vi } from "vitest";
import { submitGuard as expressGuard } from "../../src/express/index.ts";
import { submitGuard as fastifyGuard } from "../../src/fastify/index.ts";
import { submitGuard as fetchGuard } from "../../src/fetch/index.ts";
import type * as entry from "../../src/index.ts";
import { MemoryStore, SubmitLock } from "../../src/index.ts";
import { submitGuard as koaGuard } from "../../src/koa/index.ts";

const lock = new SubmitLock({ store: new MemoryStore() });
const userId = () => "42";

const adapters: { name: string; submitGuard: (options: never) => unknown }[] = [
  { name: "Express", submitGuard: expressGuard },
  { name: "Koa", submitGuard: koaGuard },
  { name: "Fastify", submitGuard: fastifyGuard },
  { name: "fetch", submitGuard: fetchGuard },
];

describe.each(adapters)("on $name", ({ submitGuard }) => {
  test("a wrong option is refused", () => {
    const refused = /^skip: expected a function, got true$/;
    expect(() => submitGuard({ lock, userId, skip: true } as never)).toThrow(refused);
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
