import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";
import { createContext, runInContext } from "node:vm";
import { build } from "esbuild";
import express from "express";
import fastify from "fastify";
import Koa from "koa";
import supertest from "supertest";
import { afterAll, describe, expect, test } from "vitest";
import { ROOT } from "../docs/page.ts";
import { closeClients, ioredis6, redisClients } from "../support/clients.ts";
import { freePort } from "../support/free-port.ts";
import { freshUser } from "../support/ids.ts";
import { observer } from "../support/observer.ts";
import { forTest, startRedis } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { inSources } from "../unit/docs/sources.ts";

interface Package {
  readonly core: typeof import("../../src/index.ts");
  readonly express: typeof import("../../src/express/index.ts");
  readonly fastify: typeof import("../../src/fastify/index.ts");
  readonly koa: typeof import("../../src/koa/index.ts");
}

/**
 * The package in a realm of its own, as Jest loads it for each file: to its global `Error`, the errors
 * of Node are of no kind, nor are those of a client that was made outside.
 */
async function inOwnRealm(): Promise<Package> {
  const { outputFiles } = await build({
    stdin: {
      contents: `export * as core from "./src/index.ts";
export * as express from "./src/express/index.ts";
export * as fastify from "./src/fastify/index.ts";
export * as koa from "./src/koa/index.ts";`,
      resolveDir: ROOT,
      loader: "ts",
    },
    bundle: true,
    write: false,
    packages: "external",
    platform: "node",
    format: "cjs",
  });
  const context = createContext();
  for (const name of Object.getOwnPropertyNames(globalThis)) {
    context[name] ??= runInContext(`globalThis.${name}`, context) ?? globalThis[name as never];
  }
  const load = runInContext(`(function (module, require) {${outputFiles[0]?.text}\n})`, context);
  const module = { exports: {} };
  load(module, createRequire(import.meta.url));
  return module.exports as Package;
}

const inside = await inOwnRealm();
const { MemoryStore, RedisStore, SubmitLock, problemOf } = inside.core;

afterAll(closeClients);

/** Rejects with Node's own `AbortError`, which the signal's reason has caused. */
const work = (signal?: AbortSignal) => sleep(60_000, undefined, signal && { signal });

const options = () => ({
  lock: new SubmitLock({ store: new MemoryStore() }),
  userId: () => "42",
});
type Options = ReturnType<typeof options>;

const shops: [
  name: string,
  open: (options: Options) => Promise<ReturnType<typeof supertest.agent>>,
][] = [
  [
    "Express",
    async (options) => {
      const guard = inside.express.submitGuard(options);
      const place = guard.protect((req) => work(req.submitLease?.signal));
      return supertest.agent(express().post("/orders", place));
    },
  ],
  [
    "Fastify",
    async (options) => {
      const guard = inside.fastify.submitGuard(options);
      const app = fastify();
      app.post(
        "/orders",
        guard.protect((req) => work(req.submitLease?.signal)),
      );
      await app.ready();
      return supertest.agent(app.server);
    },
  ],
  [
    "Koa",
    async (options) => {
      const app = new Koa();
      app.silent = true;
      app.use(inside.koa.submitGuard(options));
      app.use((ctx) => work(ctx.state["submitLease"].signal));
      return supertest.agent(app.callback());
    },
  ],
];

/** The lock is closed when it is held, so its lease is lost. */
async function lose({ lock }: Options): Promise<void> {
  await until(() => lock.stats().held > 0, { what: "the order to begin" });
  await lock.close({ timeoutMs: 0 });
}

describe("in a realm of its own", () => {
  test.each(shops)("a lost lease is a 503 on %s, with its code", async (_name, open) => {
    const ours = options();
    const shop = await open(ours);
    const [answer] = await Promise.all([shop.post("/orders"), lose(ours)]);
    expect([answer.status, answer.headers["submit-lock-code"]]).toEqual([503, "submit_lock_lost"]);
  });

  test("a lost lease is found in an error of Node", async () => {
    const ours = options();
    const order = ours.lock.withLock("42", ({ signal }) => work(signal)).catch((error) => error);
    await lose(ours);
    const error = await order;
    expect([error.name, problemOf(error)?.status]).toEqual(["AbortError", 503]);
  });

  test.each(redisClients)(
    "scripts that $name's server has forgotten are sent again",
    async (kind) => {
      const server = await forTest(startRedis());
      const lock = new SubmitLock({ store: new RedisStore(kind.connect(server.port)) });
      const { send } = observer(server.port);
      await lock.check();
      for (let flushes = 0; flushes < 3; flushes++) {
        await send("SCRIPT", "FLUSH");
        const attempt = await lock.acquire(freshUser());
        expect(attempt.outcome).toBe("acquired");
      }
      await lock.close({ timeoutMs: 0 });
    },
  );

  test("what Node says of an unreachable Redis is passed on", async () => {
    const client = ioredis6.connect(await freePort());
    const lock = new SubmitLock({ store: new RedisStore(client), acquireTimeoutMs: 300 });
    const error = await lock.check().catch((reason) => reason);
    expect(error.cause).toMatchObject({ code: "ECONNREFUSED" });
    expect(error.cause.message).toMatch(/^connect ECONNREFUSED/);
    await lock.close({ timeoutMs: 0 });
  });

  test("one function alone asks for the global Error", () => {
    const asking = /^.*instanceof (?:Aggregate)?Error\b.*$/gm;
    expect(inSources(asking)).toEqual([expect.stringContaining("types.isNativeError")]);
  });
});
