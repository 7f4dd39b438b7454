import { afterEach, describe, expect, test } from "vitest";
import { MemoryStore, RedisStore, type SubmitLock } from "../../src/index.ts";
import type { RepeatAttempt } from "../../src/lock/repeats.ts";
import { identify } from "../../src/lock/submission.ts";
import { closeClients, ioredis6, untilReady } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, openLock } from "../support/locks.ts";
import { observer } from "../support/observer.ts";
import { startProxy } from "../support/proxy.ts";
import { forTest, sharedRedisPort, startRedis } from "../support/redis-server.ts";
import { submissionOf } from "../support/submissions.ts";
import { until } from "../support/until.ts";

afterEach(async () => {
  await closeLocks();
  closeClients();
});

const times = { ttlMs: 20_000, acquireTimeoutMs: 10_000, commandTimeoutMs: 3_000 } as const;
const declined = { status: 402, headers: { "content-type": "text/plain" }, body: "declined" };

async function onRedis(port: number = sharedRedisPort()): Promise<SubmitLock> {
  const client = ioredis6.connect(port);
  await untilReady(client);
  return openLock({ store: new RedisStore(client), ...times });
}

/** A repeat of cart 7 that waits, or of other content. */
function waits(lock: SubmitLock, user: string, fingerprint?: string): Promise<RepeatAttempt> {
  const identity = identify(user, { id: "cart 7", fingerprint });
  return lock.acquireOrWait(user, { identity }, 30_000);
}

async function areWaiting(lock: SubmitLock, count: number): Promise<void> {
  await until(() => lock.stats().waiting === count, { what: `${count} to wait` });
}

const told = { outcome: "told", answer: { status: 402, headers: declined.headers } };
const bodyOf = (seen: RepeatAttempt) => "answer" in seen && `${seen.answer.body}`;

describe.each([
  ["MemoryStore", async () => openLock({ store: new MemoryStore(), ...times })],
  ["RedisStore", onRedis],
])("rule 25 on %s: whoever waits", (_name, open) => {
  test("is told the answer of the run it waits for, and one that comes later runs", async () => {
    const [lock, user] = [await open(), freshUser()];
    const lease = await submissionOf(lock, user);
    const waiting = [waits(lock, user), waits(lock, user)];
    await areWaiting(lock, 2);
    expect(await lease.release({ told: declined })).toBe("released");
    for (const each of await Promise.all(waiting)) {
      expect(each).toMatchObject(told);
      expect(bodyOf(each)).toBe("declined");
    }
    const later = await waits(lock, user);
    expect(later.outcome).toBe("acquired");
    expect(await lock.lookUp(user, { submission: { id: "cart 7" } })).toEqual({
      outcome: "in-flight",
    });
  });

  test("is told nothing by a run that tells nothing, nor by an earlier one", async () => {
    const [lock, user] = [await open(), freshUser()];
    await (await submissionOf(lock, user)).release({ told: declined });
    const second = await submissionOf(lock, user);
    const waiting = waits(lock, user);
    await areWaiting(lock, 1);
    await second.release();
    expect(await waiting).toMatchObject({ outcome: "contended", hasEnded: true, expiresInMs: 0 });
  });

  test("is told by its own run, where a later one is at work before it looks", async () => {
    const [lock, user] = [await open(), freshUser()];
    const first = await submissionOf(lock, user);
    const waiting = waits(lock, user);
    await areWaiting(lock, 1);
    const ended = first.release({ told: declined });
    const second = await submissionOf(lock, user);
    const later = waits(lock, user);
    expect(await waiting).toMatchObject(told);
    await ended;
    await areWaiting(lock, 1);
    await second.release({ told: { status: 409, body: "sold out" } });
    expect(bodyOf(await later)).toBe("sold out");
  });

  test("with other content is mismatched, and is told nothing", async () => {
    const [lock, user] = [await open(), freshUser()];
    const lease = await submissionOf(lock, user, { fingerprint: "Visa" });
    const waiting = waits(lock, user, "Visa");
    await areWaiting(lock, 1);
    expect(await waits(lock, user, "Mastercard")).toMatchObject({ outcome: "mismatched" });
    await lease.release({ told: declined });
    expect(await waiting).toMatchObject(told);
    expect((await waits(lock, user, "Mastercard")).outcome).toBe("acquired");
  });
});

describe("rule 25: a release that tells", () => {
  test("crosses processes, lets the lock go in the same call, and is gone within seconds", async () => {
    const server = await forTest(startRedis());
    const [one, other, user] = [
      await onRedis(server.port),
      await onRedis(server.port),
      freshUser(),
    ];
    const redis = observer(server.port);
    const lease = await submissionOf(one, user);
    const waiting = waits(other, user);
    await areWaiting(other, 1);
    await lease.release({ told: declined });
    expect(await waiting).toMatchObject(told);
    const keys = (await redis.send("KEYS", "*")) as string[];
    expect(keys.map((key) => key.replace(/^\{.*\}:[\w-]{22}/, ""))).toEqual([":told"]);
    const life = Number(await redis.send("PTTL", keys[0] as string));
    expect(life).toBeGreaterThan(0);
    expect(life).toBeLessThanOrEqual(1_000 + times.commandTimeoutMs);
  });

  test("lets the lock go where a full Redis cannot keep what it tells", async () => {
    const server = await forTest(startRedis());
    const [lock, user] = [await onRedis(server.port), freshUser()];
    const redis = observer(server.port);
    const lease = await submissionOf(lock, user);
    const waiting = waits(lock, user);
    await areWaiting(lock, 1);
    await redis.send("CONFIG", "SET", "maxmemory", "1");
    expect(await lease.release({ told: declined })).toBe("released");
    await redis.send("CONFIG", "SET", "maxmemory", "0");
    expect((await waiting).outcome).toMatch(/^(told|contended)$/);
    expect((await waits(lock, user)).outcome).toBe("acquired");
  });

  test("is released where its reply is lost, and whoever waits is told", async () => {
    const proxy = await startProxy(sharedRedisPort());
    try {
      const [lock, other] = [await onRedis(proxy.port), await onRedis()];
      const user = freshUser();
      const lease = await submissionOf(lock, user);
      const waiting = waits(other, user);
      await areWaiting(other, 1);
      const lost = proxy.loseReplyOnce((argv) => argv.includes(lease.ownerId), { resetAfterMs: 0 });
      expect(await lease.release({ told: declined })).toBe("released");
      await lost;
      expect(await waiting).toMatchObject(told);
    } finally {
      await proxy.stop();
    }
  });
});
