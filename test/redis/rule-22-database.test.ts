import { afterAll, afterEach, describe, expect, onTestFinished, test } from "vitest";
import {
  LockMisconfiguredError,
  LockUnavailableError,
  RedisStore,
  type SubmissionAttempt,
} from "../../src/index.ts";
import {
  type AnyRedis,
  isNodeRedis,
  redisClients,
  type SharedOptions,
  statusOf,
  untilReady,
} from "../support/clients.ts";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { acquired, causeOf, leaseOf, openLock, saidBy } from "../support/locks.ts";
import { observer } from "../support/observer.ts";
import type { Match } from "../support/proxied-connection.ts";
import { type RedisProxy, startProxy } from "../support/proxy.ts";
import { forTest, startRedis } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { closeFixtures, executed, isAcquire, openFixture } from "./fixture.ts";

const server = await startRedis({ args: ["--busy-reply-threshold", "1"] });
afterAll(() => server.stop());
afterEach(closeFixtures);

const send = (name: string, ...args: (string | number)[]) => command(server.port, name, ...args);
const keyOf = (user: string) => `lock:submit:${user}`;
/** Bounds that a busy machine keeps, so that no second connection is opened unless a test wants it. */
const times = { ttlMs: 40_000, acquireTimeoutMs: 20_000, commandTimeoutMs: 10_000 } as const;
/** For an attempt that finds the first connection silent. */
const hasty = { ...times, commandTimeoutMs: 100 } as const;
/** For an attempt that stays without a connection, and has to be over. */
const brief = { ...times, acquireTimeoutMs: 2_000, commandTimeoutMs: 1_000 } as const;

/** The nth request of this name on a connection; connections are numbered as they come. */
function nth(wanted: string, count: number, on: number): Match {
  let seen = 0;
  return ([name], connection) =>
    name?.toLowerCase() === wanted && connection === on && ++seen === count;
}

/** A user of Redis who may do everything but what is named. */
async function userWithout(...rules: string[]): Promise<{ username: string; password: string }> {
  const username = freshUser();
  await send("ACL", "SETUSER", username, "on", ">secret", "~*", "&*", "+@all", ...rules);
  return { username, password: "secret" };
}

/** Runs a script without an end until `end` is called; the server answers BUSY meanwhile. */
async function makeBusy(connect: (port: number) => AnyRedis): Promise<() => Promise<void>> {
  const running = connect(server.port)
    .eval("while true do end", 0)
    .catch(() => {});
  const refused = async () =>
    /^BUSY/.test(await send("PING").then(String, ({ message }) => message));
  await until(refused, { what: "the server to be busy" });
  const end = async () => {
    await send("SCRIPT", "KILL").catch(() => {});
    await running;
    await until(async () => !(await refused()), { what: "the server to go on" });
  };
  // A test that fails leaves the server as it was.
  onTestFinished(end);
  return end;
}

// A node-redis client is asked for its database: test/redis/node-redis.test.ts.
const ofIoredis = redisClients.filter(({ name }) => !isNodeRedis(name));

describe.each(ofIoredis)("rule 22: the database is proved, with $name", ({ connect }) => {
  const into = (db: number) => connect(server.port, { db });
  const isIn = async (db: number, user: string) => (await into(db).exists(keyOf(user))) === 1;

  /** Somebody's lock in a database, by a client of its own. */
  async function holdIn(db: number, user: string): Promise<void> {
    const client = into(db);
    await untilReady(client);
    const lock = openLock({ store: new RedisStore(client), ...times });
    await leaseOf(lock, user);
    expect(await isIn(db, user)).toBe(true);
  }

  const open = (clientOptions: SharedOptions, lockOptions: object = times) =>
    openFixture({ connect, port: server.port, clientOptions, ...lockOptions });

  const on = (client: AnyRedis, lockOptions: object) =>
    openLock({ store: new RedisStore(client), ...lockOptions });

  test("a database that was selected at run time is kept while the connection is made anew", async () => {
    const { client, lock, proxy } = await open({});
    await client.select(5);
    const user = freshUser();
    await holdIn(5, user);
    // The next connection is accepted, and its handshake never answered.
    void proxy.holdRequestOnce((_argv, connection) => connection === 1);
    proxy.resetAll();
    await until(() => proxy.commands.length > 0 && statusOf(client) === "connect", {
      what: "the client to be in its handshake",
    });
    expect((await lock.acquire(user)).outcome).toBe("contended");
    expect(await isIn(0, user)).toBe(false);
  });

  test("a connection that came up while Redis was busy is not used in database 0", async () => {
    const { client, lock, proxy } = await open({ db: 5, enableReadyCheck: false });
    const user = freshUser();
    await holdIn(5, user);
    expect((await lock.acquire(user)).outcome).toBe("contended");
    const end = await makeBusy(connect);
    await comesUpAnew(client, proxy);
    const selected = await send("SELECT", 5).then(String, ({ message }) => message);
    // Redis refuses SELECT while it is busy, Valkey 9 does not.
    const why = selected === "OK" ? /BUSY/ : /not in database 5 yet.*BUSY/;
    expect(saidBy(causeOf(await on(client, brief).acquire(user)))).toMatch(why);
    await end();
    expect((await lock.acquire(user)).outcome).toBe("contended");
    expect(await isIn(0, user)).toBe(false);
  });

  test("a user who may not select is a misconfiguration that check reports, and +select ends", async () => {
    const account = await userWithout("-select");
    const { lock } = await open({ db: 5, ...account }, brief);
    const user = freshUser();
    const checked = await lock.check().catch((error: unknown) => error);
    expect(checked).toBeInstanceOf(LockMisconfiguredError);
    expect((checked as Error).message).toContain("+select");
    const cause = causeOf(await lock.acquire(user));
    expect(cause).toBeInstanceOf(LockMisconfiguredError);
    expect((cause.cause as Error).message).toMatch(/^NOPERM\b/);
    expect([await isIn(0, user), await isIn(5, user)]).toEqual([false, false]);
    await send("ACL", "SETUSER", account.username, "+select");
    await until(
      () =>
        lock.check().then(
          () => true,
          () => false,
        ),
      { what: "the lock to serve" },
    );
    await (await leaseOf(lock, user)).release();
  });

  test("a second connection whose user may no longer select takes nothing", async () => {
    const account = await userWithout();
    const { client, lock, proxy } = await open({ db: 5, ...account });
    await lock.check();
    await send("ACL", "SETUSER", account.username, "-select");
    void proxy.holdRequestOnce(isAcquire);
    const user = freshUser();
    const cause = causeOf(await on(client, { ...hasty, acquireTimeoutMs: 3_000 }).acquire(user));
    // Of the second connection it is a cause, and no verdict: the first may still be permitted.
    expect(cause).toBeInstanceOf(LockUnavailableError);
    expect(saidBy(cause)).toContain("NOPERM");
    expect([await isIn(0, user), await isIn(5, user)]).toEqual([false, false]);
  });

  test("a database that the server does not have is a misconfiguration with a sentence of its own", async () => {
    const { lock } = await open({ db: 99 }, brief);
    const user = freshUser();
    const checked = await lock.check().catch((error: unknown) => error);
    expect(checked).toBeInstanceOf(LockMisconfiguredError);
    expect((checked as Error).message).toMatch(/does not have the client's database/);
    expect(causeOf(await lock.acquire(user))).toBeInstanceOf(LockMisconfiguredError);
    expect(await isIn(0, user)).toBe(false);
  });

  test("a select at run time takes both connections along, also a second one that is open", async () => {
    const { client, lock, proxy } = await open({}, hasty);
    const held = proxy.holdReplyOnce(isAcquire);
    await (await leaseOf(lock, freshUser())).release();
    await held;
    expect(proxy.connections).toBe(2);
    proxy.releaseHeld();
    await client.select(5);
    const [first, second] = [freshUser(), freshUser()];
    await leaseOf(lock, first);
    expect([await isIn(0, first), await isIn(5, first)]).toEqual([false, true]);
    const lost = proxy.loseReplyOnce(isAcquire);
    const { confirmed } = acquired(await lock.acquire(second));
    await lost;
    expect(confirmed).toBe(true);
    expect([await isIn(0, second), await isIn(5, second)]).toEqual([false, true]);
  });

  test("database 0, selected on a client of another database, is proved too", async () => {
    // The application's select is refused, and leaves the connection in 5.
    const account = await userWithout("-select", "+select|5");
    const { client, lock } = await open({ db: 5, ...account }, brief);
    const user = freshUser();
    await (await leaseOf(lock, user)).release();
    await expect(client.select(0)).rejects.toThrow(/^NOPERM/);
    expect(causeOf(await lock.acquire(user))).toBeInstanceOf(LockMisconfiguredError);
    expect([await isIn(0, user), await isIn(5, user)]).toEqual([false, false]);
    await send("ACL", "SETUSER", account.username, "+select");
    await until(async () => (await lock.acquire(user)).outcome === "acquired", {
      what: "the lock to serve",
    });
    expect([await isIn(0, user), await isIn(5, user)]).toEqual([true, false]);
  });

  test("a proof of the database before a select at run time counts for nothing", async () => {
    const account = await userWithout("-select", "+select|3");
    const { client, lock, proxy } = await open({ db: 3, ...account });
    await lock.check();
    // ioredis selects on its own first; the second SELECT of a connection is the store's.
    const held = proxy.holdReplyOnce(nth("select", 2, 1));
    proxy.resetAll();
    await held;
    const refused = client.select(5).catch(({ message }: Error) => message);
    proxy.releaseHeld();
    expect(await refused).toMatch(/^NOPERM/);
    const user = freshUser();
    expect(causeOf(await on(client, brief).acquire(user))).toBeInstanceOf(LockMisconfiguredError);
    expect([await isIn(0, user), await isIn(3, user)]).toEqual([false, false]);
  });

  test("an answer that never comes proves nothing, and the next connection is asked again", async () => {
    const { lock, proxy } = await open({ db: 5 });
    await lock.check();
    const lost = proxy.loseReplyOnce(nth("select", 2, 1), { resetAfterMs: 0 });
    proxy.resetAll();
    await lost;
    const before = proxy.commands.length;
    const user = freshUser();
    await leaseOf(lock, user);
    expect(await isIn(5, user)).toBe(true);
    const after = proxy.commands.slice(before).map(([name]) => name);
    expect(after.indexOf("select")).toBeGreaterThanOrEqual(0);
    expect(after.indexOf("select")).toBeLessThan(after.indexOf("eval"));
  });

  test("a connection whose database is unproved gets no order, and one that stays so gets a substitute", async () => {
    const { client, lock, proxy } = await open({ db: 5 });
    await lock.check();
    const held = proxy.holdReplyOnce(nth("select", 2, 1));
    proxy.resetAll();
    await held;
    const user = freshUser();
    await leaseOf(on(client, hasty), user);
    expect(await isIn(5, user)).toBe(true);
    expect(proxy.connections).toBe(2);
  });

  test("a first order that comes before the proof waits for it, without another connection", async () => {
    const proxy = await forTest(startProxy(server.port));
    const client = connect(proxy.port, { db: 5 });
    const lock = openLock({ store: new RedisStore(client), ...times });
    const user = freshUser();
    const attempt = new Promise<SubmissionAttempt>((resolve) => {
      client.once("ready", () => void lock.acquire(user).then(resolve));
    });
    acquired(await attempt);
    expect(proxy.connections).toBe(1);
    expect(await isIn(5, user)).toBe(true);
  });

  test("locks that come and go on one client each find it proved", async () => {
    const { client, lock } = await open({ db: 5 });
    const other = openLock({ store: new RedisStore(client), ...times });
    const users = [freshUser(), freshUser(), freshUser()] as const;
    await leaseOf(other, users[0]);
    await lock.close();
    await leaseOf(other, users[1]);
    await other.close({ timeoutMs: 0 });
    await leaseOf(openLock({ store: new RedisStore(client), ...times }), users[2]);
    for (const user of users)
      expect([await isIn(0, user), await isIn(5, user)]).toEqual([false, true]);
  });

  test("an answer that is not OK proves nothing", async () => {
    const { client, lock } = await open({}, brief);
    const user = freshUser();
    // Everything on this connection is queued until the transaction is executed.
    await client.multi({ pipeline: false });
    await client.select(5);
    expect((await lock.acquire(user)).outcome).toBe("unavailable");
    await client.discard();
    expect([await isIn(0, user), await isIn(5, user)]).toEqual([false, false]);
    await leaseOf(lock, user);
    expect([await isIn(0, user), await isIn(5, user)]).toEqual([false, true]);
  });

  test("a call that ioredis sends again in database 0 grants nothing, and its key runs out", async () => {
    const account = await userWithout();
    const { client, lock, proxy } = await open({ db: 5, ...account });
    await lock.check();
    const held = proxy.holdRequestOnce(isAcquire);
    const user = freshUser();
    const short = { ttlMs: 4_000, acquireTimeoutMs: 2_000, commandTimeoutMs: 1_000 };
    const attempt = on(client, short).acquire(user);
    await held;
    await send("ACL", "SETUSER", account.username, "-select");
    proxy.resetAll();
    expect((await attempt).outcome).toBe("unavailable");
    const isItsAcquire = (argv: string[]) => isAcquire(argv) && argv.includes(keyOf(user));
    await until(() => proxy.commands.filter(isItsAcquire).length >= 2, { what: "the re-send" });
    await until(async () => !(await isIn(0, user)), { what: "no key in database 0" });
    expect(await isIn(5, user)).toBe(false);
  });

  test("a select at run time takes along the connection that waits for replicas", async () => {
    await forTest(startRedis({ args: ["--replicaof", `127.0.0.1 ${server.port}`] }));
    const isConnected = async () =>
      /connected_slaves:1/.test(String(await send("INFO", "replication")));
    await until(isConnected, { what: "the replica" });
    const { client, lock } = await open({}, { ...times, storeOptions: { ackReplicas: 1 } });
    await (await leaseOf(lock, freshUser())).release();
    await client.select(5);
    const user = freshUser();
    acquired(await lock.acquire(user));
    expect([await isIn(0, user), await isIn(5, user)]).toEqual([false, true]);
  });

  test("a client on database 0 sends no SELECT, on either connection", async () => {
    const own = await forTest(startRedis());
    const { lock, proxy } = await openFixture({ connect, port: own.port, ...hasty });
    const lost = proxy.loseReplyOnce(isAcquire);
    await (await leaseOf(lock, freshUser())).release();
    await lost;
    expect(proxy.connections).toBe(2);
    proxy.resetAll();
    await (await leaseOf(lock, freshUser())).release();
    expect(proxy.count("select")).toBe(0);
    expect(await executed(observer(own.port), "select")).toBe(0);
  });
});

async function comesUpAnew(client: AnyRedis, proxy: RedisProxy): Promise<void> {
  const closed = new Promise((resolve) => client.once("close", resolve));
  proxy.resetAll();
  await closed;
  await untilReady(client);
}
