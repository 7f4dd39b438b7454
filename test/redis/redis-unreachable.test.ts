import type { Redis } from "ioredis";
import { createClient, createCluster } from "redis";
import { afterEach, describe, expect, onTestFinished, test, vi } from "vitest";
import {
  LockMisconfiguredError,
  LockUnavailableError,
  RedisStore,
  type SubmitLock,
} from "../../src/index.ts";
import { portOf } from "../../src/stores/redis/clients/port-of.ts";
import { slotOf } from "../../src/stores/redis/clients/slots.ts";
import { toNoAnswer } from "../../src/stores/redis/redis-errors.ts";
import { record } from "../support/channels.ts";
import {
  closeClient,
  closeClients,
  cluster6,
  ioredis6,
  isNodeRedis,
  redisClients,
  statusOf,
  untilReady,
} from "../support/clients.ts";
import { freePort } from "../support/free-port.ts";
import { freshUser } from "../support/ids.ts";
import {
  acquired,
  causeOf as causeOfAttempt,
  closeLocks,
  openLock,
  saidBy,
} from "../support/locks.ts";
import { startProxy } from "../support/proxy.ts";
import { startCluster } from "../support/redis-cluster.ts";
import { forTest, sharedRedisPort, startRedis } from "../support/redis-server.ts";
import { userOnFirst } from "../support/slot-move.ts";
import { until } from "../support/until.ts";
import { untilUsable } from "./fixture.ts";

afterEach(async () => {
  vi.restoreAllMocks();
  await closeLocks();
  closeClients();
});

type Client = ConstructorParameters<typeof RedisStore>[0];
const quick = { ttlMs: 2_000, acquireTimeoutMs: 500, commandTimeoutMs: 50 } as const;
const lockOn = (client: Client) => openLock({ store: new RedisStore(client), ...quick });
/** The cause of an attempt, once there is one that says this: a busy machine may take its time. */
async function causeOf(lock: SubmitLock, said: RegExp): Promise<Error> {
  return await until(
    async () => {
      const cause = causeOfAttempt(await lock.acquire(freshUser()));
      return said.test(saidBy(cause)) && cause;
    },
    { what: `a cause that says ${said}` },
  );
}

describe.each(redisClients)(
  "a Redis that cannot be used says where and why, with $name",
  ({ name, connect }) => {
    const listening = [
      ["listens to errors", true],
      ["does not listen to errors, which ioredis goes on logging", false],
    ] as const;
    // node-redis ends the process at an error that nobody listens to.
    test.each(listening.slice(0, isNodeRedis(name) ? 1 : 2))(
      "nobody is there, and the application %s",
      async (_name, listens) => {
        const port = await freePort();
        const log = vi.spyOn(console, "error").mockImplementation(() => {});
        const client = connect(port);
        if (!listens) client.removeAllListeners("error");
        const listeners = client.listenerCount("error");
        const error = await causeOf(lockOn(client), /ECONNREFUSED/);
        expect(error).toBeInstanceOf(LockUnavailableError);
        expect(error.message).toContain(
          `no answer within 500 ms, and the last request was not executed: the connection to 127.0.0.1:${port} is "`,
        );
        expect(saidBy(error)).toContain(`" < connect ECONNREFUSED 127.0.0.1:${port}`);
        expect(error.cause).toMatchObject({ code: "ECONNREFUSED" });
        expect(client.listenerCount("error")).toBe(listeners);
        expect(log.mock.calls.length > 0).toBe(!listens);
      },
    );

    test("somebody accepts the connection and says nothing", async () => {
      const proxy = await forTest(startProxy(sharedRedisPort()));
      proxy.swallowRequests(true);
      const error = await causeOf(lockOn(connect(proxy.port)), /"connect"/);
      expect(error.message).toContain(`the connection to 127.0.0.1:${proxy.port} is "connect"`);
      expect(error).not.toHaveProperty("cause");
    });

    test("it was there, and has fallen silent", async () => {
      const proxy = await forTest(startProxy(sharedRedisPort()));
      const client = connect(proxy.port);
      const lock = lockOn(client);
      await lock.withLock(freshUser(), { waitMs: 10_000 }, () => {});
      proxy.swallowRequests(true);
      // The first is written while nothing is known yet; a later one is not written at all.
      const error = await causeOf(lock, /the last request was not executed/);
      expect(error.message).toContain(`the connection to 127.0.0.1:${proxy.port} is silent`);
      closeClients();
    });

    test("what kept it away before is no cause of what happens after it came back", async () => {
      const proxy = await forTest(startProxy(sharedRedisPort()));
      await proxy.refuse(true);
      const client = connect(proxy.port);
      const lock = lockOn(client);
      await causeOf(lock, /ECONNREFUSED/);
      await proxy.refuse(false);
      await untilUsable(client);
      closeClient(client);
      await until(() => statusOf(client) === "end", { what: "its end" });
      const error = await causeOf(lock, /"end"/);
      expect(error.message).toContain(`the connection to 127.0.0.1:${proxy.port} is "end"`);
      expect(error.cause).not.toHaveProperty("cause");
    });

    test.each([
      ["no password", {}, /NOAUTH/],
      ["a wrong password", { password: "wrong" }, /WRONGPASS/],
    ])("%s is a matter of the password, and not of permissions", async (_name, options, said) => {
      const server = await forTest(startRedis({ args: ["--requirepass", "secret"] }));
      const error = await causeOf(lockOn(connect(server.port, options)), said);
      expect(error).toBeInstanceOf(LockMisconfiguredError);
      expect(error.message).toMatch(/^Redis did not accept the client's password: /);
      expect(saidBy(error)).toMatch(said);
      expect(error.message).not.toMatch(/EVAL|wrong"/);
      expect((error.cause as Error).message).toMatch(said);
    });
  },
);

test("a wrong password of a Cluster is a matter of the password", async () => {
  const server = await forTest(startRedis({ cluster: true, args: ["--requirepass", "secret"] }));
  const client = cluster6.connect([server.port], { redisOptions: { password: "wrong" } });
  const error = await causeOf(lockOn(client), /WRONGPASS/);
  expect(error).toBeInstanceOf(LockMisconfiguredError);
  expect(saidBy(error)).toMatch(/^Redis did not accept the client's password: .*WRONGPASS/);
});

describe("a call that the client has not written took nothing", () => {
  test.each<[when: string, begin: (client: Redis) => unknown]>([
    ["is in subscriber mode", (client) => client.subscribe(freshUser())],
    ["has just begun to close its connection", (client) => client.disconnect(true)],
  ])("while ioredis %s", async (_when, begin) => {
    const options = { protocol: 2, enableOfflineQueue: false, retryStrategy: () => 10 } as const;
    const client = await untilReady(ioredis6.connect(sharedRedisPort(), options));
    const store = new RedisStore(client);
    const lock = openLock({ store, ttlMs: 20_000, acquireTimeoutMs: 10_000 });
    const user = freshUser();
    const retired = record("submit-lock:retire", lock.keyFor(user));
    await begin(client);
    expect(client.status).toBe("ready");
    // The second connection serves, and nothing of the first one's is in doubt.
    const { confirmed, lease } = acquired(await lock.acquire(user));
    expect(await lease.release()).toBe("released");
    expect({ confirmed, retired }).toEqual({ confirmed: false, retired: [] });
  });

  test("where the queue of node-redis is full", async () => {
    const proxy = await forTest(startProxy(sharedRedisPort()));
    const client = createClient({
      socket: { host: "127.0.0.1", port: proxy.port },
      commandsQueueMaxLength: 20,
    });
    client.on("error", () => {});
    onTestFinished(() => client.destroy());
    await client.connect();
    const [lock, user] = [lockOn(client), freshUser()];
    await lock.withLock(freshUser(), { waitMs: 10_000 }, () => {});
    // On a busy machine its acquire was confirmed, and is retired.
    await until(() => lock.stats().retiring === 0, { what: "the first lock to be retired" });
    const ends = record("submit-lock:acquire", lock.keyFor(user));
    proxy.holdRequests();
    const pings = Array.from({ length: 20 }, () => client.ping());
    expect((await lock.acquire(user)).outcome).toBe("unavailable");
    expect(lock.stats().retiring).toBe(0);
    expect(ends).toMatchObject([{ copies: 0 }]);
    proxy.releaseHeld();
    await Promise.all(pings);
  });

  test("where node-redis is not connected to the master of the slot", async () => {
    const cluster = await forTest(startCluster());
    const rootNodes = cluster.ports.map((port) => ({ socket: { host: "127.0.0.1", port } }));
    const client = createCluster({ rootNodes, minimizeConnections: true });
    client.on("error", () => {});
    onTestFinished(() => client.destroy());
    await client.connect();
    const port = portOf(client);
    const key = userOnFirst(cluster, (user) => user);
    const call = { keys: [key], args: [] };
    const calls = [
      port.eval("return 1", { keys: [key], args: [] }),
      port.together(slotOf(key), "return 1", [call]),
    ];
    const where = `${slotOf(key)} (127.0.0.1:${cluster.ports[0]})`;
    for (const { reason: error } of (await Promise.allSettled(calls)) as PromiseRejectedResult[]) {
      expect(toNoAnswer({ kind: "error", error })).toEqual({
        kind: "unsent",
        reason: `not connected to the master of slot ${where}`,
      });
    }
  });
});
