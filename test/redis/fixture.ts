import { RedisStore, type SubmitLock, type SubmitLockOptions } from "../../src/index.ts";

import { acquireOnceScript, acquireScript } from "../../src/stores/redis/scripts/acquire.ts";
import { completeScript } from "../../src/stores/redis/scripts/complete.ts";
import { extendScript } from "../../src/stores/redis/scripts/extend.ts";
import { cooldownScript, releaseScript } from "../../src/stores/redis/scripts/release.ts";

import {
  type AnyRedis,
  closeClients,
  ioredis6,
  type SharedOptions,
  untilReady,
} from "../support/clients.ts";

import { type KeyOnlooker, onlooker } from "../support/lock-key.ts";
import { closeLocks, openLock } from "../support/locks.ts";
import { type RedisProxy, startProxy } from "../support/proxy.ts";
import { sharedRedisPort } from "../support/redis-server.ts";

/** Bounds of a lock whose Redis falls silent in the middle of a test. */
const brisk = { ttlMs: 4_000, acquireTimeoutMs: 1_500, commandTimeoutMs: 100 } as const;

/** A lock on a Redis behind a proxy that loses, delays and breaks things. */
export interface Bench {
  readonly proxy: RedisProxy;
  readonly client: AnyRedis;
  readonly store: RedisStore;
  readonly lock: SubmitLock;
  /** Sees Redis directly. */
  readonly redis: KeyOnlooker;
}

const benches = new Set<RedisProxy>();

export interface BenchOptions extends Partial<SubmitLockOptions> {
  readonly connect?: (port: number, options?: SharedOptions) => AnyRedis;
  readonly clientOptions?: SharedOptions;
  /** A server of the test's own instead of the one that all share. */
  readonly port?: number;
}

export async function openBench(options: BenchOptions = {}): Promise<Bench> {
  const { connect = ioredis6.connect, port = sharedRedisPort(), ...others } = options;
  const { clientOptions, ...lockOptions } = others;
  const proxy = await startProxy(port);
  benches.add(proxy);
  const client = connect(proxy.port, clientOptions);
  await untilReady(client);
  const store = new RedisStore(client);
  const lock = openLock({ store, ...brisk, ...lockOptions });
  return { proxy, client, store, lock, redis: onlooker(port) };
}

/** A lock without the proxy: that lives in this process, and would stand still with it. */
export async function openDirect(
  options: Partial<SubmitLockOptions>,
  connect: BenchOptions["connect"] = ioredis6.connect,
): Promise<SubmitLock> {
  const client = connect(sharedRedisPort());
  await untilReady(client);
  return openLock({ store: new RedisStore(client), ...options });
}

/** Meant for `afterEach`. */
export async function closeBenches(): Promise<void> {
  // Not awaited: it would wait until every copy that a test has lost on the way is out of date.
  void closeLocks();
  closeClients();
  await Promise.all([...benches].map((proxy) => proxy.stop()));
  benches.clear();
}

const calls = (...scripts: string[]): ((argv: string[]) => boolean) => {
  return ([name, script]) => name === "eval" && script !== undefined && scripts.includes(script);
};

export const isAcquire: (argv: string[]) => boolean = calls(acquireScript, acquireOnceScript);
export const isExtend: (argv: string[]) => boolean = calls(extendScript);
export const isRelease: (argv: string[]) => boolean = calls(releaseScript, cooldownScript);
export const isComplete: (argv: string[]) => boolean = calls(completeScript);

/** The owner ids of a call that acquires without submissions. */
export const ownersOf = (acquire: string[]): string[] => acquire.slice(-Number(acquire[2]));

/** How often a Redis has executed a command since it was started. */
export async function executed(redis: KeyOnlooker, name: string): Promise<number> {
  const info = String(await redis.send("INFO", "commandstats"));
  return Number(new RegExp(`cmdstat_${name}:calls=(\\d+)`).exec(info)?.[1] ?? 0);
}

/** The event loop stands still, as in a garbage collection or a large JSON.parse. */
export function block(ms: number): void {
  const end = performance.now() + ms;
  while (performance.now() < end);
}
