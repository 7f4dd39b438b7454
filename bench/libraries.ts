import type { Lease, RedisStoreOptions } from "submit-lock";
import { type Client, type Locker, notTaken, openPlain, ttlMs } from "./locker.ts";

/** What stands in the tables. Loaded by the process that measures it, and by no other. */
export interface Library {
  readonly name: string;
  /** What it does for one pair, for the reader of the results. */
  readonly what: string;
  readonly autoPipelining?: boolean;
  /** On a client of node-redis instead of ioredis. */
  readonly isOnNodeRedis?: boolean;
  /** The commands that it sends itself; Redis counts those within a script, too. */
  readonly sends: readonly string[];
  open(client: Client): Promise<Locker<unknown>>;
}

/** A script goes by its text to a server that has not executed it yet. */
export const scriptCalls: readonly string[] = ["eval", "evalsha"];

const plainWhat = "`SET NX PX` with a random UUID, and a compare-and-delete script by `EVALSHA`";

export const plain: Library = {
  name: "plain ioredis",
  what: plainWhat,
  sends: ["set", "evalsha"],
  open: async (client) => openPlain(client),
};

export const submitLock: Library = {
  name: "submit-lock",
  what: "few script calls for all the acquires of one turn of the event loop, and few for all its releases (up to 100 keys each); a watchdog, a deadline and a confirm for each lock",
  sends: scriptCalls,
  open: (client) => openSubmitLock(client),
};

/** Measured by a part of their own. The worker gives them a client of node-redis. */
export const nodeRedisPlain: Library = {
  ...plain,
  name: "plain node-redis",
  isOnNodeRedis: true,
  open: async (client) => (await import("./node-redis.ts")).openPlainNodeRedis(client as never),
};

export const nodeRedisSubmitLock: Library = {
  ...submitLock,
  name: "submit-lock on node-redis",
  isOnNodeRedis: true,
};

/** Measured on a server with a replica, by a part of its own. */
export const acknowledged: Library = {
  ...submitLock,
  name: "submit-lock, ackReplicas 1",
  what: "the same, each acquire confirmed by a replica",
  open: (client) => openSubmitLock(client, { ackReplicas: 1 }),
};

/** No libraries of the tables, but the limits that stand in the way. */
export const scriptsAlone: Library = {
  name: "its scripts alone",
  what: "what submit-lock sends for one lock, by `EVALSHA` and one by one, without the lock around it",
  sends: ["evalsha"],
  open: async (client) => {
    const scripts = await import("./scripts-alone.ts");
    await scripts.loadScripts(client);
    return scripts.openScriptsAlone(client);
  },
};

export const scriptsCorked: Library = {
  name: "its scripts alone, corked",
  what: "what submit-lock sends for one lock, by `EVALSHA` and without the lock around it, where all that one turn of the event loop writes to a master leaves in one piece",
  sends: ["evalsha"],
  open: async (client) => {
    const scripts = await import("./scripts-alone.ts");
    await scripts.loadScripts(client);
    return scripts.openScriptsCorked(client);
  },
};

export const redisSemaphore: Library = {
  name: "redis-semaphore",
  what: "`SET NX PX`, and compare-and-delete by `EVALSHA`; refreshes by a timer; `acquireAttemptsLimit: 1`",
  sends: ["set", "evalsha"],
  open: async (client) => (await import("../test/lab/peers/lockers.ts")).openRedisSemaphore(client),
};

export const autoPipelined: Library = {
  ...plain,
  name: "plain, auto-pipelining",
  what: `the same on a client with \`enableAutoPipelining\``,
  autoPipelining: true,
};

/** In the order of the tables. */
export const libraries: readonly Library[] = [
  plain,
  autoPipelined,
  submitLock,
  {
    name: "redlock",
    what: "a script for each acquire and each release, by `EVALSHA`; one server, `retryCount: 0`",
    sends: ["evalsha"],
    open: async (client) => (await import("../test/lab/peers/lockers.ts")).openRedlock(client),
  },
  redisSemaphore,
  {
    name: "@verrou/core",
    what: "`SET NX PX`, and compare-and-delete by `EVAL`; `acquireImmediately`",
    sends: ["set", "eval"],
    open: async (client) => (await import("../test/lab/peers/lockers.ts")).openVerrou(client),
  },
  {
    name: "redlock-universal",
    what: "`SET NX PX`, and compare-and-delete by `EVALSHA`; `createLock` for each user, `retryAttempts: 0`",
    sends: ["set", "evalsha"],
    open: async (client) =>
      (await import("../test/lab/peers/lockers.ts")).openRedlockUniversal(client),
  },
];

export const neighbours: readonly Library[] = libraries.filter(
  (library) => library !== submitLock && library !== plain && library.autoPipelining !== true,
);

async function openSubmitLock(
  client: Client,
  options: RedisStoreOptions = {},
): Promise<Locker<Lease>> {
  const { RedisStore, SubmitLock } = await import("submit-lock");
  const lock = new SubmitLock({ store: new RedisStore(client, options), ttlMs });
  return {
    async acquire(user) {
      const attempt = await lock.acquire(user);
      if (attempt.outcome !== "acquired") throw notTaken(user);
      return attempt.lease;
    },
    release: (lease) => lease.release(),
  };
}
