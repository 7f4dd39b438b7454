import { onTestFinished } from "vitest";
import {
  RedisStore,
  type RedisStoreOptions,
  type SubmitLock,
  type SubmitLockChannels,
  type SubmitLockOptions,
} from "../../src/index.ts";
import { portOf } from "../../src/stores/redis/clients/port-of.ts";
import {
  acquireOnceScript,
  acquireScript,
  lookUpScript,
} from "../../src/stores/redis/commands/acquire.ts";
import { completeScript } from "../../src/stores/redis/commands/complete.ts";
import { freeScript, inspectScript } from "../../src/stores/redis/commands/on-call.ts";
import { extendScript, releaseScript } from "../../src/stores/redis/commands/release.ts";
import { ConnectionPair } from "../../src/stores/redis/connection-pair.ts";
import { record } from "../support/channels.ts";
import {
  type AnyRedis,
  closeClients,
  ioredis6,
  type SharedOptions,
  untilReady,
} from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { acquired, closeLocks, leaseOf, openLock } from "../support/locks.ts";
import { type KeyObserver, observer } from "../support/observer.ts";
import { type RedisProxy, startProxy } from "../support/proxy.ts";
import { Pulse } from "../support/pulse.ts";
import { forTest, sharedRedisPort } from "../support/redis-server.ts";
import { submissionOf } from "../support/submissions.ts";
import { until } from "../support/until.ts";

/** Bounds of a lock whose Redis falls silent in the middle of a test. */
const brisk = { ttlMs: 4_000, acquireTimeoutMs: 1_500, commandTimeoutMs: 100 } as const;

/** Bounds that a busy machine keeps, for a test that counts requests: nothing waits for them. */
export const patient = {
  ttlMs: 40_000,
  acquireTimeoutMs: 20_000,
  commandTimeoutMs: 10_000,
} as const;

/** A lock on a Redis behind a proxy that loses, delays and breaks things. */
export interface Fixture {
  readonly proxy: RedisProxy;
  readonly client: AnyRedis;
  readonly store: RedisStore;
  readonly lock: SubmitLock;
  /** Sees Redis directly. */
  readonly redis: KeyObserver;
}

export interface FixtureOptions extends Partial<SubmitLockOptions> {
  readonly connect?: (port: number, options?: SharedOptions) => AnyRedis;
  readonly clientOptions?: SharedOptions;
  readonly storeOptions?: RedisStoreOptions;
  /** A server of the test's own instead of the one that all share. */
  readonly port?: number;
}

export async function openFixture(options: FixtureOptions = {}): Promise<Fixture> {
  const { connect = ioredis6.connect, port = sharedRedisPort(), ...others } = options;
  const { clientOptions, storeOptions, ...lockOptions } = others;
  const proxy = await forTest(startProxy(port));
  const client = connect(proxy.port, clientOptions);
  await untilReady(client);
  const store = new RedisStore(client, storeOptions);
  const lock = openLock({ store, ...brisk, ...lockOptions });
  await untilUsable(client);
  return { proxy, client, store, lock, redis: observer(port) };
}

/** A user whose lock is held. */
export async function openHeld(options: FixtureOptions = {}) {
  const fixture = await openFixture(options);
  const user = freshUser();
  return { ...fixture, user, lease: await leaseOf(fixture.lock, user) };
}

/** A user whose order with an id is at work. */
export async function openOrder(options: FixtureOptions = {}) {
  const fixture = await openFixture(options);
  const user = freshUser();
  return { ...fixture, user, lease: await submissionOf(fixture.lock, user) };
}

/** A user whose lock was acquired by a confirm, with the first copy held on its way to Redis. */
export async function openWithHeldCopy(options: FixtureOptions = {}) {
  const fixture = await openFixture(options);
  const user = freshUser();
  const retirements = record("submit-lock:retire", fixture.lock.keyFor(user));
  const held = fixture.proxy.holdRequestOnce(isAcquire);
  const { lease } = acquired(await fixture.lock.acquire(user));
  await held;
  return { ...fixture, user, lease, retired: () => outcomeOf(retirements), retirements };
}

/** Waits until an owner id has been given up, and says how. */
export async function outcomeOf(
  retirements: readonly SubmitLockChannels["submit-lock:retire"][],
): Promise<string> {
  await until(() => retirements.length > 0, { what: "the owner id to be retired" });
  return retirements.map(({ outcome }) => outcome).join();
}

/** Resolves when a lock on the client has a connection: that of node-redis is asked for its database first. */
export async function untilUsable(client: AnyRedis): Promise<void> {
  await untilReady(client);
  const pair = ConnectionPair.of(portOf(client));
  if ("isOpen" in client) await until(() => pair.pick(0, "", 1_000), { what: "its database" });
}

/** Rule 24: resolves when the locks of several users share a call. */
export async function untilShared({ lock, proxy }: Fixture): Promise<void> {
  const isShared = async () => {
    const leases = await Promise.all([1, 2].map(() => leaseOf(lock, freshUser())));
    await Promise.all(leases.map((lease) => lease.release()));
    return proxy.commands.some((argv) => isAcquire(argv) && argv[2] === "2");
  };
  await until(isShared, { what: "calls to be shared" });
}

/** A lock without the proxy: that lives in this process, and would stand still with it. */
export async function openDirect(
  options: Partial<SubmitLockOptions>,
  connect: FixtureOptions["connect"] = ioredis6.connect,
): Promise<SubmitLock> {
  const client = connect(sharedRedisPort());
  await untilReady(client);
  return openLock({ store: new RedisStore(client), ...options });
}

/** How late the machine is from now on, for a test that has a bound. */
export async function takePulse(): Promise<Pulse> {
  const pulse = await Pulse.of(sharedRedisPort());
  onTestFinished(() => pulse.stop());
  return pulse;
}

/** Meant for `afterEach`. */
export function closeFixtures(): void {
  // Not awaited: it would wait until every copy that a test has lost on the way is out of date.
  void closeLocks();
  closeClients();
}

const calls = (...scripts: string[]): ((argv: string[]) => boolean) => {
  return ([name, script]) => name === "eval" && script !== undefined && scripts.includes(script);
};

export const isAcquire: (argv: string[]) => boolean = calls(acquireScript, acquireOnceScript);
export const isLookUp: (argv: string[]) => boolean = calls(lookUpScript);
export const isExtend: (argv: string[]) => boolean = calls(extendScript);
export const isRelease: (argv: string[]) => boolean = calls(releaseScript);
export const isComplete: (argv: string[]) => boolean = calls(completeScript);
export const isFree: (argv: string[]) => boolean = calls(freeScript);
export const isInspect: (argv: string[]) => boolean = calls(inspectScript);

/** The owner ids of a call that acquires without submissions. */
export const ownersOf = (acquire: string[]): string[] => acquire.slice(-Number(acquire[2]));

/** How often a Redis has executed a command since it was started. */
export async function executed(redis: KeyObserver, name: string): Promise<number> {
  const info = String(await redis.send("INFO", "commandstats"));
  return Number(new RegExp(`cmdstat_${name}:calls=(\\d+)`).exec(info)?.[1] ?? 0);
}

/** The same for scripts, called by their text or by their digest. */
export async function executedScripts(redis: KeyObserver): Promise<number> {
  return (await executed(redis, "eval")) + (await executed(redis, "evalsha"));
}

/** The event loop stands still, as in a garbage collection or a large JSON.parse. */
export function block(ms: number): void {
  const asleep = new Int32Array(new SharedArrayBuffer(4));
  const end = performance.now() + ms;
  for (let left = ms; left > 0; left = end - performance.now()) Atomics.wait(asleep, 0, 0, left);
}
