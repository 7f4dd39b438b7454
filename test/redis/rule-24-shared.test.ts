import { afterAll, afterEach, beforeAll, describe, expect, inject, test } from "vitest";
import { type Lease, RedisStore, type SubmitLock } from "../../src/index.ts";
import { runMain } from "../support/cli.ts";
import {
  closeClients,
  ioredis5,
  ioredis6,
  type RedisKind,
  redisClients,
  untilReady,
} from "../support/clients.ts";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { acquired, closeLocks, leaseOf, openLock } from "../support/locks.ts";
import { startMasters } from "../support/masters.ts";
import { observer } from "../support/observer.ts";
import { type RedisServer, startRedis } from "../support/redis-server.ts";
import { answer, foundBy, submissionOf, submit } from "../support/submissions.ts";
import { hasTwemproxy, startTwemproxy, type Twemproxy } from "../support/twemproxy.ts";
import { until } from "../support/until.ts";
import { executedScripts } from "./fixture.ts";

/** Several customers whose clicks come in one turn of the event loop. */
const customers = 24;

/** Bounds that a busy machine keeps, with an extend every 2 s. */
const times = { ttlMs: 6_000, acquireTimeoutMs: 3_000, commandTimeoutMs: 1_000, maxHoldMs: 60_000 };
const patient = { ttlMs: 40_000, acquireTimeoutMs: 20_000, commandTimeoutMs: 10_000 };

afterEach(async () => {
  await closeLocks();
  closeClients();
});

interface Sharded {
  readonly name: string;
  /** The clients that can talk to it at all. */
  readonly clients: readonly RedisKind[];
  readonly start: () => Promise<{ readonly port: number; stop(): Promise<void> }>;
}

async function startOneShard() {
  const [node] = (await startMasters(inject("redisServerBinary"), 1, [])) as [RedisServer];
  return node;
}

async function startBehindTwemproxy() {
  const servers = await Promise.all([startRedis(), startRedis()]);
  const proxy: Twemproxy = await startTwemproxy(servers.map(({ port }) => port));
  const all = [proxy, ...servers];
  return {
    port: proxy.port,
    stop: async () => void (await Promise.all(all.map((each) => each.stop()))),
  };
}

/** What twemproxy does not know would end the connection: HELLO, INFO, CLIENT. */
const plain = { enableReadyCheck: false, disableClientInfo: true, protocol: 2 } as const;
const behindProxy = [ioredis6, ioredis5].map(({ name, connect }) => ({
  name,
  connect: (port: number, options = {}) => connect(port, { ...plain, ...options } as never),
}));

const sharded: readonly Sharded[] = [
  { name: "a one-shard Redis in cluster mode", clients: redisClients, start: startOneShard },
  ...(hasTwemproxy()
    ? [{ name: "twemproxy and two servers", clients: behindProxy, start: startBehindTwemproxy }]
    : []),
];

test("twemproxy is here, or this says that nothing was tried with it", ({ skip }) => {
  skip(sharded.length === 1, "no nutcracker on the PATH, and none could be installed");
  expect(sharded.length).toBe(2);
});

const rows = sharded.flatMap((server) => server.clients.map((kind) => ({ ...server, kind })));

describe.each(rows)("rule 24: $kind.name in front of $name", ({ start, kind }) => {
  let server: Awaited<ReturnType<Sharded["start"]>>;
  beforeAll(async () => {
    server = await start();
  });
  afterAll(() => server?.stop());

  async function open(options: object = times): Promise<SubmitLock> {
    const client = kind.connect(server.port);
    await untilReady(client);
    const lock = openLock({ store: new RedisStore(client), ...options });
    await lock.withLock(freshUser(), { waitMs: 20_000 }, () => {});
    return lock;
  }

  const crowd = () => Array.from({ length: customers }, freshUser);
  /** As often as it takes for an answer to the question to come, and for calls to be shared. */
  async function warm(lock: SubmitLock): Promise<void> {
    for (let round = 0; round < 3; round++) {
      const leases = await takeAll(lock, crowd());
      await Promise.all(leases.map((lease) => lease.release()));
    }
  }
  const takeAll = (lock: SubmitLock, users: readonly string[]): Promise<Lease[]> =>
    Promise.all(users.map((user) => leaseOf(lock, user)));

  test("an order that has outlived its lock leaves its trace where show looks for it", async () => {
    const bounds = { ttlMs: 800, maxHoldMs: 800, acquireTimeoutMs: 400, commandTimeoutMs: 200 };
    const [lock, looking] = [await open(bounds), await open(patient)];
    const users = crowd().slice(0, 12);
    const leases = await takeAll(lock, users);
    for (const user of users) {
      const trace = async () => (await looking.inspect(user)).outlived;
      await until(trace, { what: "the trace" });
    }
    for (const lease of leases) await lease.release();
  });

  test("no lock has two holders, in whatever order two processes ask", async () => {
    const [one, other] = await Promise.all([open(patient), open(patient)]);
    await Promise.all([warm(one), warm(other)]);
    const users = crowd();
    await takeAll(one, users);
    const again = await Promise.all([...users].reverse().map((user) => other.acquire(user)));
    expect(again.map(({ outcome }) => outcome)).toEqual(users.map(() => "contended"));
  });

  test("leases that are extended together are all kept, and are all let go", async () => {
    const lock = await open();
    await warm(lock);
    const users = crowd();
    const leases = await takeAll(lock, users);
    const from = performance.now();
    await until(() => performance.now() - from > 1.2 * times.ttlMs, {
      what: "more than the life of a key",
    });
    expect(leases.filter(({ signal }) => signal.aborted)).toEqual([]);
    const released = await Promise.all(leases.map((lease) => lease.release()));
    expect(released).toEqual(users.map(() => "released"));
    await takeAll(lock, users);
  });

  test("what was ordered together is repeated, by another process too", async () => {
    const [one, other] = await Promise.all([open(patient), open(patient)]);
    await warm(one);
    const users = crowd();
    const leases = await Promise.all(users.map((user) => submissionOf(one, user)));
    const completed = await Promise.all(leases.map((lease) => lease.complete(answer)));
    expect(completed).toEqual(users.map(() => "recorded"));
    const repeats = await Promise.all(users.map((user) => submit(other, user)));
    expect(repeats.map(foundBy)).toEqual(users.map(() => answer.body));
  });
});

describe("rule 24: a one-shard Redis in cluster mode", () => {
  let node: RedisServer;
  beforeAll(async () => {
    node = await startOneShard();
  });
  afterAll(() => node?.stop());

  test("list shows every lock, and doctor says that the client is none of a Cluster", async () => {
    const client = ioredis6.connect(node.port);
    const lock = openLock({ store: new RedisStore(client), ...patient });
    const users = Array.from({ length: customers }, freshUser);
    for (const user of users) acquired(await lock.acquire(user));
    const listed = await runMain(["list", "--json"], { REDIS_URL: node.url });
    expect(listed).toMatchObject({ code: 0 });
    for (const user of users) expect(listed.stdout).toContain(user);
    const doctor = await runMain(["doctor"], { REDIS_URL: node.url });
    expect(doctor.stdout).toContain("cluster mode, but a plain client");
  });

  test("with ackReplicas, locks that are acknowledged together are acquired", async () => {
    const replica = await startRedis({ cluster: true });
    try {
      const id = String(await command(node.port, "CLUSTER", "MYID"));
      await command(
        replica.port,
        "CLUSTER",
        "MEET",
        "127.0.0.1",
        node.port,
        node.busPort as number,
      );
      const knows = async () =>
        String(await command(replica.port, "CLUSTER", "NODES")).includes(id);
      await until(knows, { what: "the replica to know its master", boundMs: 30_000 });
      await until(
        async () =>
          (await command(replica.port, "CLUSTER", "REPLICATE", id).catch(() => "")) === "OK",
        { what: "the replica to follow", boundMs: 30_000 },
      );
      const isUp = async () =>
        String(await command(node.port, "INFO", "replication")).includes("state=online");
      await until(isUp, { what: "the replica to be in step", boundMs: 30_000 });
      const store = new RedisStore(ioredis6.connect(node.port), { ackReplicas: 1 });
      const lock = openLock({ store, ...patient });
      for (let round = 0; round < 3; round++) {
        const users = Array.from({ length: customers }, freshUser);
        const attempts = await Promise.all(users.map((user) => lock.acquire(user)));
        const leases = attempts.map((attempt) => acquired(attempt).lease);
        await Promise.all(leases.map((lease) => lease.release()));
      }
    } finally {
      await replica.stop();
    }
  });
});

describe("rule 24: one server", () => {
  test("a lone caller asks nothing, and several ask once and then share their calls", async () => {
    const server = await startRedis();
    try {
      const redis = observer(server.port);
      const client = ioredis6.connect(server.port);
      await untilReady(client);
      const lock = openLock({ store: new RedisStore(client), ...patient });
      const alone = await executedScripts(redis);
      await ((await lock.acquire("lone")) as { lease: Lease }).lease.release();
      expect((await executedScripts(redis)) - alone).toBe(2);
      const click = async () => {
        const from = await executedScripts(redis);
        const users = Array.from({ length: customers }, freshUser);
        const attempts = await Promise.all(users.map((user) => lock.acquire(user)));
        await Promise.all(attempts.map((attempt) => acquired(attempt).lease.release()));
        return (await executedScripts(redis)) - from;
      };
      // Each has a call of its own, and the question is 33.
      expect(await click()).toBeGreaterThan(2 * customers);
      const shares = async () => (await click()) <= customers / 2;
      await until(shares, { what: "calls to be shared" });
      expect(await redis.send("KEYS", "*:shared-*")).toEqual([]);
    } finally {
      await server.stop();
    }
  });

  test("a call that a server refuses for its keys is written again, each entry alone", async () => {
    const server = await startRedis();
    const client = ioredis6.connect(server.port);
    try {
      await untilReady(client);
      const lock = openLock({ store: new RedisStore(client), ...patient });
      const take = async () => {
        const users = Array.from({ length: customers }, freshUser);
        const attempts = await Promise.all(users.map((user) => lock.acquire(user)));
        return attempts.map(({ outcome }) => outcome);
      };
      await take();
      await take();
      // As a proxy in front of the server begins to shard: it refuses what it has let pass.
      const calls: number[] = [];
      for (const name of ["eval", "evalsha"] as const) {
        const pass = client[name].bind(client) as (...args: unknown[]) => Promise<unknown>;
        client[name] = ((script: string, count: number, ...rest: unknown[]) => {
          calls.push(count);
          if (count === 1) return pass(script, count, ...rest);
          const error = new Error("CROSSSLOT Keys in request don't hash to the same slot");
          return Promise.reject(Object.assign(error, { name: "ReplyError" }));
        }) as never;
      }
      expect(await take()).toEqual(Array.from({ length: customers }, () => "acquired"));
      expect(Math.max(...calls)).toBeGreaterThan(1);
      calls.length = 0;
      expect(await take()).toEqual(Array.from({ length: customers }, () => "acquired"));
      expect(Math.max(...calls)).toBe(1);
    } finally {
      await server.stop();
    }
  });
});
