import { Cluster, Redis, type RedisOptions } from "ioredis";
import { Redis as Redis5 } from "ioredis5";
import { createClient, RESP_TYPES, type RedisClientOptions } from "redis";
import { afterEach, describe, expect, test } from "vitest";
import { type LockStore, RedisStore, type SubmitLock } from "../../src/index.ts";
import {
  type AnyCluster,
  closeClients,
  nodeRedis6,
  nodeRedisCluster6,
} from "../support/clients.ts";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { acquired, causeOf, closeLocks, leaseOf, openLock } from "../support/locks.ts";
import { startCluster } from "../support/redis-cluster.ts";
import { type RedisServer, startRedis } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { page } from "./page.ts";

const { blocks, prose: aboutRedis } = page("docs/operations/redis.md");

const clients = new Set<{ disconnect(): void }>();
const servers = new Set<{ stop(): Promise<void> | void }>();

afterEach(async () => {
  await closeLocks();
  closeClients();
  for (const client of clients) client.disconnect();
  for (const server of servers) await server.stop();
  clients.clear();
  servers.clear();
});

async function server(...args: string[]): Promise<RedisServer> {
  const started = await startRedis({ args });
  servers.add(started);
  return started;
}

function connect(port: number, options: Omit<RedisOptions, "replyMapping"> = {}): Redis {
  const redis = new Redis(port, "127.0.0.1", options);
  redis.on("error", () => {});
  clients.add(redis);
  return redis;
}

function lockOn(store: LockStore, given: object = {}): SubmitLock {
  return openLock({ store, ...given });
}

async function commandStats(port: number): Promise<string> {
  return (await command(port, "info", "commandstats")) as string;
}

/** Everything that a lock does with Redis, with each of its commands. */
async function everything(lock: SubmitLock, port: number, database = 0): Promise<void> {
  await lock.check();
  const user = freshUser();
  const lease = await leaseOf(lock, user);
  expect((await lock.acquire(user)).outcome).toBe("contended");
  const extended = async () => /cmdstat_pexpire/.test(await commandStats(port));
  await until(async () => lease.remainingMs() === 0 || (await extended()), { what: "an extend" });
  expect(lease.remainingMs()).toBeGreaterThan(0);
  expect(await lease.release()).toBe("released");
  const old = freshUser();
  const legacy = lock.keyFor(old);
  const inDatabase = (then: string) =>
    command(port, "eval", `redis.call('SELECT', ${database}) ${then}`, 1, legacy);
  await inDatabase("redis.call('SET', KEYS[1], 'an old lock without an expiry')");
  expect((await lock.acquire(old)).outcome).toBe("contended");
  expect(await inDatabase("return redis.call('PTTL', KEYS[1])")).toBeGreaterThan(0);
}

/** The commands that are permitted. */
const permitted = (/^ACL SETUSER (.*)$/m.exec(blocks.map(({ code }) => code).join("\n"))?.[1] ?? "")
  .split(" ")
  .filter((rule) => rule.startsWith("+"));

async function clerk(
  port: number,
  rules: string[],
): Promise<Record<"username" | "password", string>> {
  const login = ["reset", "on", ">pass", "~lock:submit:*"];
  await command(port, "acl", "setuser", "clerk", ...login, ...rules);
  return { username: "clerk", password: "pass" };
}

/** What was asked for and not permitted. */
async function refusals(port: number): Promise<string[]> {
  const entries = (await command(port, "acl", "log")) as (string[] | { object: string })[];
  return entries.map((entry) =>
    Array.isArray(entry) ? (entry[entry.indexOf("object") + 1] as string) : entry.object,
  );
}

/** Those that matter: a server of today refuses `CLIENT SETINFO`, and nobody minds. */
async function denials(port: number): Promise<string[]> {
  return (await refusals(port)).filter((object) => object !== "client|setinfo");
}

describe("the permissions", () => {
  test.each([
    ["ioredis 6", (port: number, options: object) => connect(port, options)],
    ["ioredis 5", (port: number, options: object) => new Redis5(port, "127.0.0.1", options)],
  ])("are enough for %s", async (_name, open) => {
    const { port } = await server();
    const client = open(port, await clerk(port, permitted));
    clients.add(client);
    await everything(lockOn(new RedisStore(client), { ttlMs: 900 }), port);
    expect(await denials(port)).toEqual([]);
  });

  /** With the right that the page adds, and without that for the ready check of ioredis. */
  const ofNodeRedis = [...permitted.filter((rule) => rule !== "+info"), "+client|info"];

  test.each([
    [0, []],
    [5, ["+select"]],
  ])("with +client|info are enough for node-redis in database %d", async (db, more) => {
    const { port } = await server();
    const login = await clerk(port, [...ofNodeRedis, ...more]);
    const client = nodeRedis6.connect(port, { ...login, db });
    await everything(lockOn(new RedisStore(client), { ttlMs: 900 }), port, db);
    expect(await denials(port)).toEqual([]);
    expect(aboutRedis).toContain("`+client\\|info`");
  });

  test("without +client|info are a misconfiguration of node-redis that names it", async () => {
    const { port } = await server();
    const client = nodeRedis6.connect(port, await clerk(port, permitted));
    const error = {
      code: "SUBMIT_LOCK_MISCONFIGURED",
      message: expect.stringContaining("+client|info"),
    };
    await expect(lockOn(new RedisStore(client)).check()).rejects.toMatchObject(error);
    expect(await denials(port)).toContain("client|info");
  });

  test("serve without evalsha, and ACL LOG shows it", async () => {
    const { port } = await server();
    const rules = permitted.filter((rule) => rule !== "+evalsha");
    const client = connect(port, await clerk(port, rules));
    await everything(lockOn(new RedisStore(client), { ttlMs: 900 }), port);
    expect(new Set(await denials(port))).toEqual(new Set(["evalsha"]));
  });

  const needed = permitted.filter((rule) => rule !== "+info" && rule !== "+evalsha");
  test.each(needed)("are not enough without %s", async (rule) => {
    const { port } = await server();
    const rules = permitted.filter((each) => each !== rule);
    const client = connect(port, await clerk(port, rules));
    const error = { code: "SUBMIT_LOCK_MISCONFIGURED" };
    await expect(lockOn(new RedisStore(client)).check()).rejects.toMatchObject(error);
    expect(await denials(port)).toContain(rule.slice(1));
  });

  test("need no info without the ready check, and select for another database", async () => {
    const { port } = await server();
    const rules = [...permitted.filter((rule) => rule !== "+info"), "+select"];
    const options = {
      ...(await clerk(port, rules)),
      enableReadyCheck: false,
      disableClientInfo: true,
      db: 1,
    };
    await lockOn(new RedisStore(connect(port, options))).check();
    expect(await refusals(port)).toEqual([]);
    expect(aboutRedis).toContain("`disableClientInfo: true`");
    expect(aboutRedis).toContain("`enableReadyCheck: false`");
    expect(aboutRedis).toContain("`+select`");
  });

  const login = { username: "clerk", password: "pass" };

  test.each<[string, string[], (ports: readonly number[]) => AnyCluster]>([
    [
      "ioredis",
      permitted,
      (ports) => {
        const nodes = ports.map((port) => ({ host: "127.0.0.1", port }));
        const client = new Cluster(nodes, { redisOptions: login });
        clients.add(client);
        return client;
      },
    ],
    [
      "node-redis",
      permitted.filter((rule) => rule !== "+info"),
      (ports) => nodeRedisCluster6.connect(ports, { redisOptions: login }),
    ],
  ])("are enough on a Cluster with what %s needs besides", async (name, own, open) => {
    const cluster = await startCluster();
    servers.add(cluster);
    const asks = new RegExp(`On a Cluster ${name} also asks for (.*)\\.`);
    const more = [...(asks.exec(aboutRedis)?.[1] ?? "").matchAll(/`(.*?)`/g)];
    const rules = [...own, ...more.map(([, rule]) => rule as string)];
    expect(rules).toContain("+cluster|slots");
    for (const port of cluster.ports) await clerk(port, rules);
    await lockOn(new RedisStore(open(cluster.ports))).check();
    for (const port of cluster.ports) expect(await denials(port)).toEqual([]);
  });
});

describe("the options of ioredis", () => {
  test.each<Omit<RedisOptions, "replyMapping">>([
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
  ])("work: %j", async (options) => {
    const { port } = await server();
    const lock = lockOn(new RedisStore(connect(port, options)));
    const user = freshUser();
    const { lease } = acquired(await lock.acquire(user));
    expect((await lock.acquire(user)).outcome).toBe("contended");
    const key = `${options.keyPrefix ?? ""}${lease.key}`;
    expect(await command(port, "exists", key)).toBe(1);
    expect(await lease.release()).toBe("released");
    expect(await command(port, "exists", key)).toBe(0);
  });

  test("do not revive a client that has ended", async () => {
    const { port } = await server();
    const redis = connect(port);
    const lock = lockOn(new RedisStore(redis));
    await lock.check();
    await redis.quit();
    await until(() => redis.status === "end", { what: "the end of the client" });
    const said = (at: number) => `the connection to 127.0.0.1:${at} is "end"`;
    expect(causeOf(await lock.acquire(freshUser())).message).toContain(said(port));
    expect(aboutRedis).toContain(`\`${said(6379)}\``);
  });
});

type NodeRedisOptions = Omit<RedisClientOptions, "RESP"> & { readonly RESP?: 2 | 3 };

describe("the options of node-redis", () => {
  function open(port: number, options: NodeRedisOptions = {}) {
    const socket = { host: "127.0.0.1", port, ...options.socket } as { port: number };
    const client = createClient({ ...options, socket } as RedisClientOptions);
    client.on("error", () => {});
    clients.add({ disconnect: () => client.destroy() });
    return client;
  }
  const inDatabase = (port: number, database: number, key: string) =>
    command(
      port,
      "eval",
      `redis.call('SELECT', ${database}) return redis.call('EXISTS', KEYS[1])`,
      1,
      key,
    );

  const settings: NodeRedisOptions[] = [
    { RESP: 2 },
    { RESP: 3 },
    { database: 5 },
    { keyPrefix: "shop:" },
    { disableOfflineQueue: true },
    { commandsQueueMaxLength: 20 },
    { pingInterval: 50 },
    { commandOptions: { timeout: 1 } },
    {
      commandOptions: {
        typeMapping: { [RESP_TYPES.NUMBER]: String, [RESP_TYPES.BLOB_STRING]: Buffer },
      },
    },
    { disableClientInfo: true },
    { socket: { connectTimeout: 1_000, reconnectStrategy: false } },
  ];

  test.each(settings.map((options) => ({ options })))("work: $options", async ({ options }) => {
    const { port } = await server();
    const client = open(port, options);
    const lock = lockOn(new RedisStore(client as never));
    await client.connect();
    const user = freshUser();
    const lease = await leaseOf(lock, user);
    expect((await lock.acquire(user)).outcome).toBe("contended");
    const key = `${options.keyPrefix ?? ""}${lease.key}`;
    expect(await inDatabase(port, options.database ?? 0, key)).toBe(1);
    expect(await lease.release()).toBe("released");
    expect(await inDatabase(port, options.database ?? 0, key)).toBe(0);
    for (const name of Object.keys(options).filter(
      (each) => each !== "socket" && each !== "disableClientInfo",
    )) {
      expect(aboutRedis).toContain(`\`${name}\``);
    }
  });

  test("keep a select that comes before the first lock", async () => {
    const { port } = await server();
    const client = open(port);
    await client.connect();
    await client.select(3);
    const lock = lockOn(new RedisStore(client as never));
    const lease = await leaseOf(lock, freshUser());
    expect(await inDatabase(port, 3, lease.key)).toBe(1);
    expect(await lease.release()).toBe("released");
  });

  test("end a client whose socket times out with the default strategy", async () => {
    const { port, pause } = await server();
    const ends = open(port, { socket: { socketTimeout: 200 } as never });
    const stays = open(port, {
      socket: { socketTimeout: 200, reconnectStrategy: () => 50 } as never,
    });
    await Promise.all([ends.connect(), stays.connect()]);
    pause();
    await until(() => !ends.isOpen, { what: "the client to end" });
    expect(stays.isOpen).toBe(true);
  });
});

describe("a Redis without eviction whose memory is full", () => {
  test("refuses the acquire and takes the release", async () => {
    const { port } = await server("--maxmemory-policy", "noeviction");
    const lock = lockOn(new RedisStore(connect(port)));
    const { lease } = acquired(await lock.acquire(freshUser()));
    await command(port, "config", "set", "maxmemory", "1");
    const cause = causeOf(await lock.acquire(freshUser()));
    expect(cause).toMatchObject({ code: "SUBMIT_LOCK_UNAVAILABLE" });
    expect(cause.message).toContain("OOM");
    expect(await lease.release()).toBe("released");
  });
});
