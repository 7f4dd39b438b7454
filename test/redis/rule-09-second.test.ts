import { once } from "node:events";
import { type AddressInfo, connect as connectSocket, createServer, type Socket } from "node:net";
import type { Redis } from "ioredis";
import { afterEach, describe, expect, inject, onTestFinished, test, vi } from "vitest";
import { RedisStore } from "../../src/index.ts";
import { slotOf } from "../../src/stores/redis/clients/slots.ts";
import { startSentinels } from "../lab/topologies/sentinel.ts";
import {
  closeClients,
  ioredis6,
  ioredisClients,
  ioredisClusters,
  nodeRedis6,
  untilReady,
} from "../support/clients.ts";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { causeOf, closeLocks, leaseOf, openLock } from "../support/locks.ts";
import { startProxy } from "../support/proxy.ts";
import { startCluster } from "../support/redis-cluster.ts";
import { forTest, type RedisServer, sharedRedisPort, startRedis } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { isAcquire, openFixture } from "./fixture.ts";

afterEach(async () => {
  vi.restoreAllMocks();
  await closeLocks();
  closeClients();
});

const times = { ttlMs: 2_000, acquireTimeoutMs: 600, commandTimeoutMs: 100 } as const;

describe.each(ioredisClusters)("rule 9: the second connection of $name", ({ connect }) => {
  test("is made with every node that the first has learned, for the one that was named may hang", async () => {
    const cluster = await forTest(
      startCluster(["--cluster-require-full-coverage", "no", "--cluster-node-timeout", "60000"]),
    );
    const [named, heir, other] = cluster.nodes as [RedisServer, RedisServer, RedisServer];
    const client = await untilReady(connect([named.port]));
    const lock = openLock({ store: new RedisStore(client), ...times });
    await lock.withLock(freshUser(), { waitMs: 20_000 }, () => {});
    const user = Array.from({ length: 1_000 }, freshUser).find(
      (each) => slotOf(`lock:submit:${each}`) < 16_384 / 3,
    ) as string;
    await lock.withLock(user, { waitMs: 10_000 }, () => {});

    named.pause();
    try {
      const slot = slotOf(`lock:submit:${user}`);
      const id = String(await command(heir.port, "CLUSTER", "MYID"));
      for (const { port } of [other, heir]) {
        await command(port, "CLUSTER", "SETSLOT", slot, "NODE", id);
      }
      // While the named host hangs, and long before it wakes.
      await lock.withLock(user, { waitMs: 60_000 }, () => {});
    } finally {
      named.resume();
    }
  });
});

describe.each(ioredisClients)("rule 9: the second connection of $name", ({ connect }) => {
  test.each(["alone", "first"])(
    "asks the Sentinels that the first has learned, for the one that was named %s may hang",
    async (named) => {
      const trio = await forTest(startSentinels(inject("redisServerBinary")));
      const { target } = trio;
      if (target.kind !== "sentinel") throw new Error("no Sentinels");
      const proxy = await forTest(startProxy(target.ports[0] as number));
      const ports = [proxy.port, ...(named === "alone" ? [] : target.ports)];
      const sentinels = ports.map((port) => ({ host: "127.0.0.1", port }));
      const client = await untilReady(connect(0, { name: target.name, sentinels }));
      const lock = openLock({ store: new RedisStore(client), ...times });
      await lock.withLock(freshUser(), { waitMs: 20_000 }, () => {});
      const master = await trio.masterOf("");
      proxy.swallowRequests(true);
      master.pause();
      try {
        await lock.withLock(freshUser(), { waitMs: 60_000 }, () => {});
        // The Sentinel that is asked may be one of those that hear of it later.
        const isLeft = async () => (await trio.masterOf("")) !== master;
        await until(isLeft, { what: "another master" });
      } finally {
        master.resume();
      }
    },
  );

  const broken: readonly (readonly [string, (client: Redis) => void])[] = [
    ["throws", (client) => vi.spyOn(client, "duplicate").mockImplementation(boom)],
    [
      "returns nothing",
      (client) => vi.spyOn(client, "duplicate").mockReturnValue(undefined as never),
    ],
    [
      "returns something else",
      (client) => vi.spyOn(client, "duplicate").mockReturnValue({} as never),
    ],
    [
      "returns a client whose getters throw",
      (client) =>
        vi.spyOn(client, "duplicate").mockReturnValue(
          Object.defineProperty({ on: boom, off: boom, disconnect: boom }, "status", {
            get: boom,
          }) as never,
        ),
    ],
  ];
  test.each(broken)(
    "ends no process where duplicate() of the application %s",
    async (_how, breakIt) => {
      const { client, lock, proxy } = await openFixture({ ...times, connect });
      await lock.withLock(freshUser(), { waitMs: 20_000 }, () => {});
      breakIt(client as Redis);
      proxy.swallowRequests(true);
      const users = Array.from({ length: 3 }, freshUser);
      const attempts = await Promise.all(users.map((user) => lock.acquire(user)));
      expect(attempts.map(({ outcome }) => outcome)).toEqual(users.map(() => "unavailable"));
      expect(causeOf(attempts[0] as never)).toMatchObject({ code: "SUBMIT_LOCK_UNAVAILABLE" });
      vi.restoreAllMocks();
      proxy.swallowRequests(false);
      proxy.resetAll();
      await lock.withLock(freshUser(), { waitMs: 20_000 }, () => {});
    },
  );

  test("a client whose own getters throw makes an attempt unavailable, and ends no process", async () => {
    const { client, lock } = await openFixture({ ...times, connect });
    await lock.withLock(freshUser(), { waitMs: 20_000 }, () => {});
    Object.defineProperty(client, "status", { configurable: true, get: boom });
    const cause = causeOf(await lock.acquire(freshUser()));
    Reflect.deleteProperty(client, "status");
    expect(cause.cause).toMatchObject({ message: "boom" });
  });
});

/** Wrappers of `duplicate` that an application, or its tracing, has made async. */
const asyncOverrides: readonly (readonly [string, (open: () => Redis) => unknown])[] = [
  ["duplicate() rejects", () => Promise.reject(new Error("boom"))],
  ["duplicate() resolves with a client", async (open) => open()],
  [
    "second connection rejects as it is closed",
    (open) => {
      const second = open();
      for (const name of ["disconnect", "destroy"] as const) {
        const close = (second as unknown as NodeJS.Dict<() => void>)[name];
        const closeLate = async () => {
          close?.call(second);
          boom();
        };
        if (close !== undefined) Object.defineProperty(second, name, { value: closeLate });
      }
      return second;
    },
  ],
];
describe.each([ioredis6, nodeRedis6])("rule 9: $name with async wrappers", ({ connect }) => {
  // A rejection that nobody hears would fail the run.
  test.each(asyncOverrides)("whose %s serves, and ends no process", async (_how, override) => {
    const { client, lock, proxy } = await openFixture({ ...times, connect });
    await lock.withLock(freshUser(), { waitMs: 20_000 }, () => {});
    const { duplicate } = client as Redis;
    const seconds: Redis[] = [];
    const duplicates = vi.spyOn(client as Redis, "duplicate").mockImplementation((...options) => {
      const open = () => {
        const second = duplicate.apply(client as Redis, options).on("error", () => {});
        seconds.push(second);
        return second;
      };
      return override(open) as Redis;
    });
    proxy.swallowRequests(true);
    const isTried = async () => {
      await lock.acquire(freshUser());
      return duplicates.mock.calls.length > 0;
    };
    await until(isTried, { what: "a second connection" });
    proxy.swallowRequests(false);
    proxy.resetAll();
    await lock.withLock(freshUser(), { waitMs: 20_000 }, () => {});
    await lock.close();
    const isOver = (each: Redis) => ("isOpen" in each ? !each.isOpen : each.status === "end");
    await until(() => seconds.every(isOver), { what: "each second connection to be closed" });
  });
});

function boom(): never {
  throw new Error("boom");
}

test.each([
  ...["options", "condition", "stream"].flatMap((member) =>
    ioredisClients.map((each) => ({ ...each, member })),
  ),
  ...["isReady", "isOpen"].map((member) => ({ ...nodeRedis6, member })),
])(
  "rule 9: $name whose $member throws as it reconnects ends no process, and serves again",
  async ({ connect, member }) => {
    let isBroken = false;
    const get = (client: object, name: string) => {
      if (isBroken && name === member) boom();
      const value = Reflect.get(client, name);
      return typeof value === "function" ? value.bind(client) : value;
    };
    const traced = (port: number) => new Proxy(connect(port) as Redis, { get } as object);
    const { client, lock, proxy } = await openFixture({ ...times, connect: traced });
    await lock.withLock(freshUser(), { waitMs: 20_000 }, () => {});
    const isReady = new Promise((resolve) => {
      (client as Redis).prependOnceListener("ready", resolve);
    });
    isBroken = true;
    proxy.resetAll();
    await isReady;
    isBroken = false;
    await lock.withLock(freshUser(), { waitMs: 20_000 }, () => {});
  },
);

test.each([...ioredisClients, nodeRedis6])(
  "rule 9: a second connection of $name that a full server refuses is tried again after seconds",
  async ({ connect }) => {
    const server = await forTest(startRedis({ args: ["--maxclients", "40"] }));
    const client = await untilReady(connect(server.port));
    const lock = openLock({ store: new RedisStore(client), ...times });
    await lock.withLock(freshUser(), { waitMs: 20_000 }, () => {});
    // Room for this connection alone, and the lock's.
    const admin = await untilReady(ioredis6.connect(server.port, { disableClientInfo: true }));
    await admin.config("SET", "maxclients", 2);
    await admin.call("CLIENT", "PAUSE", 60_000, "WRITE");
    const from = performance.now();
    while (performance.now() - from < 3_000) await lock.acquire(freshUser());
    const [, refused] = /rejected_connections:(\d+)/.exec(await admin.info("stats")) ?? [];
    await admin.call("CLIENT", "UNPAUSE");
    // Without a pause it was tried four to ten times a second.
    expect(Number(refused)).toBe(1);
  },
);

test.each([...ioredisClients, nodeRedis6])(
  "rule 9: a second connection of $name serves where the server of the very first is silent",
  async ({ connect }) => {
    const sockets: Socket[] = [];
    const balancer = createServer((socket) => {
      sockets.push(socket.on("error", () => {}));
      // The first leads to a host that hangs.
      if (sockets.length === 1) return;
      const up = connectSocket(sharedRedisPort(), "127.0.0.1").on("error", () => socket.destroy());
      sockets.push(up);
      socket.pipe(up).pipe(socket);
    });
    balancer.listen(0, "127.0.0.1");
    await once(balancer, "listening");
    onTestFinished(() => {
      for (const socket of sockets) socket.destroy();
      balancer.close();
    });
    const client = connect((balancer.address() as AddressInfo).port);
    const lock = openLock({ store: new RedisStore(client), ...times });
    await lock.withLock(freshUser(), { waitMs: 60_000 }, () => {});
    // The client has not given the first up by itself.
    expect(sockets[0]?.destroyed).toBe(false);
  },
);

test("rule 9: what a second connection is refused for is a cause, and no verdict", async () => {
  const server = await forTest(startRedis({ args: ["--requirepass", "old"] }));
  const { lock, proxy } = await openFixture({
    ...times,
    port: server.port,
    clientOptions: { password: "old" },
  });
  await lock.withLock(freshUser(), { waitMs: 20_000 }, () => {});
  // The password is rotated: the connection that is there goes on, and no new one gets in.
  const admin = ioredis6.connect(server.port, { password: "old" });
  await admin.call("CONFIG", "SET", "requirepass", "new");
  void proxy.holdRequestOnce(isAcquire);
  const cause = await until(
    async () => {
      const found = causeOf(await lock.acquire(freshUser()));
      return String(found.cause).includes("WRONGPASS") && found;
    },
    { what: "the second connection to be refused" },
  );
  expect(cause).toMatchObject({ code: "SUBMIT_LOCK_UNAVAILABLE" });
});

test("rule 6: what a server answers with an error is sent ever more slowly, up to once a second", async () => {
  const client = ioredis6.connect(sharedRedisPort());
  await untilReady(client);
  const lock = openLock({ store: new RedisStore(client), ttlMs: 20_000, acquireTimeoutMs: 4_000 });
  const user = freshUser();
  const lease = await leaseOf(lock, user);
  let refused = 0;
  for (const name of ["eval", "evalsha"] as const) {
    const pass = client[name].bind(client) as (...args: unknown[]) => Promise<unknown>;
    client[name] = ((...args: unknown[]) => {
      if (!args.includes(lock.keyFor(user))) return pass(...args);
      refused++;
      // A quota, as a proxy says it: whether the release was executed is not known.
      const error = Object.assign(new Error("ERR quota exceeded"), { name: "ReplyError" });
      return Promise.reject(error);
    }) as never;
  }
  void lease.release();
  const from = performance.now();
  await until(() => performance.now() - from > 4_000, { what: "four seconds", boundMs: 30_000 });
  // 50, 100, 200, 400, 800 ms and from then on a second apart: 80 without that.
  expect(refused).toBeGreaterThan(3);
  expect(refused).toBeLessThanOrEqual(11);
});

test("rule 22: a reply to CLIENT INFO without a database says what was asked, and what came", async () => {
  const client = nodeRedis6.connect(sharedRedisPort());
  await untilReady(client);
  const own = client as unknown as { sendCommand(...args: unknown[]): Promise<unknown> };
  const pass = own.sendCommand.bind(own);
  own.sendCommand = (words, ...more) =>
    String(words) === "CLIENT,INFO" ? Promise.resolve("OK") : pass(words, ...more);
  const lock = openLock({ store: new RedisStore(client), ...times });
  const cause = causeOf(await lock.acquire(freshUser()));
  expect(String(cause.cause)).toContain(
    'CLIENT INFO named no database (db=), but "OK". Connect without a proxy',
  );
});
