import { randomUUID } from "node:crypto";
import { Cluster, Redis } from "ioredis";
import { afterEach, describe, expect, test } from "vitest";
import { RedisStore, type SubmitLock } from "../../src/index.ts";
import { closeClients, ioredis6 } from "../support/clients.ts";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { acquired, closeLocks, openLock } from "../support/locks.ts";
import { startCluster } from "../support/redis-cluster.ts";
import { type RedisServer, startRedis } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { page } from "./page.ts";

const acquire = `
if redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2], 'NX') then return -1 end
if redis.call('GET', KEYS[1]) == ARGV[1] then return -2 end
local left = redis.call('PTTL', KEYS[1])
if left < 0 then redis.call('PEXPIRE', KEYS[1], 60000) end
return left`;

const extend = `
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return redis.call('EXISTS', KEYS[1]) == 1 and -1 or 0`;

const release = `
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return redis.call('EXISTS', KEYS[1]) == 1 and -1 or 0`;

/** A process of version 0.1, as far as Redis sees it: the value is the bare owner id, compared whole. */
class Version01 {
  readonly #redis: Redis;
  readonly #ownerId = randomUUID();

  constructor(redis: Redis) {
    this.#redis = redis;
  }

  async acquire(key: string): Promise<"acquired" | "contended"> {
    const code = await this.#redis.eval(acquire, 1, key, this.#ownerId, 10_000);
    return Number(code) < 0 ? "acquired" : "contended";
  }

  /** Whether the lock was still its own. */
  async extend(key: string): Promise<boolean> {
    return (await this.#redis.eval(extend, 1, key, this.#ownerId, 10_000)) === 1;
  }

  async release(key: string): Promise<boolean> {
    return (await this.#redis.eval(release, 1, key, this.#ownerId)) === 1;
  }
}

const records = page("docs/operations/stored-data.md");
const permissions = page("docs/operations/redis.md");

const servers = new Set<{ stop(): Promise<void> }>();
const clients = new Set<Cluster>();

afterEach(async () => {
  await closeLocks();
  closeClients();
  for (const client of clients) client.disconnect();
  for (const server of servers) await server.stop();
  servers.clear();
  clients.clear();
});

async function server(...args: string[]): Promise<RedisServer> {
  const started = await startRedis({ args });
  servers.add(started);
  return started;
}

const headers = { "content-type": "application/json; charset=utf-8" };

/** An order with an id, its answer, and the answer once more. */
async function orderTwice(lock: SubmitLock, body?: string): Promise<void> {
  const user = freshUser();
  const submission = { submission: { id: "cart-1:3" } };
  const first = await lock.acquire(user, submission);
  if (first.outcome !== "acquired") throw new Error(JSON.stringify(first));
  expect(await first.lease.complete({ status: 201, headers, body })).toBe("recorded");
  expect(await lock.acquire(user, submission)).toMatchObject({ outcome: "completed" });
}

describe("the memory of records", () => {
  const measured = records.tableUnder("Memory").map((cells) => {
    const [bytes = 0, usage = 0] = cells.map(numberIn);
    return { bytes, usage };
  });

  test.each(measured)("is, for an answer of $bytes bytes, as it says", async ({ bytes, usage }) => {
    const { port } = await server();
    const lock = openLock({ store: new RedisStore(ioredis6.connect(port)) });
    // As many quotes as the JSON of an order has.
    const body = '{"sku":"5f1c","quantity":1,"cents":2190},'.repeat(bytes / 41 + 1).slice(0, bytes);
    await orderTwice(lock, body || undefined);
    const [key] = (await command(port, "keys", "{*")) as string[];
    const found = Number(await command(port, "memory", "usage", key as string));
    // Other headers, another user id, another server: not to the byte.
    expect(found).toBeGreaterThan(0.6 * usage);
    expect(found).toBeLessThan(1.4 * usage);
  });

  test("is a third more where a body is no text", async () => {
    const { port } = await server();
    const lock = openLock({ store: new RedisStore(ioredis6.connect(port)) });
    const attempt = await lock.acquire("42", { submission: { id: "1" } });
    if (attempt.outcome !== "acquired") throw new Error(attempt.outcome);
    await attempt.lease.complete({ status: 200, body: Buffer.alloc(30_000, 0xff) });
    const [key] = (await command(port, "keys", "{*")) as string[];
    const length = Number(await command(port, "strlen", key as string));
    expect(length).toBeGreaterThan(40_000);
    expect(length).toBeLessThan(40_500);
  });
});

function numberIn(cell: string): number {
  return Number(/^\d[\d\s]*/.exec(cell)?.[0].replace(/\s/g, "") ?? 0);
}

describe("a Redis whose memory is full", () => {
  test("refuses an order and takes the record of one that is under way", async () => {
    const { port } = await server("--maxmemory-policy", "noeviction");
    const lock = openLock({ store: new RedisStore(ioredis6.connect(port)) });
    const submission = { submission: { id: "1" } };
    const attempt = await lock.acquire("42", submission);
    if (attempt.outcome !== "acquired") throw new Error(attempt.outcome);
    await command(port, "config", "set", "maxmemory", "1");
    expect((await lock.acquire("43", submission)).outcome).toBe("unavailable");
    expect(await attempt.lease.complete({ status: 201, body: "placed" })).toBe("recorded");
    expect((await lock.acquire("42", submission)).outcome).toBe("completed");
  });
});

/** The lines of a page that make a Redis user, without the command. */
function aclsIn(blocks: readonly { readonly code: string }[]): string[][] {
  return blocks.flatMap(({ code }) =>
    [...code.matchAll(/^ACL SETUSER (\S+) (.*)$/gm)].map(([, , rules]) =>
      (rules as string).split(/ +/),
    ),
  );
}

async function allow(port: number, rules: readonly string[]): Promise<object> {
  await command(port, "acl", "setuser", "checkout", "reset", ...rules);
  return { username: "checkout", password: "password" };
}

async function denials(port: number): Promise<number> {
  const entries = (await command(port, "acl", "log")) as unknown[];
  // A server of today refuses `CLIENT SETINFO`, and nobody minds.
  return entries.filter((entry) => !JSON.stringify(entry).includes("client|setinfo")).length;
}

describe("the permissions of records", () => {
  const [plain = [], prefixed = []] = aclsIn(permissions.blocks);
  const pattern = "~{lock:submit:*";
  const lockOnly = plain.filter((rule) => rule !== pattern);

  test("are those of the lock and one pattern, which a lock alone can do without", () => {
    expect(plain).toHaveLength(lockOnly.length + 1);
    expect(permissions.prose).toContain(`A lock alone also works without \`${pattern}\``);
  });

  test("are enough", async () => {
    const { port } = await server();
    const redis = ioredis6.connect(port, await allow(port, plain));
    const lock = openLock({ store: new RedisStore(redis) });
    await lock.check({ submissions: true });
    await orderTwice(lock);
    expect(await denials(port)).toBe(0);
  });

  test("are enough with a prefix of the client's", async () => {
    const { port } = await server();
    const options = { ...(await allow(port, prefixed)), keyPrefix: "shop:" };
    const lock = openLock({ store: new RedisStore(ioredis6.connect(port, options)) });
    await lock.check({ submissions: true });
    await orderTwice(lock);
    expect(await denials(port)).toBe(0);
    const keys = (await command(port, "keys", "*")) as string[];
    for (const key of keys) expect(key).toMatch(/^shop:\{shop:lock:submit:.*\}:/);
  });

  test("are one pattern where the client's prefix is a hash tag", async () => {
    const { port } = await server();
    const rules = plain.filter((rule) => rule !== pattern && !rule.startsWith("~lock"));
    const options = {
      ...(await allow(port, [...rules, "~{shop}:lock:submit:*"])),
      keyPrefix: "{shop}:",
    };
    expect(permissions.prose).toContain("`~{shop}:lock:submit:*`");
    const lock = openLock({ store: new RedisStore(ioredis6.connect(port, options)) });
    await lock.check({ submissions: true });
    await orderTwice(lock);
    expect(await denials(port)).toBe(0);
  });

  test("are looked at by check, and a lock alone does without the pattern", async () => {
    const { port } = await server();
    const redis = ioredis6.connect(port, await allow(port, lockOnly));
    const lock = openLock({ store: new RedisStore(redis) });
    await lock.check();
    expect(await acquired(await lock.acquire(freshUser())).lease.release()).toBe("released");
    const refused = { code: "SUBMIT_LOCK_MISCONFIGURED" };
    await expect(lock.check({ submissions: true })).rejects.toMatchObject(refused);
    lock.requireRecords("idempotency");
    await expect(lock.check()).rejects.toMatchObject(refused);
  });
});

describe("a prefix with a brace that is not closed", () => {
  test("is refused on a Cluster, and no matter on one server", async () => {
    const { port } = await server();
    const redis = new Redis(port, "127.0.0.1", { keyPrefix: "a{b:" });
    const lock = openLock({ store: new RedisStore(redis) });
    await orderTwice(lock);
    redis.disconnect();

    const started = await startCluster();
    servers.add(started);
    const nodes = started.ports.map((each) => ({ host: "127.0.0.1", port: each }));
    const cluster = new Cluster(nodes, { keyPrefix: "a{b:" });
    clients.add(cluster);
    const onCluster = openLock({ store: new RedisStore(cluster) });
    expect(() => onCluster.requireRecords("idempotency")).toThrow("keyPrefix");
  });
});

describe("version 0.1 beside this one", () => {
  async function both() {
    const { port } = await server();
    const redis = ioredis6.connect(port);
    const lock = openLock({ store: new RedisStore(ioredis6.connect(port)) });
    return { lock, old: new Version01(redis), redis, key: lock.keyFor("42") };
  }
  const submission = { submission: { id: "cart-1:3" } };

  test("keeps out what this one holds, and does not delete it", async () => {
    const { key, lock, old, redis } = await both();
    for (const options of [undefined, submission]) {
      const attempt = options ? await lock.acquire("42", options) : await lock.acquire("42");
      if (attempt.outcome !== "acquired") throw new Error(attempt.outcome);
      expect(await old.acquire(key)).toBe("contended");
      expect(await old.extend(key)).toBe(false);
      expect(await old.release(key)).toBe(false);
      expect(await redis.get(key)).toContain(attempt.lease.ownerId);
      expect(await attempt.lease.release({ cooldownMs: 200 })).toBe("released");
      // A cooldown keeps it out, too.
      expect(await old.acquire(key)).toBe("contended");
      await until(async () => (await redis.exists(key)) === 0, { what: "the end of the cooldown" });
    }
  });

  test("holds what this one leaves alone", async () => {
    const { key, lock, old, redis } = await both();
    expect(await old.acquire(key)).toBe("acquired");
    const held = await redis.get(key);
    expect((await lock.acquire("42")).outcome).toBe("contended");
    expect(await lock.acquire("42", submission)).toMatchObject({
      outcome: "contended",
      sameSubmission: false,
    });
    expect(await redis.get(key)).toBe(held);
    expect(await redis.pttl(key)).toBeLessThanOrEqual(10_000);
    expect(await old.extend(key)).toBe(true);
    expect(await old.release(key)).toBe(true);
  });

  test("sees no record, so that it runs a submission again", async () => {
    const { key, lock, old } = await both();
    const attempt = await lock.acquire("42", submission);
    if (attempt.outcome !== "acquired") throw new Error(attempt.outcome);
    await attempt.lease.complete({ status: 201, body: "placed" });
    expect(await old.acquire(key)).toBe("acquired");
    // To this version the record counts, whoever holds the lock.
    expect((await lock.acquire("42", submission)).outcome).toBe("completed");
    expect(await old.release(key)).toBe(true);
  });
});
