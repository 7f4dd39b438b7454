import { setTimeout as sleep } from "node:timers/promises";
import { LockFactory } from "@verrou/core";
import { redisStore } from "@verrou/core/drivers/redis";
import { Mutex } from "redis-semaphore";
import Redlock, { ExecutionError, type Lock, ResourceLockedError } from "redlock";
import { createLock, IoredisAdapter } from "redlock-universal";
import type { AnyRedis } from "../../support/clients.ts";
import { setAndCompare, setAndDel, submitLock } from "../faults/libraries.ts";
import { type Contender, type Hold, type Library, ttlMs } from "../faults/library.ts";

type Acquire = Contender["acquire"];
type Open = (client: AnyRedis, isOneTry: boolean) => Pick<Contender, "acquire" | "warm">;

/** "One try" is what a click needs; "defaults" is what their documentation shows. */
function twice(name: string, keyOf: Library["keyOf"], open: Open): Library[] {
  const opened = (isOneTry: boolean) => (client: AnyRedis) => ({
    ...open(client, isOneTry),
    close: async () => {},
  });
  const openRival = opened(true);
  return [
    { name: `${name}, one try`, extends: true, keyOf, open: openRival },
    { name: `${name}, defaults`, extends: true, keyOf, open: opened(false), openRival },
  ];
}

const lockKey = (user: string): string => `lock:${user}`;

function openRedlock(client: AnyRedis, isOneTry: boolean): { acquire: Acquire } {
  const redlock = new Redlock([client], isOneTry ? { retryCount: 0 } : {});
  // Without a listener an error of a background try ends the process.
  redlock.on("error", () => {});
  return {
    async acquire(user) {
      try {
        const lock = await redlock.acquire([lockKey(user)], ttlMs);
        return { outcome: "acquired", hold: redlockHold(lock) };
      } catch (error) {
        return { outcome: (await isRedlockContended(error)) ? "contended" : "error" };
      }
    },
  };
}

function redlockHold(first: Lock): Hold {
  let lock = first;
  return {
    ownerId: lock.value,
    async extend() {
      lock = await lock.extend(ttlMs);
    },
    async release() {
      await lock.release();
      return "released";
    },
  };
}

/** One error covers both an outage and a rival; the votes of its last attempt tell which. */
async function isRedlockContended(error: unknown): Promise<boolean> {
  if (!(error instanceof ExecutionError)) return false;
  const votes = [...((await error.attempts.at(-1))?.votesAgainst.values() ?? [])];
  return votes.length > 0 && votes.every((vote) => vote instanceof ResourceLockedError);
}

const openRedisSemaphore: Open = (client, isOneTry) => ({
  async acquire(user) {
    const lost = new AbortController();
    const mutex = new Mutex(client, user, {
      ...(isOneTry && { acquireAttemptsLimit: 1 }),
      lockTimeout: ttlMs,
      // The default throws inside a timer, which ends the process.
      onLockLost: (error: Error) => lost.abort(error),
    });
    if (!(await mutex.tryAcquire())) return { outcome: "contended" };
    const hold = {
      ownerId: mutex.identifier,
      // It extends by itself, at four fifths of the lock's life.
      signal: lost.signal,
      async release() {
        await mutex.release();
        return "released";
      },
    };
    return { outcome: "acquired", hold };
  },
  async warm(user) {
    const onLockLost = (): void => {};
    const mutex = new Mutex(client, user, { lockTimeout: ttlMs, refreshInterval: 10, onLockLost });
    if (!(await mutex.tryAcquire())) return;
    await sleep(40);
    await mutex.release();
  },
});

function openVerrou(client: AnyRedis, isOneTry: boolean): { acquire: Acquire } {
  const factory = new LockFactory(redisStore({ connection: client }).factory());
  return {
    async acquire(user) {
      const lock = factory.createLock(lockKey(user), ttlMs);
      const isAcquired = isOneTry ? await lock.acquireImmediately() : await lock.acquire();
      if (!isAcquired) return { outcome: "contended" };
      const hold = {
        ownerId: lock.getOwner(),
        extend: () => lock.extend(ttlMs),
        async release() {
          await lock.release();
          return "released";
        },
      };
      return { outcome: "acquired", hold };
    },
  };
}

function openRedlockUniversal(client: AnyRedis, isOneTry: boolean): { acquire: Acquire } {
  const options = { adapter: new IoredisAdapter(client), ...(isOneTry && { retryAttempts: 0 }) };
  return {
    async acquire(user) {
      const lock = createLock({ ...options, key: lockKey(user), ttl: ttlMs });
      try {
        const handle = await lock.acquire();
        const hold = {
          ownerId: handle.value,
          async extend() {
            if (!(await lock.extend(handle, ttlMs))) throw new Error("not extended");
          },
          release: async () => ((await lock.release(handle)) ? "released" : "gone"),
        };
        return { outcome: "acquired", hold };
      } catch (error) {
        // One error covers both an outage and a rival; its cause tells which.
        const isContended =
          error instanceof Error && /held|locked|exists/i.test(String(error.cause));
        return { outcome: isContended ? "contended" : "error" };
      }
    },
  };
}

/** In the order of the table. */
export const neighbours: Library[] = [
  submitLock,
  setAndDel,
  setAndCompare,
  ...twice("redlock", lockKey, openRedlock),
  ...twice("redis-semaphore", (user) => `mutex:${user}`, openRedisSemaphore),
  ...twice("@verrou/core", lockKey, openVerrou),
  ...twice("redlock-universal", lockKey, openRedlockUniversal),
];
