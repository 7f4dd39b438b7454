import { createServer, type Server } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import express5, { type RequestHandler } from "express";
import express4 from "express4";
import { afterEach, beforeEach, describe, expect, type MockInstance, test, vi } from "vitest";
import type * as expressEntry from "../../src/express/index.ts";
import type * as coreEntry from "../../src/index.ts";
import { until } from "../support/until.ts";
import { type HttpClient, listen, openClient } from "./http-client.ts";
import { canAcquire, endless } from "./shop.ts";

/** Short enough to wait for, long enough for a busy machine. */
const times = { ttlMs: 800, maxHoldMs: 800 };

let given: MockInstance<typeof process.emitWarning>;
let server: Server | undefined;
let client: HttpClient | undefined;
beforeEach(() => {
  given = vi.spyOn(process, "emitWarning").mockImplementation(() => {});
});
afterEach(() => {
  given.mockRestore();
  client?.close();
  server?.closeAllConnections();
  server?.close();
});

/** A shop on a copy of the package that has not warned yet. */
async function freshShop(
  lib: typeof express5,
  handlersOf: (guard: expressEntry.SubmitGuard) => RequestHandler[],
) {
  vi.resetModules();
  const { submitGuard }: typeof expressEntry = await import("../../src/express/index.ts");
  const { MemoryStore, SubmitLock }: typeof coreEntry = await import("../../src/index.ts");
  const lock = new SubmitLock({ store: new MemoryStore(), ...times });
  const app = lib();
  app.post("/orders", ...handlersOf(submitGuard({ lock, userId: () => "42" })));
  server = createServer(app);
  client = openClient(1, await listen(server));
  const submit = client.call;
  const isFree = () => canAcquire(lock, "42");
  const isFreeAgain = () => until(isFree, { what: "the lock to be free" });
  return { lock, submit, isFree, isFreeAgain };
}

const streaming = (guard: expressEntry.SubmitGuard): RequestHandler[] => [
  guard.protect((_req, res) => void endless().pipe(res)),
];

describe.each([
  { name: "Express 4", lib: express4 },
  { name: "Express 5", lib: express5 },
])("$name", ({ lib }) => {
  test("a handler without a promise that streams to a client who leaves is warned of once", async () => {
    const { submit, isFree, isFreeAgain } = await freshShop(lib, streaming);
    for (let i = 0; i < 2; i++) {
      const call = submit({});
      await call.begun;
      call.abort();
      expect(await isFree()).toBe(false);
      await isFreeAgain();
    }
    expect(given.mock.calls).toEqual([
      [
        expect.stringMatching(/guard\.protect\(\).*async.*await pipeline\(source, res\)/),
        { type: "SubmitLockWarning", code: "SUBMIT_LOCK_UNSEEN_HANDLER" },
      ],
    ]);
  });
});

describe("on Express 5", () => {
  test.each<[string, (guard: expressEntry.SubmitGuard) => RequestHandler[]]>([
    ["an async handler", (guard) => [guard.protect(async (_req, res) => void endless().pipe(res))]],
    [
      "a handler that ends its response later",
      (guard) => [
        guard.protect((_req, res) => {
          res.write("the first part");
          res.once("close", () => setTimeout(() => res.end(), 20));
        }),
      ],
    ],
    [
      "a handler that passes on to one that streams",
      (guard) => [
        guard.protect((_req, _res, next) => next()),
        (_req, res) => void endless().pipe(res),
      ],
    ],
    ["a plain guard", (guard) => [guard, (_req, res) => void endless().pipe(res)]],
  ])("%s whose client leaves is not warned of", async (_what, handlersOf) => {
    const { submit, isFreeAgain } = await freshShop(express5, handlersOf);
    const call = submit({});
    await call.begun;
    call.abort();
    await isFreeAgain();
    expect(given.mock.calls).toEqual([]);
  });

  test("a handler without a promise whose client stays to the end is not warned of", async () => {
    const { submit, isFreeAgain } = await freshShop(express5, streaming);
    await submit({}).begun;
    await isFreeAgain();
    expect(given.mock.calls).toEqual([]);
  });

  test("a lease that is lost for another reason than maxHoldMs is not warned of", async () => {
    const { lock, submit } = await freshShop(express5, streaming);
    const call = submit({});
    await call.begun;
    call.abort();
    // Time for the server to see that the client has left.
    await sleep(30);
    await lock.close({ timeoutMs: 0 });
    await sleep(times.maxHoldMs);
    expect(given.mock.calls).toEqual([]);
  });
});
