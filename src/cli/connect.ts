import { once as onceEmitted } from "node:events";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { Cluster, ClusterOptions, Redis, RedisOptions } from "ioredis";
import { SubmitLock } from "../lock/submit-lock.ts";
import { addressOf, databaseOf } from "../stores/redis/ioredis.ts";
import { RedisStore } from "../stores/redis/redis-store.ts";
import { hasMembers } from "../validation.ts";
import { within } from "../within.ts";
import { CliError, exitCode, toCliError } from "./failure.ts";
import type { Arguments } from "./main.ts";

/** The time that Redis has for one answer, and for connecting, in ms. */
const answerWithinMs = 2_000;

/** The connection of one command. It is closed by the end of the process. */
export interface CliTarget {
  /** The address of Redis for messages, without user and password. */
  readonly address: string;
  /** `undefined` where the module of `--config` does not export `redis`. */
  readonly client?: Redis | Cluster;
  /** The database that Redis has selected. `undefined` on a Cluster, and without a client. */
  readonly database?: number | undefined;
  /** One for each `--prefix`. */
  readonly locks: readonly [PrefixedLock, ...PrefixedLock[]];
  /** The `keyPrefix` of the client, which puts it in front of every key; `""` for none. */
  readonly clientPrefix: string;
  readonly user?: string | undefined;
}

export interface PrefixedLock {
  readonly keyPrefix: string;
  /** The part of a lock that the commands use. */
  readonly lock: Pick<SubmitLock, "inspect" | "free" | "keyFor" | "check">;
}

/** Connects to the Redis that `--url`, `--cluster`, `--sentinel` or `--config` name. */
export async function connect(args: Arguments, env: NodeJS.ProcessEnv): Promise<CliTarget> {
  const config = args.text("config");
  if (config !== undefined) return await fromConfig(config, args);
  const at = await proved(await clientOf(args, args.text("url") ?? env["REDIS_URL"] ?? ""));
  // After `proved`, because a store connects its client by itself.
  const store = new RedisStore(at.client);
  const lockOf = (keyPrefix: string): PrefixedLock => ({
    keyPrefix,
    // 1.5 s, so that the lock's error, which says why, comes before the command's bound of 2 s.
    lock: new SubmitLock({ store, keyPrefix, acquireTimeoutMs: 0.75 * answerWithinMs }),
  });
  const [first = "lock:submit:", ...others] = args.texts("prefix");
  return { ...at, locks: [lockOf(first), ...others.map(lockOf)] };
}

/** Options of a client that connects once, so that the command can report why it failed. */
export const once: Omit<RedisOptions, "replyMapping" | "scripts"> = {
  lazyConnect: true,
  enableOfflineQueue: false,
  connectTimeout: answerWithinMs,
  maxRetriesPerRequest: 0,
  // CLIENT SETINFO is not among the permissions that the lock needs, nor is the INFO of a check.
  disableClientInfo: true,
  enableReadyCheck: false,
  retryStrategy: () => null,
};

/** Makes the client for `--url`, `--cluster` or `--sentinel`. It is not connected yet. */
async function clientOf(args: Arguments, url: string): Promise<Redis | Cluster> {
  const sentinels = args.text("sentinel")?.split(",");
  const isCluster = args.has("cluster");
  if (sentinels === undefined && url === "") {
    throw new CliError("where is Redis? Set REDIS_URL, or give --url, --sentinel or --config");
  }
  if ((sentinels !== undefined) !== args.has("master")) {
    throw new CliError("--sentinel host:port,host:port and --master name belong together");
  }
  if (sentinels !== undefined && isCluster) {
    throw new CliError("--sentinel and --cluster exclude each other");
  }
  const { host, port, ...login } = fromUrl(url === "" ? "redis://127.0.0.1" : url);
  if (isCluster && login.db !== 0) {
    throw new CliError("a Cluster has only database 0: leave the database out of the URL");
  }
  const authority = args.text("tls-ca");
  const tls = authority !== undefined && { tls: { ca: readAuthority(authority) } };
  const options = { ...login, ...tls, ...once };
  const keyPrefix = args.text("ioredis-prefix") ?? "";
  const ioredis = await import("ioredis").catch((error: { code?: unknown }) => {
    if (!String(error.code).endsWith("MODULE_NOT_FOUND")) throw error;
    throw new CliError("ioredis is not installed. Install it with: npm install ioredis");
  });
  if (isCluster) {
    return new ioredis.Cluster([{ host, port }], {
      ...once,
      clusterRetryStrategy: () => null,
      slotsRefreshTimeout: answerWithinMs,
      keyPrefix,
      redisOptions: options,
    });
  }
  const name = args.text("master") ?? "";
  const addresses = sentinels?.map((each) => {
    const [, of = "", behind = "26379"] = /^(.+?)(?::(\d+))?$/.exec(each.trim()) ?? [];
    if (of === "") throw new CliError("--sentinel: expected host:port,host:port");
    return { host: of, port: Number(behind) };
  });
  const at = addresses ? { sentinels: addresses, name } : { host, port };
  return new ioredis.Redis({ ...options, ...at, keyPrefix, sentinelRetryStrategy: () => null });
}

function fromUrl(text: string) {
  try {
    const { protocol, hostname, port, pathname, username, password } = new URL(text);
    const [, db] = /^\/?(\d{0,9})$/.exec(pathname) ?? [];
    // ioredis obeys ?db=5: a command that ignored it would look into another database.
    const isPlain = !/[?#]/.test(text) && /^rediss?:$/.test(protocol);
    if (db === undefined || hostname === "" || !isPlain) throw new Error();
    return {
      host: hostname.replace(/^\[(.*)\]$/, "$1"),
      port: Number(port || 6379),
      username: decodeURIComponent(username),
      password: decodeURIComponent(password),
      db: Number(db),
      ...(protocol === "rediss:" && { tls: {} }),
    };
  } catch {
    // The message leaves the URL out: the part that is not valid is usually the password.
    throw new CliError(
      "--url or REDIS_URL: expected an address such as redis://user:password@host:6379/0, with the database as its path, without ? and #, and with special characters in the password percent-encoded",
    );
  }
}

function readAuthority(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    throw new CliError(`--tls-ca: cannot read ${file} (${(error as Error).message})`);
  }
}

/**
 * Waits until the client is connected, and selects its database once more: ioredis continues in
 * database 0 where its own SELECT was refused, and reports that only by an error event.
 */
async function proved(client: Redis | Cluster) {
  const address = addressOf(client);
  const database = () => (client.isCluster ? undefined : databaseOf(client));
  let reason: unknown;
  // Only this event has the reason why a client cannot connect.
  client.on("error", (error: unknown) => {
    reason = error;
  });
  try {
    if (client.status === "wait") await answerOf({ address }, client.connect());
  } catch (error) {
    throw toCliError(reason ?? error, address);
  }
  try {
    // The client of --config may still be connecting, or selecting another database.
    if (client.status !== "ready") await answerOf({ address }, onceEmitted(client, "ready"));
    const selected = database();
    if (selected) await answerOf({ address }, (client as Redis).select(selected));
  } catch (error) {
    throw toCliError(error, redisOf({ address, database: database() }));
  }
  const { keyPrefix = "", ...options } = client.options as RedisOptions & ClusterOptions;
  const user = options.username || options.redisOptions?.username || undefined;
  return { address, client, database: database(), clientPrefix: keyPrefix, user };
}

async function fromConfig(file: string, args: Arguments): Promise<CliTarget> {
  const given = ["url", "cluster", "sentinel", "tls-ca", "prefix", "ioredis-prefix"];
  const clashing = given.find((name) => args.has(name));
  if (clashing !== undefined) throw new CliError(`--config and --${clashing} exclude each other`);
  let loaded: { readonly default?: unknown; readonly redis?: unknown };
  try {
    loaded = await import(pathToFileURL(resolve(file)).href);
  } catch (error) {
    throw new CliError(`--config: cannot load ${file} (${(error as Error).message})`);
  }
  // In a module compiled to CommonJS, `export default` is one level deeper.
  if (hasMembers(loaded.default, ["default"])) loaded = loaded.default as typeof loaded;
  if (!hasMembers(loaded.default, ["inspect", "free", "keyFor", "check"])) {
    throw new CliError(`--config: expected ${file} to default-export a SubmitLock`);
  }
  const lock = loaded.default as PrefixedLock["lock"];
  const at = hasMembers(loaded.redis, ["eval", "options", "status"])
    ? await proved(loaded.redis as Redis | Cluster)
    : { address: `the Redis of ${file}`, clientPrefix: "" };
  return { ...at, locks: [{ keyPrefix: lock.keyFor("0").slice(0, -1), lock }] };
}

/** Waits for an answer of Redis, at most 2 s: then it rejects with a `CliError`. */
export async function answerOf<Value>(
  { address }: Pick<CliTarget, "address">,
  asked: Promise<Value>,
): Promise<Value> {
  const answered = asked.then((value) => ({ value }));
  const answer = await within(answerWithinMs, answered);
  if (answer !== undefined) return answer.value;
  const text = `no answer from ${address} within 2 s. Can this host reach it?`;
  throw new CliError(text, exitCode.noRedis);
}

/** The Redis that was looked at, with its database if it has several. */
export function redisOf({ address, database }: Pick<CliTarget, "address" | "database">): string {
  return database === undefined ? address : `database ${database} of ${address}`;
}
