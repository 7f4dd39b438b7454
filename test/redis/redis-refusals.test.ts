import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { LockMisconfiguredError, LockUnavailableError, RedisStore } from "../../src/index.ts";
import { portOf } from "../../src/stores/redis/clients/port-of.ts";
import {
  type AnyRedis,
  closeClients,
  isNodeRedis,
  redisClients,
  untilReady,
} from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { causeOf, closeLocks, openLock } from "../support/locks.ts";
import { type KeyObserver, observer } from "../support/observer.ts";
import { type RedisServer, startRedis } from "../support/redis-server.ts";

let server: RedisServer;
let redis: KeyObserver;
beforeAll(async () => {
  server = await startRedis({ args: ["--busy-reply-threshold", "1"] });
  redis = observer(server.port);
});
afterAll(() => server.stop());
afterEach(async () => {
  await closeLocks();
  closeClients();
});

/** Far more than any test takes, so that a test that waits for the budget is seen to. */
const acquireTimeoutMs = 20_000;
const lockOn = (client: AnyRedis) =>
  openLock({ store: new RedisStore(client), ttlMs: 40_000, acquireTimeoutMs });
const config = (name: string, value: string) => redis.send("CONFIG", "SET", name, value);

describe.each(redisClients)("with $name", ({ name, connect }) => {
  test.each([
    {
      error: "READONLY",
      begin: () => redis.send("REPLICAOF", "127.0.0.1", 1),
      end: () => redis.send("REPLICAOF", "NO", "ONE"),
    },
    {
      error: "MASTERDOWN",
      begin: async () => {
        await config("replica-serve-stale-data", "no");
        await redis.send("REPLICAOF", "127.0.0.1", 1);
      },
      end: async () => {
        await redis.send("REPLICAOF", "NO", "ONE");
        await config("replica-serve-stale-data", "yes");
      },
    },
    {
      error: "OOM",
      begin: () => config("maxmemory", "1"),
      end: () => config("maxmemory", "0"),
    },
    {
      error: "NOREPLICAS",
      begin: () => config("min-replicas-to-write", "1"),
      end: () => config("min-replicas-to-write", "0"),
    },
  ])("$error makes the lock unavailable at once, and leaves nothing", async (row) => {
    const client = connect(server.port);
    await untilReady(client);
    const [lock, user] = [lockOn(client), freshUser()];
    await row.begin();
    const from = performance.now();
    const attempt = await lock.acquire(user).finally(row.end);
    expect(performance.now() - from).toBeLessThan(acquireTimeoutMs / 2);
    const cause = causeOf(attempt);
    expect(cause).toBeInstanceOf(LockUnavailableError);
    expect((cause.cause as Error).message).toMatch(new RegExp(`^${row.error}\\b`));
    expect(await redis.exists(`lock:submit:${user}`)).toBe(false);
    await lock.withLock(user, {}, () => {});
  });

  test("a Redis that is busy with a script makes the lock unavailable at once", async () => {
    const [client, other] = [connect(server.port), connect(server.port)];
    await Promise.all([untilReady(client), untilReady(other)]);
    const [lock, user] = [lockOn(client), freshUser()];
    const words = ["eval", "while true do end", "0"];
    const endless = portOf(other)
      .ask(words)
      .catch(() => "killed");
    let attempt = await lock.acquire(user);
    // Until the threshold has passed, Redis is merely silent.
    while (attempt.outcome === "acquired") attempt = await lock.acquire(user);
    await redis.send("SCRIPT", "KILL");
    expect(await endless).toBe("killed");
    expect((causeOf(attempt).cause as Error).message).toMatch(/^BUSY\b/);
    expect(await redis.exists(`lock:submit:${user}`)).toBe(false);
  });

  test.each(["eval", "set", "time"])(
    "a user who may not %s is a misconfiguration",
    async (name) => {
      const acl = freshUser();
      await redis.send("ACL", "SETUSER", acl, "on", ">secret", "~*", "+@all", `-${name}`);
      const client = connect(server.port, { username: acl, password: "secret" });
      await untilReady(client);
      const [lock, user] = [lockOn(client), freshUser()];
      const from = performance.now();
      expect(causeOf(await lock.acquire(user))).toBeInstanceOf(LockMisconfiguredError);
      await expect(lock.check()).rejects.toMatchObject({
        code: "SUBMIT_LOCK_MISCONFIGURED",
        status: 503,
        statusCode: 503,
        expose: false,
      });
      const waiting = lock.withLock(user, { waitMs: 60_000 }, () => {});
      await expect(waiting).rejects.toBeInstanceOf(LockMisconfiguredError);
      expect(performance.now() - from).toBeLessThan(acquireTimeoutMs / 2);
      expect(await redis.exists(`lock:submit:${user}`)).toBe(false);
    },
  );

  test.each(["get", "pttl", "pexpire", "del"])(
    "check finds out that a user may not %s, before an order does",
    async (name) => {
      const acl = freshUser();
      await redis.send("ACL", "SETUSER", acl, "on", ">secret", "~*", "+@all", `-${name}`);
      const client = connect(server.port, { username: acl, password: "secret" });
      await untilReady(client);
      await expect(lockOn(client).check()).rejects.toBeInstanceOf(LockMisconfiguredError);
    },
  );

  test("what one entry may not do does not orphan the key of its neighbour", async () => {
    const acl = freshUser();
    await redis.send("ACL", "SETUSER", acl, "on", ">secret", "~*", "+@all", "-pttl");
    const client = connect(server.port, { username: acl, password: "secret" });
    await untilReady(client);
    const [lock, free, held] = [lockOn(client), freshUser(), freshUser()];
    await redis.send("SET", `lock:submit:${held}`, "somebody", "PX", 60_000);
    const attempts = [lock.acquire(free), lock.acquire(held)];
    const [first, second] = await Promise.all(attempts);
    expect(second?.outcome).toBe("unavailable");
    if (first?.outcome === "acquired") await first.lease.release();
    expect(await redis.exists(`lock:submit:${free}`)).toBe(false);
  });

  test("a user who may not touch the key is a misconfiguration", async () => {
    const acl = freshUser();
    await redis.send("ACL", "SETUSER", acl, "on", ">secret", "~cache:*", "+@all");
    const client = connect(server.port, { username: acl, password: "secret" });
    await untilReady(client);
    const cause = causeOf(await lockOn(client).acquire(freshUser()));
    expect(cause).toBeInstanceOf(LockMisconfiguredError);
    expect((cause.cause as Error).message).toMatch(/^NOPERM\b/);
  });

  test("a Redis whose password is not given is a misconfiguration", async () => {
    const closed = await startRedis({ args: ["--requirepass", "secret"] });
    // Without the ready check, the first answer is the one to our own command.
    const client = connect(closed.port, { enableReadyCheck: false, ...resp2 });
    // node-redis greets with the password, and is not ready without one.
    if (!isNodeRedis(name)) await untilReady(client);
    const lock = lockOn(client);
    await expect(lock.check()).rejects.toBeInstanceOf(LockMisconfiguredError);
    expect(causeOf(await lock.acquire(freshUser()))).toBeInstanceOf(LockMisconfiguredError);
    await closed.stop();
  });

  test("a Redis without EVAL is a misconfiguration", async () => {
    const without = await startRedis({ args: ["--rename-command", "EVAL", ""] });
    const client = connect(without.port);
    await untilReady(client);
    const lock = lockOn(client);
    await expect(lock.check()).rejects.toBeInstanceOf(LockMisconfiguredError);
    const cause = causeOf(await lock.acquire(freshUser()));
    expect((cause.cause as Error).message).toMatch(/unknown command/i);
    await without.stop();
  });
});

// ioredis 6 would send HELLO first; ioredis 5 does not know the option.
const resp2 = { protocol: 2 } as object;
