import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { createClient, createCluster } from "redis";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { LockMisconfiguredError, RedisStore, type SubmitLock } from "../../src/index.ts";
import { portOf, type RedisClient } from "../../src/stores/redis/clients/port-of.ts";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { acquired, causeOf, closeLocks, leaseOf, openLock } from "../support/locks.ts";
import { type KeyObserver, observer } from "../support/observer.ts";
import { type RedisProxy, startProxy } from "../support/proxy.ts";
import { type RedisCluster, startCluster } from "../support/redis-cluster.ts";
import { forTest, type RedisServer, sharedRedisPort, startRedis } from "../support/redis-server.ts";
import { certificate, startTls } from "../support/tls.ts";
import { until } from "../support/until.ts";
import { isAcquire } from "./fixture.ts";

const closing: (() => unknown)[] = [];
afterEach(async () => {
  await closeLocks();
  for (const close of closing.splice(0).reverse()) await close();
});

const times = { ttlMs: 10_000, acquireTimeoutMs: 4_000, commandTimeoutMs: 200 };
const lockOn = (client: RedisClient): SubmitLock =>
  openLock({ store: new RedisStore(client), ...times });

const openProxy = (port: number = sharedRedisPort()): Promise<RedisProxy> =>
  forTest(startProxy(port));

const at = (port: number) => ({ host: "127.0.0.1", port });

/** A client that connects, with a listener for its errors. */
function open(options: Parameters<typeof createClient>[0]) {
  const client = createClient(options);
  closing.push(() => client.destroy());
  client.on("error", () => {});
  void client.connect().catch(() => {});
  return client;
}

async function openReady(options: Parameters<typeof createClient>[0]) {
  const client = open(options);
  await until(() => client.isReady, { what: "the client to be ready" });
  return client;
}

/** A user of a server, who may do everything but what the rules deny. */
async function newUser(redis: KeyObserver, ...rules: string[]) {
  const username = freshUser();
  await redis.send("ACL", "SETUSER", username, "on", ">secret", "~*", "&*", "+@all", ...rules);
  closing.push(() => redis.send("ACL", "DELUSER", username));
  return { username, password: "secret" };
}

/** Acquires while the reply on the first connection is lost: the answer is the second one's. */
async function acquireOnSecond(lock: SubmitLock, proxy: RedisProxy) {
  await (await leaseOf(lock, freshUser())).release();
  const lost = proxy.loseReplyOnce(isAcquire);
  const { confirmed, lease } = acquired(await lock.acquire(freshUser()));
  await lost;
  expect(confirmed).toBe(true);
  return lease;
}

const keysIn = async (database: number, pattern: string): Promise<unknown> => {
  const client = await openReady({ socket: at(sharedRedisPort()), database });
  return client.keys(pattern);
};

describe("a call", () => {
  test("that has not left when the connection is lost never leaves", async () => {
    const proxy = await openProxy();
    const client = await openReady({ socket: at(proxy.port) });
    const port = portOf(client);
    let lost = 0;
    closing.push(port.watch({ lost: () => lost++ }));
    const key = freshUser();
    // In the phase of timers: Node reads the reset before node-redis writes.
    await sleep(1);
    proxy.resetAll();
    await expect(port.ask(["SET", key, "late"])).rejects.toThrow();
    expect(lost).toBe(1);
    await until(() => client.isReady, { what: "the client to be ready again" });
    expect(await client.ping()).toBe("PONG");
    expect(await observer().exists(key)).toBe(false);
  });
});

describe("the second connection is in the database", () => {
  test.each([
    ["of the options", 4, (port: number) => openReady({ socket: at(port), database: 4 })],
    ["of the URL", 5, (port: number) => openReady({ url: `redis://127.0.0.1:${port}/5` })],
    [
      "that was selected before the lock was opened",
      6,
      async (port: number) => {
        const client = await openReady({ url: `redis://127.0.0.1:${port}/5` });
        await client.select(6);
        return client;
      },
    ],
  ])("%s", async (_name, database, connect) => {
    const proxy = await openProxy();
    const lease = await acquireOnSecond(lockOn(await connect(proxy.port)), proxy);
    expect(await keysIn(database, lease.key)).toEqual([lease.key]);
    expect(await observer().exists(lease.key)).toBe(false);
    expect(await lease.release()).toBe("released");
  });
});

test("a user who may not CLIENT INFO is a misconfiguration that says what to permit", async () => {
  const user = await newUser(observer(), "-client|info");
  const client = await openReady({ socket: at(sharedRedisPort()), ...user });
  const cause = causeOf(await lockOn(client).acquire(freshUser()));
  expect(cause).toBeInstanceOf(LockMisconfiguredError);
  expect(cause.message).toContain("+client|info");
});

test("a server without HELLO is a misconfiguration, and its advice helps", async () => {
  const { port } = await forTest(startRedis({ args: ["--rename-command", "HELLO", ""] }));
  const refused = lockOn(open({ socket: at(port) }));
  const said = async () => causeOf(await refused.acquire(freshUser())).message;
  await until(async () => (await said()).includes("set its RESP to 2"), { what: "the advice" });
  await leaseOf(lockOn(await openReady({ socket: at(port), RESP: 2 })), freshUser());
});

test("a ping of the client that fails is not a loss", async () => {
  const user = await newUser(observer(), "-ping");
  const client = await openReady({ socket: at(sharedRedisPort()), ...user, pingInterval: 10 });
  let [errors, lost] = [0, 0];
  client.on("error", () => errors++);
  closing.push(portOf(client).watch({ lost: () => lost++ }));
  const lock = lockOn(client);
  await until(() => errors > 5, { what: "pings to fail" });
  const { confirmed, lease } = acquired(await lock.acquire(freshUser()));
  expect(await lease.release()).toBe("released");
  expect({ confirmed, lost }).toEqual({ confirmed: false, lost: 0 });
});

describe("both connections", () => {
  test("log in as the URL says", async () => {
    const proxy = await openProxy();
    const { username, password } = await newUser(observer());
    const url = `redis://${username}:${password}@127.0.0.1:${proxy.port}/3`;
    const lease = await acquireOnSecond(lockOn(await openReady({ url })), proxy);
    const clients = String(await observer().send("CLIENT", "LIST"));
    const ours = clients.split("\n").filter((line) => line.includes(`user=${username}`));
    expect(ours.filter((line) => line.includes(" db=3 "))).toHaveLength(2);
    expect(await lease.release()).toBe("released");
  });

  test("speak TLS", async () => {
    const proxy = await openProxy();
    const tls = await forTest(startTls(proxy.port));
    const socket = { ...at(tls.port), tls: true as const, ca: certificate };
    const lease = await acquireOnSecond(lockOn(await openReady({ socket })), proxy);
    expect(await lease.release()).toBe("released");
  });

  test("log in with a password that was rotated", async () => {
    const proxy = await openProxy();
    const user = await newUser(observer());
    const client = await openReady({
      socket: at(proxy.port),
      credentialsProvider: {
        type: "async-credentials-provider",
        credentials: async () => ({ ...user }),
      },
    });
    const lock = lockOn(client);
    await (await leaseOf(lock, freshUser())).release();
    user.password = "rotated";
    await observer().send("ACL", "SETUSER", user.username, "resetpass", ">rotated");
    const lease = await acquireOnSecond(lock, proxy);
    expect(await lease.release()).toBe("released");
    proxy.resetAll();
    expect(await (await leaseOf(lock, freshUser())).release()).toBe("released");
  });

  test("use a Unix socket", async () => {
    const folder = mkdtempSync(join(tmpdir(), "submit-lock-socket-"));
    const path = join(folder, "redis.sock");
    closing.push(() => rmSync(folder, { recursive: true }));
    const server: RedisServer = await forTest(startRedis({ args: ["--unixsocket", path] }));
    const lock = lockOn(await openReady({ socket: { path, tls: false } }));
    expect(await (await leaseOf(lock, freshUser())).release()).toBe("released");
    // The first connection is lost, and the second one serves.
    const count = async () =>
      String(await command(server.port, "CLIENT", "LIST", "TYPE", "normal")).split(path).length - 1;
    const before = await count();
    const primary = portOf(open({ socket: { path, tls: false } }));
    expect(primary.address).toBe(path);
    const second = primary.second();
    closing.push(() => second.close());
    await until(() => second.status === "ready", { what: "the second connection" });
    await until(async () => (await count()) >= before + 2, { what: "both to use the socket" });
  });
});

test("the application's listeners stay, and new ones hear, when the last lock is closed", async () => {
  const proxy = await openProxy();
  const client = createClient({ socket: at(proxy.port) });
  closing.push(() => client.destroy());
  const heard: string[] = [];
  client.on("error", () => heard.push("error"));
  client.on("ready", () => heard.push("ready"));
  await client.connect();
  for (let round = 0; round < 2; round++) {
    const lock = openLock({ store: new RedisStore(client) });
    await lock.withLock(freshUser(), {}, () => {});
    await lock.close();
  }
  client.on("ready", () => heard.push("ready, too"));
  heard.length = 0;
  proxy.resetAll();
  await until(() => heard.includes("ready, too"), { what: "the client to be ready again" });
  expect(heard).toEqual(["error", "ready", "ready, too"]);
});

describe("on a Cluster", () => {
  let cluster: RedisCluster;
  beforeAll(async () => {
    cluster = await startCluster(["--cluster-node-timeout", "30000"]);
  });
  afterAll(() => cluster.stop());

  async function openCluster(options: Partial<Parameters<typeof createCluster>[0]>) {
    const client = createCluster({
      rootNodes: cluster.ports.map((port) => ({ socket: at(port) })),
      ...options,
    });
    closing.push(() => client.destroy());
    client.on("error", () => {});
    await client.connect();
    return client;
  }

  /** Twelve users, so that each node has some. */
  async function orderAll(lock: SubmitLock): Promise<void> {
    const users = Array.from({ length: 12 }, freshUser);
    const leases = await Promise.all(users.map((user) => leaseOf(lock, user)));
    const released = await Promise.all(leases.map((lease) => lease.release()));
    expect(new Set(released)).toEqual(new Set(["released"]));
  }

  test("a client that connects to a node when it is needed serves", async () => {
    const client = await openCluster({ minimizeConnections: true });
    // A list that left out a master without a connection would call itself complete.
    const servers = portOf(client).servers();
    expect(servers.map(({ address }) => address).sort()).toEqual(
      cluster.ports.map((port) => `127.0.0.1:${port}`).sort(),
    );
    for (const server of servers) expect(await server.ask(["dbsize"])).toBeTypeOf("number");
    await orderAll(lockOn(client));
  });

  test("every node is logged in to with the defaults' password", async () => {
    const username = freshUser();
    const rules = ["on", ">secret", "~*", "&*", "+@all"];
    for (const port of cluster.ports) await command(port, "ACL", "SETUSER", username, ...rules);
    const client = await openCluster({ defaults: { username, password: "secret" } });
    expect(portOf(client).user).toBe(username);
    await orderAll(lockOn(client));
  });
});
