import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { RedisStore, SubmitLock } from "submit-lock";
import { answerOf } from "./record-memory.ts";
import { costBetween, Observer } from "./server-stats.ts";
import { medianOf } from "./statistics.ts";

/** How orders come to Redis. */
export interface Way {
  /** One word, and what it stands for. */
  readonly name: string;
  readonly connections: number;
  /** How many orders each connection has under way; without it they come at random times. */
  readonly callers?: number;
  readonly perSecond?: number;
  readonly seconds: number;
}

export const ways: readonly Way[] = [
  {
    name: "apart: 1 000 a second over 64 connections",
    connections: 64,
    perSecond: 1_000,
    seconds: 2,
  },
  { name: "busy: 64 connections, one at a time each", connections: 64, callers: 1, seconds: 1.5 },
  // Short: what is kept of each takes memory until the end.
  { name: "gathered: 1 connection, 256 at a time", connections: 1, callers: 256, seconds: 0.5 },
];

export const kinds = ["lock", "once"] as const;
export type Kind = (typeof kinds)[number];

/** What one order takes of Redis: its acquire, and its release or its record. */
export interface OrderCost {
  readonly calls: number;
  readonly processorMicros: number;
  readonly bytesIn: number;
  readonly bytesOut: number;
  readonly replicaBytes: number;
}

/** The length of the answer that is kept of an order with "once". */
export const answerBytes = 1_024;

type Order = (lock: SubmitLock, user: number) => Promise<void>;

const orders: Record<Kind, Order> = {
  async lock(lock, user) {
    const attempt = await lock.acquire(user);
    if (attempt.outcome !== "acquired") throw new Error(`the lock was ${attempt.outcome}`);
    await attempt.lease.release();
  },
  async once(lock, user) {
    // So short that what is kept expires while the next orders come, as in a shop that has run for a day.
    const submission = { id: `cart-${user}:3`, fingerprint: "of the cart", retainMs: 2_000 };
    const attempt = await lock.acquire(user, { submission });
    if (attempt.outcome !== "acquired") throw new Error(`the submission was ${attempt.outcome}`);
    await attempt.lease.complete({ status: 201, headers, body });
  },
};

const body = answerOf(answerBytes);
const headers = {
  "content-type": "application/json; charset=utf-8",
  location: "/orders/10000000",
  etag: 'W/"MTIzNDU2Nzg5MDEy"',
};

/** The median of so many rounds, on a server that has a replica. */
export async function measureOrder(
  port: number,
  kind: Kind,
  way: Way,
  rounds: number,
): Promise<OrderCost> {
  const clients = Array.from({ length: way.connections }, () => new Redis(port, "127.0.0.1"));
  const locks = clients.map((client) => openLock(client));
  const observer = new Observer(port);
  await Promise.all(locks.map((lock) => lock.check()));
  await place(locks, kind, { ...way, seconds: 0.3 });
  const measured: OrderCost[] = [];
  for (let round = 0; round < rounds; round++) {
    const before = await observer.stats();
    const placed = await place(locks, kind, way);
    const after = await observer.stats();
    const { commands, cpuMicros } = costBetween(before, after, ["eval", "evalsha"]);
    measured.push({
      calls: commands / placed,
      processorMicros: cpuMicros / placed,
      bytesIn: (after.bytesIn - before.bytesIn) / placed,
      bytesOut: (after.bytesOut - before.bytesOut) / placed,
      replicaBytes: (after.replicaBytes - before.replicaBytes) / placed,
    });
    await observer.redis.flushall();
  }
  await Promise.all(locks.map((lock) => lock.close()));
  observer.close();
  for (const client of clients) client.disconnect();
  const median = (name: keyof OrderCost) => medianOf(measured.map((each) => each[name]));
  return {
    calls: median("calls"),
    processorMicros: median("processorMicros"),
    bytesIn: median("bytesIn"),
    bytesOut: median("bytesOut"),
    replicaBytes: median("replicaBytes"),
  };
}

/** Its holder is no name of this machine, which is written with each lock. */
function openLock(redis: Redis, ttlMs = 10_000): SubmitLock {
  return new SubmitLock({ store: new RedisStore(redis), ttlMs, holder: "web-3:4711" });
}

let users = 10_000_000;

/** @returns how many orders were placed. */
async function place(locks: readonly SubmitLock[], kind: Kind, way: Way): Promise<number> {
  const order = orders[kind];
  const from = performance.now();
  const end = from + way.seconds * 1_000;
  let placed = 0;
  const one = (lock: SubmitLock) => order(lock, users++).then(() => void placed++);
  const { perSecond } = way;
  if (perSecond === undefined) {
    const caller = async (lock: SubmitLock): Promise<void> => {
      while (performance.now() < end) await one(lock);
    };
    const callers = Array.from({ length: way.callers ?? 1 }, () => locks.map(caller));
    await Promise.all(callers.flat());
    return placed;
  }
  const underWay: Promise<void>[] = [];
  let dueAt = from;
  for (let now = from; now < end; now = performance.now()) {
    for (; dueAt <= now; dueAt += (-Math.log(1 - Math.random()) / perSecond) * 1_000) {
      underWay.push(one(locks[underWay.length % locks.length] as SubmitLock));
    }
    await sleep(1);
  }
  await Promise.all(underWay);
  return placed;
}

/** What a lock takes in Redis while its order is under way. */
export interface LockMemory {
  /** `MEMORY USAGE` of one. */
  readonly usage: number;
  /** What Redis' memory has grown by, for each: also its tables. */
  readonly grown: number;
}

export async function measureLocks(port: number): Promise<LockMemory> {
  const count = 20_000;
  const redis = new Redis(port, "127.0.0.1");
  const lock = openLock(redis, 60_000);
  const observer = new Observer(port);
  await lock.check();
  await redis.flushall();
  const before = (await observer.stats()).usedMemory;
  for (let taken = 0; taken < count; taken += 500) {
    await Promise.all(Array.from({ length: 500 }, () => lock.acquire(users++)));
  }
  const grown = Math.round(((await observer.stats()).usedMemory - before) / count);
  const usage = Number(await redis.memory("USAGE", lock.keyFor(users - 1)));
  await redis.flushall();
  await lock.close({ timeoutMs: 0 });
  observer.close();
  redis.disconnect();
  return { usage, grown };
}
