import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { RedisStore, SubmitLock } from "../../src/index.ts";
import { all } from "./frameworks.ts";
import { listen } from "./http-client.ts";
import type { Turn } from "./turn.ts";

/** What a shop in a process of its own tells its parent. */
export type FromShop =
  | { readonly port: number }
  /** `running`: how many orders of this user run now, this one included. */
  | { readonly started: string; readonly running: number }
  /** How many repeats wait, for a parent that has asked. */
  | { readonly waiting: number };

export type ToShop =
  /** The order that may come to its end. */
  { readonly finish: string } | { readonly asks: "waiting" };

/**
 * A server process of its own: `shop-process.ts FRAMEWORK REDIS_PORT [TTL_MS]`. An order runs until
 * the parent lets it finish, or for as long as its header `X-Work-Ms` says, and is answered 201 or `X-Answer`; with `X-Ends: exit` or
 * `abort`, its process ends right behind its answer. That no two orders of one
 * user run at a time, in whichever process, is counted in Redis itself.
 */
const [name, redisPort, ttlMs = 60_000] = process.argv.slice(2);
const framework = all.find((each) => each.name === name);
if (framework === undefined) throw new Error(`There is no framework ${name}.`);

const tell = (message: FromShop) => void process.send?.(message);
const finished = new Set<string>();
const waiting = new Map<string, () => void>();

/** Resolves when the parent has said that this order may finish, before or after it began. */
function mayFinish(order: string): Promise<void> {
  if (finished.has(order)) return Promise.resolve();
  return new Promise((resolve) => waiting.set(order, resolve));
}

process.on("message", (message: ToShop) => {
  if ("asks" in message) return tell({ waiting: lock.stats().waiting });
  const { finish } = message;
  finished.add(finish);
  waiting.get(finish)?.();
  waiting.delete(finish);
});
// Nobody is there any more who would end it.
process.once("disconnect", () => process.exit());

const redis = new Redis(Number(redisPort), "127.0.0.1");
const counter = new Redis(Number(redisPort), "127.0.0.1");

async function handler(turn: Turn): Promise<void> {
  const order = String(turn.req.headers["x-order"]);
  const till = `till:${turn.req.headers["x-user"]}`;
  const running = await counter.incr(till);
  tell({ started: order, running });
  const ends = turn.req.headers["x-ends"];
  if (ends !== undefined) {
    turn.byHand().end("placed".repeat(1_000));
    if (ends === "abort") process.abort();
    process.exit();
  }
  const workMs = turn.req.headers["x-work-ms"];
  await (workMs === undefined ? mayFinish(order) : sleep(Number(workMs)));
  await counter.decr(till);
  // No two runs have the same receipt.
  turn.answer(Number(turn.req.headers["x-answer"] ?? 201), { order, receipt: randomUUID() });
}

// So long that a busy machine is not taken for a silent Redis.
const lock = new SubmitLock({
  store: new RedisStore(redis),
  ttlMs: Number(ttlMs),
  acquireTimeoutMs: Number(ttlMs) / 2,
  commandTimeoutMs: Number(ttlMs) / 4,
});
const server = framework.makeServer({
  lock,
  guard: { idempotency: {} },
  handler,
});
// Else a client may write to a connection in the moment that it is closed.
if ("keepAliveTimeout" in server) server.keepAliveTimeout = 120_000;
tell({ port: await listen(server) });
