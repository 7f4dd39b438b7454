import { createClient, RESP_TYPES, type RedisClientOptions } from "redis";
import { afterEach, describe, expect, test } from "vitest";
import { type RedisClient, RedisStore, type SubmitLock } from "../../src/index.ts";
import {
  type AnyClient,
  type AnyCluster,
  closeClients,
  cluster6,
  ioredis5,
  ioredis6,
  nodeRedis6,
  nodeRedisCluster6,
  type RedisOptions,
  type SharedOptions,
  untilReady,
} from "../support/clients.ts";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { acquired, causeOf, closeLocks, leaseOf, openLock, saidBy } from "../support/locks.ts";
import { startCluster } from "../support/redis-cluster.ts";
import { forTest, type RedisServer, startRedis } from "../support/redis-server.ts";
import { foundBy, submissionOf, submit } from "../support/submissions.ts";
import { until } from "../support/until.ts";
import { page } from "./page.ts";

const { blocks, prose: aboutRedis } = page("docs/operations/redis.md");

const nodeRedisClients = new Set<{ destroy(): void }>();
afterEach(async () => {
  await closeLocks();
  closeClients();
  for (const client of nodeRedisClients) client.destroy();
  nodeRedisClients.clear();
});

const server = (...args: string[]): Promise<RedisServer> => forTest(startRedis({ args }));

const lockOn = (client: unknown, given: object = {}): SubmitLock =>
  openLock({ store: new RedisStore(client as RedisClient), ...given });

/** Executes a line of Lua on a key of any database. */
const inDatabase = (port: number, database: number, key: string, line: string) =>
  command(port, "eval", `redis.call('SELECT', ${database}) ${line}`, 1, key);

/** Everything that a lock does with Redis, with each of its commands. */
async function everything(lock: SubmitLock, port: number, { db = 0, keyPrefix = "" } = {}) {
  await lock.check({ submissions: true });
  const user = freshUser();
  const lease = await leaseOf(lock, user);
  expect((await lock.acquire(user)).outcome).toBe("contended");
  const extended = async () =>
    /cmdstat_pexpire/.test((await command(port, "info", "commandstats")) as string);
  await until(async () => lease.remainingMs() === 0 || (await extended()), { what: "an extend" });
  expect(lease.remainingMs()).toBeGreaterThan(0);
  expect(await lease.release()).toBe("released");

  const done = await submissionOf(lock, user);
  expect(await done.complete({ status: 201, body: "order 7" })).toBe("recorded");
  expect(foundBy(await submit(lock, user))).toBe("order 7");

  const id = (await leaseOf(lock, user)).ownerId.slice(0, 8);
  const why = { id, by: "anna", reason: "ticket 4711" };
  expect(await lock.inspect(user)).toMatchObject({ state: "held", id });
  expect(await lock.free(user, why)).toMatchObject({ outcome: "freed" });
  expect(await lock.inspect(user)).toMatchObject({ state: "freed", id });
  expect(await lock.free(user, { ...why, now: true })).toMatchObject({ freeInMs: 0 });

  const old = freshUser();
  const legacy = keyPrefix + lock.keyFor(old);
  await inDatabase(port, db, legacy, "redis.call('SET', KEYS[1], 'an old lock without an expiry')");
  expect((await lock.acquire(old)).outcome).toBe("contended");
  const left = await inDatabase(port, db, legacy, "return redis.call('PTTL', KEYS[1])");
  expect(left).toBeGreaterThan(0);
}

/** The rules of the two lines that are shown: for a client without a prefix, and with one. */
const [plain = [], prefixed = []] = blocks.flatMap(({ code }) =>
  [...code.matchAll(/^ACL SETUSER \S+ (.*)$/gm)].map(([, rules = ""]) => rules.split(" ")),
);
const without = (...rules: string[]) => plain.filter((rule) => !rules.includes(rule));

async function allow(port: number, rules: readonly string[]): Promise<SharedOptions> {
  await command(port, "acl", "setuser", "checkout", "reset", ...rules);
  return { username: "checkout", password: "password" };
}

/** What was asked for and not permitted, but for `CLIENT SETINFO`, which costs nothing. */
async function denials(port: number): Promise<string[]> {
  const entries = (await command(port, "acl", "log")) as (string[] | { object: string })[];
  const objects = entries.map((entry) =>
    Array.isArray(entry) ? (entry[entry.indexOf("object") + 1] as string) : entry.object,
  );
  return [...new Set(objects.filter((object) => object !== "client|setinfo"))];
}

describe("the permissions", () => {
  const ofHashTag = [
    ...plain.filter((rule) => !rule.startsWith("~")),
    /`(~\{shop\}\S+)`/.exec(aboutRedis)?.[1] ?? "no pattern for a hash tag",
  ];
  const [, ping = "", info = ""] =
    /for node-redis `(\+\S+)`, and on one server `(\+\S+)`/.exec(aboutRedis) ?? [];
  const ofNodeRedis = [...without("+info"), ping, info];
  const noCheck = { enableReadyCheck: false, disableClientInfo: true };

  test.each<{
    client: string;
    rules: string[];
    open?: (port: number, options: SharedOptions) => unknown;
    options?: SharedOptions;
    denied?: string[];
  }>([
    { client: "ioredis", rules: plain },
    { client: "ioredis 5", rules: plain, open: ioredis5.connect },
    { client: "ioredis with a prefix", rules: prefixed, options: { keyPrefix: "shop:" } },
    { client: "ioredis with a hash tag", rules: ofHashTag, options: { keyPrefix: "{shop}:" } },
    {
      client: "ioredis in database 1, without its ready check",
      rules: [...without("+info"), "+select"],
      open: (port, options) => ioredis6.connect(port, { ...options, ...noCheck }),
      options: { db: 1 },
    },
    { client: "ioredis without evalsha", rules: without("+evalsha"), denied: ["evalsha"] },
    { client: "node-redis", rules: ofNodeRedis, open: nodeRedis6.connect },
    {
      client: "node-redis in database 5",
      rules: [...ofNodeRedis, "+select"],
      open: nodeRedis6.connect,
      options: { db: 5 },
    },
  ])("are enough for $client", async (each) => {
    const { denied = [], open = ioredis6.connect, options = {}, rules } = each;
    const { port } = await server();
    const client = open(port, { ...(await allow(port, rules)), ...options });
    await untilReady(client as AnyClient);
    await everything(lockOn(client, { ttlMs: 3_000, acquireTimeoutMs: 1_500 }), port, options);
    expect(await denials(port)).toEqual(denied);
  });

  test("are enough for the pings of node-redis, too", async () => {
    const { port } = await server();
    const { username = "", password = "" } = await allow(port, ofNodeRedis);
    const client = newNodeRedis(port, { username, password, pingInterval: 20 });
    await client.connect();
    await lockOn(client).check();
    const pings = async () =>
      String(await command(port, "info", "commandstats")).includes("cmdstat_ping");
    await until(pings, { what: "a PING" });
    expect(await denials(port)).toEqual([]);
  });

  test("have none to spare", async () => {
    const { port } = await server();
    const needed = plain.filter((rule) => /^\+(?!info|evalsha)/.test(rule));
    expect(needed.length).toBeGreaterThan(5);
    for (const rule of needed) {
      for (const submissions of [false, true]) {
        // A script that is known would need no EVAL.
        await command(port, "script", "flush");
        await command(port, "acl", "log", "reset");
        const lock = lockOn(ioredis6.connect(port, await allow(port, without(rule))));
        const error = { code: "SUBMIT_LOCK_MISCONFIGURED" };
        await expect(lock.check({ submissions }), rule).rejects.toMatchObject(error);
        expect(await denials(port)).toContain(rule.slice(1));
      }
    }
  });

  const login = { redisOptions: { username: "checkout", password: "password" } };
  test.each<[name: string, rules: string[], open: (ports: readonly number[]) => AnyCluster]>([
    ["ioredis", plain, (ports) => cluster6.connect(ports, login)],
    ["node-redis", without("+info"), (ports) => nodeRedisCluster6.connect(ports, login)],
  ])("are enough on a Cluster with what %s needs besides", async (name, own, open) => {
    const cluster = await forTest(startCluster());
    const [, ofBoth = "", ofIoredis = ""] =
      /On a Cluster both ask for (.*), ioredis also for (.*)\./.exec(aboutRedis) ?? [];
    const asks = name === "ioredis" ? ofBoth + ofIoredis : ofBoth;
    const more = [...asks.matchAll(/`(.*?)`/g)].map(([, rule]) => rule as string);
    expect(more).toContain("+cluster|slots");
    for (const port of cluster.ports) await allow(port, [...own, ...more]);
    const client = await untilReady(open(cluster.ports));
    await lockOn(client).check({ submissions: true });
    for (const port of cluster.ports) expect(await denials(port)).toEqual([]);
  });
});

type NodeRedisOptions = Omit<RedisClientOptions, "RESP"> & { readonly RESP?: 2 | 3 };

/** A client of node-redis that is not connected yet. */
function newNodeRedis(port: number, options: NodeRedisOptions = {}) {
  const socket = { host: "127.0.0.1", port, ...options.socket } as { port: number };
  const client = createClient({ ...options, socket } as RedisClientOptions);
  client.on("error", () => {});
  nodeRedisClients.add(client);
  return client;
}

describe("the options of a client", () => {
  /** A lock is taken, contended and released, and its key is where it belongs. */
  async function works(lock: SubmitLock, port: number, { db = 0, keyPrefix = "" } = {}) {
    const user = freshUser();
    const lease = await leaseOf(lock, user);
    expect((await lock.acquire(user)).outcome).toBe("contended");
    const exists = () =>
      inDatabase(port, db, keyPrefix + lease.key, "return redis.call('EXISTS', KEYS[1])");
    expect(await exists()).toBe(1);
    expect(await lease.release()).toBe("released");
    expect(await exists()).toBe(0);
  }

  test.each<RedisOptions>([
    { keyPrefix: "shop:" },
    { enableAutoPipelining: true },
    { stringNumbers: true },
    { lazyConnect: true },
    { commandTimeout: 200 },
    { enableOfflineQueue: false },
    { maxRetriesPerRequest: 0 },
    { maxRetriesPerRequest: null },
    { autoResendUnfulfilledCommands: false },
    { socketTimeout: 5_000 },
  ])("work with ioredis: %j", async (options) => {
    const { port } = await server();
    const { keyPrefix = "" } = options;
    await works(lockOn(ioredis6.connect(port, options)), port, { keyPrefix });
  });

  const typeMapping = { [RESP_TYPES.NUMBER]: String, [RESP_TYPES.BLOB_STRING]: Buffer };
  test.each<{ options: NodeRedisOptions }>([
    { options: { RESP: 2 } },
    { options: { RESP: 3 } },
    { options: { database: 5 } },
    { options: { keyPrefix: "shop:" } },
    { options: { disableOfflineQueue: true } },
    { options: { commandsQueueMaxLength: 20 } },
    { options: { pingInterval: 50 } },
    { options: { commandOptions: { timeout: 1 } } },
    { options: { commandOptions: { typeMapping } } },
    { options: { disableClientInfo: true } },
    { options: { socket: { connectTimeout: 1_000, reconnectStrategy: false } } },
  ])("work with node-redis: $options", async ({ options }) => {
    const { port } = await server();
    const client = newNodeRedis(port, options);
    const lock = lockOn(client);
    await client.connect();
    await works(lock, port, { db: options.database ?? 0, keyPrefix: `${options.keyPrefix ?? ""}` });
  });

  test("end a client of node-redis whose socket times out with the default strategy", async () => {
    const { port, pause } = await server();
    const socket = { socketTimeout: 200 };
    const ends = newNodeRedis(port, { socket } as never);
    const stays = newNodeRedis(port, {
      socket: { ...socket, reconnectStrategy: () => 50 },
    } as never);
    await Promise.all([ends.connect(), stays.connect()]);
    pause();
    await until(() => !ends.isOpen, { what: "the client to end" });
    expect(stays.isOpen).toBe(true);
  });
});

describe("the memory of records", () => {
  const numberIn = (cell: string) => Number(/^\d[\d\s]*/.exec(cell)?.[0].replace(/\s/g, "") ?? 0);
  const measured = page("docs/operations/stored-data.md")
    .tableUnder("Memory")
    .map((cells) => {
      const [bytes = 0, usage = 0] = cells.map(numberIn);
      return { bytes, usage };
    });

  /** The key of the record of an answer with this body. */
  async function recordOf(port: number, body: string | Uint8Array | undefined): Promise<string> {
    const lease = await submissionOf(lockOn(ioredis6.connect(port)), freshUser());
    const headers = { "content-type": "application/json; charset=utf-8" };
    expect(await lease.complete({ status: 201, headers, body })).toBe("recorded");
    const [key] = (await command(port, "keys", "{*")) as string[];
    return key as string;
  }

  test.each(measured)("is, for an answer of $bytes bytes, as it says", async ({ bytes, usage }) => {
    const { port } = await server();
    // As many quotes as the JSON of an order has.
    const body = '{"sku":"5f1c","quantity":1,"cents":2190},'.repeat(bytes / 41 + 1).slice(0, bytes);
    const key = await recordOf(port, body || undefined);
    const found = Number(await command(port, "memory", "usage", key));
    // Other headers, another user id, another server: not to the byte.
    expect(found).toBeGreaterThan(0.6 * usage);
    expect(found).toBeLessThan(1.4 * usage);
  });

  test.each([
    ["quotation marks", '"'.repeat(65_536)],
    ["control characters", "\u0001".repeat(65_536)],
    ["bytes that are no text", Buffer.alloc(65_536, 0xff)],
  ])("is no more for %s: P7", async (_what, body) => {
    const { port } = await server();
    const length = await command(port, "strlen", await recordOf(port, body));
    expect(length).toBeLessThan(65_536 + 16_384);
    expect(length).toBeGreaterThan(65_536);
  });
});

test("a Redis without eviction whose memory is full refuses an order, and takes the end of one", async () => {
  const { port } = await server("--maxmemory-policy", "noeviction");
  const lock = lockOn(ioredis6.connect(port));
  const user = freshUser();
  const completed = await submissionOf(lock, user);
  const released = acquired(await lock.acquire(freshUser())).lease;
  await command(port, "config", "set", "maxmemory", "1");
  const cause = causeOf(await lock.acquire(freshUser()));
  expect(cause).toMatchObject({ code: "SUBMIT_LOCK_UNAVAILABLE" });
  expect(saidBy(cause)).toContain("OOM");
  expect(await released.release()).toBe("released");
  expect(await completed.complete({ status: 201, body: "placed" })).toBe("recorded");
  expect(foundBy(await submit(lock, user))).toBe("placed");
});
