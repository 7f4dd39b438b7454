import { once as onceEmitted } from "node:events";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { Cluster, Redis } from "ioredis";
import { SubmitLock } from "../lock/submit-lock.ts";
import { addressOf } from "../stores/redis/ioredis.ts";
import { RedisStore } from "../stores/redis/redis-store.ts";
import { hasMembers } from "../validation.ts";
import { within } from "../within.ts";
import type { Arguments } from "./arguments.ts";
import { NoAnswerError, toCliError, UsageError } from "./failure.ts";
import { type Target, type TargetOptions, targetOf } from "./target.ts";

/** How long Redis may take to answer, the connecting included where there is any. */
const answerWithinMs = 2_000;

const defaultPrefix = "lock:submit:";

export type Client = Redis | Cluster;

/** A lock as the commands use it. */
export type LockFace = Pick<SubmitLock, "inspect" | "free" | "keyFor" | "check">;

/** The connection of one command. */
export interface Connection {
  /** For messages; never with a user or a password. */
  readonly address: string;
  /** With `--config` there need be none. */
  readonly client: Client | undefined;
  /** Proved: Redis itself has said that it is selected. `undefined` on a Cluster, and where there is no client. */
  readonly database: number | undefined;
  /** One for each `--prefix`, at least one. */
  readonly locks: readonly PrefixedLock[];
  /** What the client itself puts in front of every key. */
  readonly clientPrefix: string;
  /** Who is connected, where the address says it. */
  readonly user: string | undefined;
}

export interface PrefixedLock {
  readonly keyPrefix: string;
  readonly lock: LockFace;
}

/** Opens what `--url`, `--cluster`, `--sentinel` or `--config` name. It is closed by the end of the process. */
export async function connect(args: Arguments, env: NodeJS.ProcessEnv): Promise<Connection> {
  const config = args.text("config");
  if (config !== undefined) return await fromConfig(config, args);
  const target = targetOf(args, env);
  const client = await openClient(target);
  const address = addressOf(client);
  await established(client, address).catch((error: unknown) => {
    throw toCliError(error, address);
  });
  const database = await proved(client, address);
  // After that: a store connects its client by itself.
  const store = new RedisStore(client);
  const prefixes = args.has("prefix") ? args.texts("prefix") : [defaultPrefix];
  const locks = prefixes.map((keyPrefix) => ({
    keyPrefix,
    // Gives up before the command does: it knows what Redis said.
    lock: new SubmitLock({ store, keyPrefix, acquireTimeoutMs: 0.75 * answerWithinMs }),
  }));
  const { keyPrefix: clientPrefix = "", username: user } = target.options;
  return { address, client, database, clientPrefix, user, locks };
}

/** Options of a client that connects once, as a command does that says why it cannot go on. */
export const once: {
  readonly lazyConnect: true;
  readonly enableOfflineQueue: false;
  readonly enableReadyCheck: false;
  readonly connectTimeout: number;
  readonly maxRetriesPerRequest: number;
  readonly retryStrategy: () => null;
  readonly disableClientInfo: true;
} = {
  lazyConnect: true,
  enableOfflineQueue: false,
  // It asks for INFO, which the lock itself does not need.
  enableReadyCheck: false,
  connectTimeout: answerWithinMs,
  maxRetriesPerRequest: 0,
  retryStrategy: () => null,
  // Not permitted to a user who may do what the lock needs.
  disableClientInfo: true,
};

async function openClient({ isCluster, options }: Target): Promise<Client> {
  const ioredis = await importIoredis();
  if (!isCluster) {
    return new ioredis.Redis({ ...options, ...once, sentinelRetryStrategy: () => null });
  }
  const { host, port, keyPrefix, ...others } = options;
  const { lazyConnect, enableOfflineQueue, enableReadyCheck, retryStrategy, ...each } = once;
  const clusterOptions = {
    lazyConnect,
    enableOfflineQueue,
    enableReadyCheck,
    clusterRetryStrategy: retryStrategy,
    slotsRefreshTimeout: answerWithinMs,
    ...(keyPrefix === undefined ? {} : { keyPrefix }),
    redisOptions: { ...others, ...each },
  };
  return new ioredis.Cluster([{ host: host ?? "127.0.0.1", port: port ?? 6379 }], clusterOptions);
}

async function importIoredis(): Promise<{ Redis: typeof Redis; Cluster: typeof Cluster }> {
  try {
    return await import("ioredis");
  } catch (error) {
    const { code } = error as { code?: unknown };
    if (code !== "ERR_MODULE_NOT_FOUND" && code !== "MODULE_NOT_FOUND") throw error;
    throw new UsageError("this needs ioredis: npm install ioredis");
  }
}

/** @throws what was in the way: of ioredis' own errors only the last event says it. */
async function established(client: Client, address: string): Promise<void> {
  let reason: unknown;
  client.on("error", (error: unknown) => {
    reason = error;
  });
  const connected = client.connect().then(
    () => true,
    (error: unknown) => {
      throw reason ?? error;
    },
  );
  if ((await within(answerWithinMs, connected)) === true) return;
  connected.catch(() => {});
  throw new NoAnswerError(
    `no answer from ${address} within 2 s of connecting. Is it up, and can this host reach it?`,
  );
}

/**
 * Selects the database of the client once more: ioredis goes on in database 0 where its own SELECT
 * is refused, which is told by an error event alone.
 *
 * @returns the database; `undefined` on a Cluster, which has one.
 */
async function proved(client: Client, address: string): Promise<number | undefined> {
  if (client.isCluster) return undefined;
  const redis = client as Redis;
  try {
    // A shop's own client is still connecting, and may have been told to select another database.
    if (redis.status === "wait") redis.connect().catch(() => {});
    if (redis.status !== "ready") await answerOf({ address }, onceEmitted(redis, "ready"));
    const database = databaseOf(redis);
    if (database !== 0) await answerOf({ address }, redis.select(database));
    return database;
  } catch (error) {
    throw toCliError(error, `database ${databaseOf(redis)} of ${address}`);
  }
}

/** The database that a client has selected last. */
function databaseOf(client: Redis): number {
  const { condition } = client as unknown as { condition?: { select?: number } | null };
  return condition?.select ?? client.options.db ?? 0;
}

/** The module of `--config`. */
interface Loaded {
  readonly default?: unknown;
  readonly redis?: unknown;
}

async function fromConfig(file: string, args: Arguments): Promise<Connection> {
  const clashing = ["url", "cluster", "sentinel", "tls-ca", "prefix", "ioredis-prefix"].find(
    (name) => args.has(name),
  );
  if (clashing !== undefined) {
    throw new UsageError(
      `--config and --${clashing} exclude each other: the module knows its Redis`,
    );
  }
  let loaded: Loaded;
  try {
    loaded = await import(pathToFileURL(resolve(file)).href);
  } catch (error) {
    throw new UsageError(`--config: cannot load ${file} (${(error as Error).message})`);
  }
  // What a compiler makes of `export default` for CommonJS is a level deeper.
  if (hasMembers(loaded.default, ["default"])) loaded = loaded.default as Loaded;
  const { default: lock, redis } = loaded;
  if (!isLock(lock)) {
    throw new UsageError(`--config: expected ${file} to default-export a SubmitLock`);
  }
  const client = hasMembers(redis, ["eval", "options", "status"]) ? (redis as Client) : undefined;
  const keyPrefix = lock.keyFor("0").slice(0, -1);
  const { keyPrefix: clientPrefix = "", username } = (client?.options ?? {}) as TargetOptions;
  const address = client === undefined ? `the Redis of ${file}` : addressOf(client);
  return {
    address,
    client,
    database: client === undefined ? undefined : await proved(client, address),
    clientPrefix,
    user: username,
    locks: [{ keyPrefix, lock }],
  };
}

function isLock(value: unknown): value is LockFace {
  return hasMembers(value, ["inspect", "free", "keyFor", "check"]);
}

/**
 * What was asked, within the time that Redis has.
 *
 * @throws CliError when it is over.
 */
export async function answerOf<Value>(
  { address }: Pick<Connection, "address">,
  asked: Promise<Value>,
): Promise<Value> {
  const answer = await within(
    answerWithinMs,
    asked.then((value) => ({ value })),
  );
  if (answer !== undefined) return answer.value;
  throw new NoAnswerError(
    `no answer from ${address} within 2 s. Is it up, and can this host reach it?`,
  );
}

/** Of a command that is about one lock. */
export function theLock({ locks }: Connection): LockFace {
  return (locks[0] as PrefixedLock).lock;
}

/** The Redis that was looked at, with its database where it has any. */
export function redisOf({ address, database }: Connection): string {
  return database === undefined ? address : `database ${database} of ${address}`;
}

/** Where a user's lock is looked for. */
export function placeOf(connection: Connection, user: string): string {
  const key = connection.clientPrefix + theLock(connection).keyFor(user);
  return `key ${key} in ${redisOf(connection)}`;
}
