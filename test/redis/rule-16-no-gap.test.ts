import { afterAll, afterEach, describe, expect, test } from "vitest";
import type { Lease, SubmitLock } from "../../src/index.ts";
import { record } from "../support/channels.ts";
import { ioredis6, redisClients } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { causeOf } from "../support/locks.ts";
import { observer } from "../support/observer.ts";
import { sharedRedisPort, startRedis } from "../support/redis-server.ts";
import { answer, foundBy, recordKey, submissionOf, submit } from "../support/submissions.ts";
import { until } from "../support/until.ts";
import {
  closeFixtures,
  isAcquire,
  isComplete,
  isRelease,
  openFixture,
  openOrder,
  patient,
} from "./fixture.ts";

afterEach(closeFixtures);

const server = await startRedis();
const redis = observer(server.port);
afterAll(() => server.stop());

/** Counts the pairs of keys of which neither is there. */
const gaps = `local gaps = 0
for i = 1, #KEYS, 2 do
  if redis.call('EXISTS', KEYS[i], KEYS[i + 1]) == 0 then gaps = gaps + 1 end
end
return gaps`;

test("rule 16, P9: at no moment is there neither the lock nor the record", async () => {
  const { lock, proxy } = await openFixture({ ...patient, commandTimeoutMs: 100 });
  const watcher = ioredis6.connect(sharedRedisPort());
  let [orders, looks] = [0, 0];
  for (let round = 0; round < 10; round++) {
    const users = Array.from({ length: 30 }, freshUser);
    const leases = await Promise.all(users.map((user) => submissionOf(lock, user)));
    const keys = leases.flatMap(({ key }) => [key, recordKey(key)]);
    // Half of the rounds lose a reply, so that copies of the same complete follow each other.
    if (round % 2 === 1) void proxy.loseReplyOnce(isComplete, { resetAfterMs: 0 });
    let isOver = false;
    const watching = (async () => {
      while (!isOver) {
        expect(await watcher.eval(gaps, keys.length, ...keys)).toBe(0);
        looks++;
      }
    })();
    const outcomes = await Promise.all(leases.map((lease) => lease.complete(answer)));
    expect(new Set(outcomes)).toEqual(new Set(["recorded"]));
    isOver = true;
    await watching;
    orders += outcomes.length;
  }
  expect(orders).toBe(300);
  expect(looks).toBeGreaterThan(20);
});

describe.each(redisClients)("rule 16: a Redis that is full, with $name", ({ connect }) => {
  /** Without memory for anything but what needs none. */
  async function fill(): Promise<void> {
    await redis.send("CONFIG", "SET", "maxmemory-policy", "noeviction");
    await redis.send("CONFIG", "SET", "maxmemory", "1");
  }
  const empty = () => redis.send("CONFIG", "SET", "maxmemory", "0");
  afterEach(empty);

  /** An order is acquired, then Redis is full. */
  async function openFull(): Promise<{ lock: SubmitLock; user: string; lease: Lease }> {
    const { lock, user, lease } = await openOrder({ connect, port: server.port });
    await fill();
    const { cause } = causeOf(await submit(lock, freshUser()));
    expect((cause as Error).message).toMatch(/^OOM\b/);
    return { lock, user, lease };
  }

  test("keeps the answer and the cooldown", async () => {
    const { lock, user, lease } = await openFull();
    expect(await lease.complete(answer, { cooldownMs: 60_000 })).toBe("recorded");
    expect(await lock.acquire(user)).toMatchObject({ outcome: "contended", isCooldown: true });
    expect(foundBy(await submit(lock, user))).toBe("order 7");
  });

  test("lets go of a lock without an answer, with a cooldown or without", async () => {
    const first = await openFull();
    await empty();
    const second = await openFull();
    expect(await first.lease.release({ cooldownMs: 0 })).toBe("released");
    expect(await redis.exists(first.lease.key)).toBe(false);
    expect(await second.lease.release({ cooldownMs: 60_000 })).toBe("released");
    expect(await redis.get(second.lease.key)).toBe(`cooldown:${second.lease.ownerId}`);
  });
});

describe("rule 16: where the record cannot be written", () => {
  /** A Redis user who may do everything until one command is taken away. */
  async function openWith(command: string) {
    const username = freshUser();
    await redis.send("ACL", "SETUSER", username, "on", ">secret", "~*", "+@all");
    const clientOptions = { username, password: "secret" };
    const bench = await openFixture({ port: server.port, clientOptions });
    const lease = await submissionOf(bench.lock, freshUser());
    await redis.send("ACL", "SETUSER", username, `-${command}`);
    return { ...bench, lease, permit: () => redis.send("ACL", "SETUSER", username, "+@all") };
  }

  test.each(["set", "get"])(
    "the lock stays (no permission to %s), until it can be",
    async (command) => {
      const { lease, proxy, permit } = await openWith(command);
      const completing = lease.complete(answer);
      const tries = () => proxy.commands.filter(isComplete).length;
      await until(() => tries() > 1, { what: "a second try" });
      expect(await redis.ownerOf(lease.key)).toBe(lease.ownerId);
      expect(await redis.exists(recordKey(lease.key))).toBe(false);
      await permit();
      expect(await completing).toBe("recorded");
      expect(await redis.exists(lease.key)).toBe(false);
      expect(proxy.commands.some(isRelease)).toBe(false);
    },
  );
});

test("rule 16: a record beats the lock that a copy of the same attempt has taken, and that is retired", async () => {
  const { lock, proxy, redis: shared } = await openFixture({ commandTimeoutMs: 700 });
  const { lock: other } = await openFixture();
  const user = freshUser();
  const retire = record("submit-lock:retire", lock.keyFor(user));
  const lease = await submissionOf(other, user);
  await shared.send("DEL", lease.key);
  const lost = proxy.loseReplyOnce(isAcquire);
  const attempt = submit(lock, user);
  await lost;
  // The first copy has taken the key, and nobody has heard of it.
  expect(await shared.ownerOf(lease.key)).not.toBe(lease.ownerId);
  expect(await lease.complete(answer)).toBe("late");
  expect(foundBy(await attempt)).toBe("order 7");
  await until(async () => !(await shared.exists(lease.key)), { what: "the key to be given back" });
  await until(() => retire.length > 0, { what: "the owner id to be retired" });
  expect(retire).toMatchObject([{ outcome: "final" }]);
  expect(foundBy(await submit(lock, user))).toBe("order 7");
});
