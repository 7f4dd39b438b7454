import { inspect } from "node:util";
import { afterAll, afterEach, describe, expect, test } from "vitest";
import { LockMisconfiguredError, LockUnavailableError, RedisStore } from "../../src/index.ts";
import { portOf } from "../../src/stores/redis/clients/port-of.ts";
import {
  type AnyRedis,
  closeClients,
  ioredis6,
  redisClients,
  untilReady,
} from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { causeOf, closeLocks, openLock } from "../support/locks.ts";
import { observer } from "../support/observer.ts";
import { forTest, startRedis } from "../support/redis-server.ts";
import { answer, foundBy, submissionOf, submit } from "../support/submissions.ts";
import { until } from "../support/until.ts";
import { isAcquire, openFixture, ownersOf, patient } from "./fixture.ts";

const server = await startRedis({ args: ["--busy-reply-threshold", "1"] });
const redis = observer(server.port);
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

describe.each(redisClients)("with $name", ({ connect }) => {
  test.each([
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

  test("where Redis refuses to write, what only reads is answered, also in a new customer's call", async () => {
    const { lock, proxy } = await openFixture({ connect, port: server.port, ...patient });
    const users = Array.from({ length: 8 }, freshUser);
    for (const user of users) await (await submissionOf(lock, user)).complete(answer);
    const held = freshUser();
    const lease = await submissionOf(lock, held);
    /** In one turn, and in few calls once Redis has said that it has all keys (rule 24). */
    const all = async (added: string) => {
      const attempts = [held, added, ...users].map((user) => submit(lock, user));
      return (await Promise.all(attempts)).map(foundBy);
    };
    const shares = (user: string) =>
      proxy.commands.some((argv) => argv.includes(lock.keyFor(user)) && Number(argv[2]) > 2);
    const isShared = async () => {
      const added = freshUser();
      await all(added);
      return shares(added);
    };
    await until(isShared, { what: "a call that customers share" });
    const added = freshUser();
    await config("min-replicas-to-write", "1");
    const found = await all(added).finally(() => config("min-replicas-to-write", "0"));
    expect(found).toEqual(["contended", "unavailable", ...users.map(() => "order 7")]);
    expect(shares(added)).toBe(true);
    await lease.release();
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

  async function withRules(...rules: string[]) {
    const username = freshUser();
    await redis.send("ACL", "SETUSER", username, "on", ">secret", ...rules);
    const client = connect(server.port, { username, password: "secret" });
    return lockOn(await untilReady(client));
  }

  test.each(["eval", "set", "time"])(
    "a user who may not %s is a misconfiguration",
    async (denied) => {
      const [lock, user] = [await withRules("~*", "+@all", `-${denied}`), freshUser()];
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
    async (denied) => {
      const lock = await withRules("~*", "+@all", `-${denied}`);
      await expect(lock.check()).rejects.toBeInstanceOf(LockMisconfiguredError);
    },
  );

  test("what one entry may not do does not orphan the key of its neighbour", async () => {
    const lock = await withRules("~*", "+@all", "-pttl");
    const [free, held] = [freshUser(), freshUser()];
    await redis.send("SET", `lock:submit:${held}`, "somebody", "PX", 60_000);
    const [first, second] = await Promise.all([lock.acquire(free), lock.acquire(held)]);
    expect(second.outcome).toBe("unavailable");
    if (first.outcome === "acquired") await first.lease.release();
    expect(await redis.exists(`lock:submit:${free}`)).toBe(false);
  });
});

test("where INFO is renamed, ioredis is never ready, and the advice says what to set", async () => {
  const { port } = await forTest(startRedis({ args: ["--rename-command", "INFO", ""] }));
  const connect = (options?: object) =>
    openLock({ store: new RedisStore(ioredis6.connect(port, options)) });
  const refused = async () => causeOf(await connect().acquire(freshUser()));
  await until(async () => (await refused()).message.includes("enableReadyCheck"), {
    what: "the advice",
  });
  const lock = connect({ enableReadyCheck: false });
  await until(async () => (await lock.acquire(freshUser())).outcome === "acquired", {
    what: "the client that follows it",
  });
});

/** Everything that a logger could make of a value. */
const shown = (value: unknown) =>
  inspect(value, { depth: 10, showHidden: true, getters: false }) +
  JSON.stringify(value) +
  (value instanceof Error ? `${value.stack}${JSON.stringify({ ...value })}` : "");

/** Each with the command that breaks Redis; without one, Redis falls silent. */
test.each<[name: string, breakIt?: [string, ...(string | number)[]]]>([
  ["an outage"],
  ["a refusal", ["CONFIG", "SET", "maxmemory", 1]],
])("the owner id stays out of logs of the cause of %s", async (_name, breakIt) => {
  const own = await forTest(startRedis());
  const { lock, proxy } = await openFixture({
    port: own.port,
    acquireTimeoutMs: 200,
    clientOptions: { commandTimeout: 50 },
  });
  if (breakIt === undefined) proxy.holdRequests();
  else await observer(own.port).send(...breakIt);
  const text = shown(causeOf(await lock.acquire(freshUser())));
  const ownerIds = proxy.commands.filter(isAcquire).flatMap(ownersOf);
  expect(ownerIds.length).toBeGreaterThan(0);
  for (const ownerId of ownerIds) expect(text).not.toContain(ownerId);
});
