import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { defaultKeyPrefix } from "../lock/options.ts";
import { SubmitLock } from "../lock/submit-lock.ts";
import { openIoredis, type RedisPlace } from "../stores/redis/clients/open-ioredis.ts";
import { openNodeRedis } from "../stores/redis/clients/open-node-redis.ts";
import { type ClientPort, plainError } from "../stores/redis/clients/port.ts";
import { portOf, type RedisClient } from "../stores/redis/clients/port-of.ts";
import { isOfReplica, refusals } from "../stores/redis/redis-errors.ts";
import { RedisStore } from "../stores/redis/redis-store.ts";
import { setImmediate } from "../time.ts";
import { within } from "../timers.ts";
import { describe, hasMembers, textOfThrown } from "../validation.ts";
import { type Arguments, type CliLock, type CliTarget, lockMembers } from "./context.ts";
import { CliError, exitCode, toCliError } from "./failure.ts";

/** The longest wait for one answer of Redis, and for the connection, in ms. */
export const answerWithinMs = 2_000;
/** The longest wait for the module of `--config`, in ms. */
const loadedWithinMs = 10_000;

export async function connect(args: Arguments, env: NodeJS.ProcessEnv): Promise<CliTarget> {
  const config = args.text("config");
  if (config !== undefined) return await fromConfig(config, args);
  const opened = await openClient(redisPlaceOf(args, args.text("url") ?? env["REDIS_URL"] ?? ""));
  const [first = defaultKeyPrefix, ...others] = args.texts("prefix");
  const at = await proved(portOf(opened), first);
  const store = new RedisStore(opened);
  // 1.5 s, so that the lock fails, with the reason, before the command's own bound of 2 s.
  const acquireTimeoutMs = 0.75 * answerWithinMs;
  const lockOf = (keyPrefix: string) => new SubmitLock({ store, keyPrefix, acquireTimeoutMs });
  return { ...at, locks: [lockOf(first), ...others.map(lockOf)] };
}

function redisPlaceOf(args: Arguments, url: string): RedisPlace {
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
  const login = fromUrl(url === "" ? "redis://127.0.0.1" : url);
  if (isCluster && login.path !== undefined) {
    throw new CliError("--cluster needs the address of a node, and no Unix socket");
  }
  if (isCluster && login.database !== 0) {
    throw new CliError(
      "--cluster looks at database 0: leave the database out of the URL, or use --config",
    );
  }
  const authority = args.text("tls-ca");
  return {
    ...login,
    ...(authority !== undefined && { tls: { ca: readAuthority(authority) } }),
    isCluster,
    keyPrefix: args.text("ioredis-prefix") ?? "",
    masterName: args.text("master") ?? "",
    sentinels: sentinels?.map(sentinelAddress),
    withinMs: answerWithinMs,
  };
}

function sentinelAddress(text: string) {
  const [, host = "", port = "26379"] = /^([^@/]+?)(?::(\d+))?$/.exec(text.trim()) ?? [];
  if (host === "") throw new CliError(`--sentinel: expected host:port, got ${describe(text)}`);
  return { host: host.replace(/^\[(.*)\]$/, "$1"), port: Number(port) };
}

async function openClient(place: RedisPlace): Promise<RedisClient> {
  const ioredis = await installed(openIoredis(place));
  if (ioredis !== undefined) return ioredis;
  if (place.sentinels !== undefined) {
    throw new CliError("--sentinel needs ioredis. Install it with: npm install ioredis");
  }
  const nodeRedis = await installed(openNodeRedis(place));
  if (nodeRedis !== undefined) return nodeRedis;
  const text = "neither ioredis nor redis is installed. Install one with: npm install ioredis";
  throw new CliError(text);
}

function installed<Client>(opening: Promise<Client>): Promise<Client | undefined> {
  return opening.catch((error: { code?: unknown }): undefined => {
    if (!String(error.code).endsWith("MODULE_NOT_FOUND")) throw error;
  });
}

function fromUrl(text: string) {
  try {
    // A Unix socket in the form of ioredis, such as /run/redis.sock?db=1.
    const [, path, pathDb] = /^(\/[^/?#][^?#]*)(?:\?db=(\d{1,9}))?$/.exec(text) ?? [];
    const [, plain = "", family] = /^(.*?)(?:\?family=([046]))?$/.exec(text) ?? [];
    const url = new URL(path === undefined ? plain : "redis://127.0.0.1");
    const { protocol, hostname, port, pathname, username, password } = url;
    const [, db] = /^\/?(\d{0,9})$/.exec(pathname) ?? [];
    // Refuse all queries but ?family=: if ?db=5 were ignored, the command would read database 0.
    const isPlain = path !== undefined || (!/[?#]/.test(plain) && /^rediss?:$/.test(protocol));
    if (db === undefined || hostname === "" || !isPlain) throw new Error();
    return {
      path,
      ...(family !== undefined && { family: Number(family) }),
      host: hostname.replace(/^\[(.*)\]$/, "$1"),
      port: Number(port || 6379),
      username: decodeURIComponent(username),
      password: decodeURIComponent(password),
      database: Number(pathDb ?? db),
      tls: protocol === "rediss:" ? {} : undefined,
    };
  } catch {
    // The message leaves the URL out: the part that is not valid is usually the password.
    throw new CliError(
      "--url or REDIS_URL: expected an address such as redis://user:password@host:6379/0, or the path of a Unix socket such as /run/redis.sock?db=0. The path of the address is the database. Percent-encode special characters in the password. The address has no # and no query but ?family=0, 4 or 6. Use --config for anything else",
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

async function proved(client: ClientPort, keyPrefix: string) {
  const { address, keyPrefix: clientPrefix = "", user } = client;
  const failures = await connected(client);
  // Wait for any answer, because ioredis 5 is ready before the server has answered AUTH.
  if (!client.isCluster) {
    // No user has this key, and a replica refuses to delete it.
    const keys = [`${keyPrefix}probe-${randomUUID()}`];
    const probe = client.eval("return redis.pcall('DEL', KEYS[1])", { keys, args: [] });
    await answerOf(address, probe).catch((error) => {
      // Redis was silent for 2 s. Stop here: the command's own question would wait as long again.
      if (error instanceof CliError) throw error;
      failures.push(error);
    });
  }
  const refused = failures.find((error) => refusals.password.test(plainError(error).message));
  if (refused !== undefined) rethrowFrom(client)(refused);
  if (client.needsProof) await answerOf(address, client.askDatabase()).catch(rethrowFrom(client));
  // Read `database` only now: a client of node-redis does not know it before `askDatabase`.
  const database = client.isCluster ? undefined : client.database;
  return { address, client, database, clientPrefix, user, isReplica: failures.some(isOfReplica) };
}

/**
 * Waits until the client is connected. Only the client's error events say why it cannot connect.
 * @returns the errors of these events; an error that comes later is added to the same array.
 */
async function connected(client: ClientPort): Promise<unknown[]> {
  const failures: unknown[] = [];
  const { address, advice = "it is not connected" } = client;
  const isUp = new Promise<void>((up, failed) => {
    client.ignoreErrors();
    client.watch({
      failed: (error) => {
        failures.push(error);
        failed(error);
      },
      // A node of a Cluster may be up before the Cluster is.
      up: () => client.status === "ready" && up(),
      // Fail a turn later, because the error event with the reason may come after the end.
      ended: () => setImmediate(failed, new Error("Connection is closed")),
    });
  });
  isUp.catch(() => {});
  client.wake?.();
  if (client.status === "ready") return failures;
  if (client.status === "wait") throw new CliError(`${address}: ${advice}`);
  await answerOf(address, isUp).catch(rethrowFrom(client));
  return failures;
}

function rethrowFrom({ address, database }: ClientPort): (error: unknown) => never {
  return (error) => {
    const { message } = plainError(error);
    const isOfDatabase = refusals.select.test(message) || refusals.database.test(message);
    throw toCliError(error, isOfDatabase ? redisOf({ address, database }) : address);
  };
}

async function fromConfig(file: string, args: Arguments): Promise<CliTarget> {
  const given = ["url", "cluster", "sentinel", "master", "tls-ca", "prefix", "ioredis-prefix"];
  const clashing = given.find((name) => args.has(name));
  if (clashing !== undefined) throw new CliError(`--config and --${clashing} exclude each other`);
  let loaded: { readonly default?: unknown; readonly redis?: unknown } | undefined;
  try {
    loaded = await within(loadedWithinMs, import(pathToFileURL(resolve(file)).href));
  } catch (error) {
    throw new CliError(`--config: cannot load ${file} (${textOfThrown(error)})`);
  }
  if (loaded === undefined) {
    const text = `--config: ${file} has not loaded within ${loadedWithinMs / 1_000} s`;
    throw new CliError(`${text}. Perhaps it awaits its connection to Redis: remove that await`);
  }
  // In a module compiled to CommonJS, `export default` is one level deeper.
  if (hasMembers(loaded.default, ["default"])) loaded = loaded.default as typeof loaded;
  if (!hasMembers(loaded.default, lockMembers)) {
    const came = describe(loaded.default);
    throw new CliError(`--config: expected ${file} to default-export a SubmitLock, got ${came}`);
  }
  const lock = loaded.default as CliLock;
  const at =
    loaded.redis === undefined
      ? { address: `the Redis of ${file}`, clientPrefix: "" }
      : await proved(portOf(loaded.redis as RedisClient), lock.keyPrefix);
  return { ...at, locks: [lock] };
}

/** Waits for an answer of Redis. After 2 s without an answer, rejects with a `CliError`. */
export async function answerOf<Value>(address: string, asked: Promise<Value>): Promise<Value> {
  const answer = await within(
    answerWithinMs,
    asked.then((value) => ({ value })),
  );
  if (answer !== undefined) return answer.value;
  const causes =
    "Can this host reach it, is Redis stopped or busy, and does the address say rediss:// exactly where Redis uses TLS?";
  throw new CliError(`no answer from ${address} within 2 s. ${causes}`, exitCode.noRedis);
}

export function redisOf({ address, database }: Pick<CliTarget, "address" | "database">): string {
  return database === undefined ? address : `database ${database} of ${address}`;
}
