import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import {
  InvalidOptionError,
  LockMisconfiguredError,
  LockUnavailableError,
  type RedisClient,
  RedisStore,
} from "../../src/index.ts";
import { slotOf } from "../../src/stores/redis/clients/slots.ts";
import { asking } from "../support/asking.ts";
import { record } from "../support/channels.ts";
import { closeClients, clusterClients, redisClients, untilReady } from "../support/clients.ts";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { causeOf, closeLocks, leaseOf, openLock } from "../support/locks.ts";
import { observer } from "../support/observer.ts";
import { type RedisCluster, startCluster } from "../support/redis-cluster.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import {
  answer,
  foundBy,
  onceOf,
  recordKey,
  recordOf,
  submissionOf,
  submit,
} from "../support/submissions.ts";

const redis = observer();
afterEach(async () => {
  await closeLocks();
  closeClients();
});

/** A prefix as the client is given it. */
const keyPrefix = (prefix: string | Buffer) => ({ keyPrefix: prefix as string });

/** Far more than any test takes, so that a test that waits for the budget is seen to. */
const acquireTimeoutMs = 20_000;

async function lockOn(connected: Promise<unknown>) {
  const client = (await connected) as RedisClient;
  return openLock({ store: new RedisStore(client), ttlMs: 40_000, acquireTimeoutMs });
}

const prefixes: [what: string, prefix: string | Buffer][] = [
  ["no prefix", ""],
  ["a prefix", "shop:"],
  ["a prefix with a hash tag", "{shop}:"],
  ["a prefix with a hash tag in its middle", "a{shop}b:"],
  ["a prefix in bytes", Buffer.from("shöp:")],
];

/** None of them closes a hash tag, so none can put two keys in one slot but whole ones. */
const impossible = ["a{b:", "a}b:", "{}:", "}{:"];

describe.each(clusterClients)("records on a Cluster, with $name", ({ connect }) => {
  let cluster: RedisCluster;
  beforeAll(async () => {
    cluster = await startCluster();
  });
  afterAll(() => cluster.stop());

  async function keysOf(user: string): Promise<string[]> {
    const all = cluster.ports.map((port) => command(port, "KEYS", `*${user}*`));
    return ((await Promise.all(all)) as string[][]).flat();
  }

  test.each(prefixes)("with %s lie in the slot of their lock", async (_what, prefix) => {
    for (const options of [keyPrefix(prefix), { redisOptions: keyPrefix(prefix) }]) {
      const lock = await lockOn(untilReady(connect(cluster.ports, options as object)));
      await lock.check({ submissions: true });
      const user = freshUser();
      const lease = await submissionOf(lock, user);
      const [held] = await keysOf(user);
      expect(held).toBe(`${prefix}lock:submit:${user}`);
      expect(await lease.complete(answer)).toBe("recorded");
      const [kept = "", ...more] = await keysOf(user);
      expect(more).toEqual([]);
      expect(slotOf(kept)).toBe(slotOf(held as string));
      expect(foundBy(await submit(lock, user))).toBe("order 7");
    }
  });

  test.each(impossible)(
    "with the prefix %j cannot be kept, which is said at once; the lock alone works",
    async (prefix) => {
      const client = connect(cluster.ports, keyPrefix(prefix) as object);
      const lock = await lockOn(untilReady(client));
      const said = expect.objectContaining({
        code: "SUBMIT_LOCK_INVALID_OPTION",
        message: expect.stringMatching(/client.s keyPrefix ".*different Cluster slots/),
      });
      expect(() => lock.requireRecords("idempotency")).toThrow(said);
      await expect(submit(lock, freshUser())).rejects.toEqual(said);
      await expect(lock.check({ submissions: true })).rejects.toEqual(said);
      const lease = await leaseOf(lock, freshUser());
      await expect(lease.release.bind(lease, { cooldownMs: 1 })).toThrow(said);
      expect(await lease.release()).toBe("released");
      await lock.check();
    },
  );

  test("with a prefix that is no text cannot be kept", async () => {
    const options = keyPrefix(Buffer.from([0xff, 0xfe])) as object;
    const lock = await lockOn(untilReady(connect(cluster.ports, options)));
    expect(() => lock.requireRecords("idempotency")).toThrow(InvalidOptionError);
  });
});

describe.each(redisClients)("records on one server, with $name", ({ connect, rights = [] }) => {
  test("are found by the first call of a process, whose client is connecting", async () => {
    const [user, submission] = [freshUser(), { id: "cart 7" }];
    const open = () => lockOn(Promise.resolve(connect(sharedRedisPort())));
    await (await open()).once(user, submission, () => 7);
    const found = { outcome: "completed", answer: { returned: { value: 7 } } };
    for (let calls = 1; calls <= 5; calls++) {
      expect(await (await open()).lookUp(user, { submission })).toMatchObject(found);
    }
  });

  const connected = (options: object = {}) => untilReady(connect(sharedRedisPort(), options));

  test.each([...prefixes, ...impossible.map((prefix) => [prefix, prefix] as const)])(
    "with %s are where a Cluster would have them",
    async (_what, prefix) => {
      const lock = await lockOn(connected(keyPrefix(prefix)));
      const user = freshUser();
      await (await submissionOf(lock, user)).complete(answer);
      expect(foundBy(await submit(lock, user))).toBe("order 7");
      const whole = `${prefix}lock:submit:${user}`;
      const hasTag = /\{[^}]+\}/.test(whole);
      const braced = recordKey(whole);
      const kept = hasTag ? braced.replace(`{${whole}}`, whole) : `${prefix}${braced}`;
      expect(await redis.send("KEYS", `*${user}*`)).toEqual([kept]);
    },
  );

  describe("for a user without their pattern", () => {
    /** As the README has it, and what an order with an id needs besides. */
    const may = [
      "+eval",
      "+evalsha",
      "+get",
      "+set",
      "+pttl",
      "+pexpire",
      "+del",
      "+time",
      "+info",
      ...rights,
    ];
    const pattern = { lock: "~lock:submit:*", record: "~{lock:submit:*" };

    async function lockOf(...patterns: string[]) {
      const username = freshUser();
      await redis.send("ACL", "SETUSER", username, "on", ">secret", ...patterns, ...may);
      const options = { username, password: "secret" };
      const lock = await lockOn(connected(options));
      return {
        lock,
        permit: (...more: string[]) => redis.send("ACL", "SETUSER", username, ...more),
      };
    }

    test("a lock alone needs no new permission", async () => {
      const { lock } = await lockOf(pattern.lock);
      await lock.check();
      await lock.check({ submissions: false });
      const user = freshUser();
      const lease = await leaseOf(lock, user);
      expect((await lock.acquire(user)).outcome).toBe("contended");
      expect(await lease.release({ cooldownMs: 1 })).toBe("released");
    });

    test("a submission is a misconfiguration that takes nothing, and check finds it from then on", async () => {
      const { lock, permit } = await lockOf(pattern.lock);
      const user = freshUser();
      await lock.check();
      const from = performance.now();
      const checked = () => lock.check({ submissions: true });
      await expect(checked()).rejects.toBeInstanceOf(LockMisconfiguredError);
      expect(performance.now() - from).toBeLessThan(acquireTimeoutMs / 2);
      await lock.check();
      const cause = causeOf(await submit(lock, user));
      expect(cause).toBeInstanceOf(LockMisconfiguredError);
      expect((cause.cause as Error).message).toMatch(/^NOPERM\b/);
      expect(await redis.exists(lock.keyFor(user))).toBe(false);
      await expect(lock.check()).rejects.toBeInstanceOf(LockMisconfiguredError);
      await (await leaseOf(lock, user)).release();
      await permit(pattern.record);
      await checked();
      await (await submissionOf(lock, user)).complete(answer);
    });
  });

  describe("of which something else has taken the place", () => {
    const rubbish: [what: string, command: [string, ...(string | number)[]]][] = [
      ["an empty text", ["SET", ""]],
      ["a long text", ["SET", "x".repeat(500)]],
      ["JSON", ["SET", JSON.stringify({ status: 201, body: "x".repeat(80) })]],
      ["what begins as a record does", ["SET", "1".repeat(500)]],
      ["a record of a later version", ["SET", `2${recordOf(onceOf()).slice(1)}`]],
      ["half a record", ["SET", recordOf(onceOf()).slice(0, 70)]],
      ["a list", ["RPUSH", "a", "b"]],
      ["a stream", ["XADD", "1-1", "field", "value"]],
    ];

    test.each(rubbish)(
      "(%s) never run and are never overwritten, and nothing else is",
      async (what, [name, ...args]) => {
        const lock = await lockOn(connected());
        const [user, other] = [freshUser(), freshUser()];
        const [key, late] = [recordKey(lock.keyFor(user)), recordKey(lock.keyFor(other))];
        // While the order is worked on.
        const complete = record("submit-lock:complete", lock.keyFor(other));
        const lease = await submissionOf(lock, other);
        for (const each of [key, late]) await redis.send(name, each, ...args);
        const was = await redis.dump(key);
        // Half a record is somebody's record, as far as a script can see.
        if (what !== "half a record") {
          expect(await lease.complete(answer)).toBe("unconfirmed");
          expect(complete[0]?.cause?.message).toMatch(/submit-lock did not write. Delete it/);
          expect(await redis.dump(late)).toEqual(was);
          expect(await redis.exists(lease.key)).toBe(false);
        }
        const from = performance.now();
        const attempt = await submit(lock, user);
        const seen = await lock.lookUp(user, { submission: { id: "cart 7" } });
        if (what === "half a record") {
          const unreadable = { answer: { status: 100, unreadable: "damaged" } };
          expect(attempt).toMatchObject({ outcome: "completed", ...unreadable });
          expect(seen).toMatchObject({ outcome: "completed", ...unreadable });
        } else {
          expect(causeOf(attempt)).toBeInstanceOf(LockUnavailableError);
          expect(causeOf(attempt).message).toMatch(/record/);
          // Said at once: asking again would not change it.
          expect(performance.now() - from).toBeLessThan(acquireTimeoutMs / 2);
          expect(seen).toEqual({ outcome: "unknown" });
        }
        expect(await redis.exists(lock.keyFor(user))).toBe(false);
        await (await leaseOf(lock, user)).release();
        await (await submissionOf(lock, user, { id: "cart 8" })).complete(answer);
        expect(await redis.dump(key)).toEqual(was);
        await redis.send("DEL", key);
        await (await submissionOf(lock, user)).complete(answer);
      },
    );

    test("of a gathered call, the neighbours' are read and written all the same", async () => {
      const store = new RedisStore((await connected()) as RedisClient);
      // A node-redis client is asked for its database before the first call.
      await openLock({ store }).withLock(freshUser(), { waitMs: 10_000 }, () => {});
      const asked = asking(store);
      const orders = Array.from({ length: 9 }, () => onceOf());
      const odd = orders[4] as (typeof orders)[number];
      const oddKey = recordKey(odd.key).replace(/[^:]+$/, odd.submission?.id ?? "");
      await redis.send("RPUSH", oddKey, "a");
      const acquired = orders.map((order) => asked.acquire(order).reply);
      const kinds = (await Promise.all(acquired)).map(({ kind }) => kind);
      expect(kinds).toEqual(orders.map((order) => (order === odd ? "rejected" : "taken")));
      const expiresAtMs = Date.now() + 60_000;
      const completed = orders.map(
        (order) => asked.complete(order, { record: recordOf(order), expiresAtMs }).reply,
      );
      expect((await Promise.all(completed)).map(({ kind }) => kind)).toEqual(
        orders.map((order) => (order === odd ? "unrecordable" : "recorded")),
      );
      await redis.send("DEL", oddKey);
    });
  });
});
