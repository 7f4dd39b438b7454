import {
  BasicClientSideCache,
  BasicPooledClientSideCache,
  createClient,
  createCluster,
  RESP_TYPES,
  type RedisClientOptions,
  type RedisClusterOptions,
} from "redis";
import { afterAll, afterEach, describe, expect, test } from "vitest";
import { RedisStore, type SubmitLock } from "../../src/index.ts";
import type { ClientPort } from "../../src/stores/redis/clients/port.ts";
import { portOf } from "../../src/stores/redis/clients/port-of.ts";
import { slotOf } from "../../src/stores/redis/clients/slots.ts";
import { freshUser } from "../support/ids.ts";
import { causeOf, closeLocks, openLock } from "../support/locks.ts";
import { startCluster } from "../support/redis-cluster.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { startReplicated } from "../support/replicated-redis.ts";
import { beginMove, type SlotMove, userOnFirst } from "../support/slot-move.ts";
import { answer, foundBy, recordKey, submissionOf, submit } from "../support/submissions.ts";
import { until } from "../support/until.ts";

/** Every option that an application may give all its commands: a new one of the library fails here. */
const hostile = {
  asap: true,
  chainId: Symbol("the application's"),
  abortSignal: AbortSignal.abort(),
  typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer, [RESP_TYPES.NUMBER]: String },
  timeout: 1,
  slotNumber: 1,
  askRedirect: true,
} satisfies Required<NonNullable<RedisClientOptions["commandOptions"]>>;

const [cluster, replicated] = await Promise.all([startCluster(), startReplicated()]);
afterAll(() => Promise.all([cluster.stop(), replicated.stop()]));

const closing: (() => unknown)[] = [];
const moves: SlotMove[] = [];
afterEach(async () => {
  await closeLocks();
  for (const close of closing.splice(0).reverse()) close();
  for (const move of moves.splice(0)) await move.finish();
});

const at = (port: number) => ({ host: "127.0.0.1", port });

async function openServer(port: number, options: object) {
  const client = createClient({ socket: at(port), ...options });
  client.on("error", () => {});
  closing.push(() => client.destroy());
  return await client.connect();
}

async function openCluster(options: object) {
  const rootNodes = cluster.ports.map((port) => ({ socket: at(port) }));
  const client = createCluster({ rootNodes, ...options } as RedisClusterOptions);
  client.on("error", () => {});
  closing.push(() => client.destroy());
  return await client.connect();
}

/** The client's connection and the store's second one, ready for the key. */
async function bothOf(client: Parameters<typeof portOf>[0], key: string): Promise<ClientPort[]> {
  const port = portOf(client);
  const second = port.second();
  second.ignoreErrors();
  closing.push(() => second.close());
  const slot = slotOf(key);
  await until(() => port.isReady(slot) && second.isReady(slot), { what: "both connections" });
  return [port, second];
}

const push = "return {redis.call('RPUSH', KEYS[1], ARGV[1]), redis.call('TYPE', KEYS[1])}";

/** As a touch and its `WAIT` are written: what is last in the pipeline is executed last. */
async function pushInOrder(port: ClientPort, key: string): Promise<void> {
  const calls = ["a", "b"].map((value) => ({ keys: [key], args: [value] }));
  const replies = await port.together(slotOf(key), push, calls, ["LRANGE", key, 0, -1]);
  expect(replies).toEqual([
    [1, "list"],
    [2, "list"],
    ["a", "b"],
  ]);
}

describe("a client with every command option of an application", () => {
  test("has plain and ordered replies on both connections to a server", async () => {
    const client = await openServer(sharedRedisPort(), { commandOptions: hostile });
    for (const one of [client, client.withCommandOptions(hostile)]) {
      for (const port of await bothOf(one, freshUser())) await pushInOrder(port, freshUser());
    }
  });

  test.each(["of the Cluster", "of its nodes"] as const)(
    "%s follows a slot that moves, on both connections",
    async (where) => {
      const own = { commandOptions: hostile };
      const client = await openCluster(where === "of the Cluster" ? own : { defaults: own });
      const key = userOnFirst(cluster, (user) => user);
      const ports = await bothOf(client, key);
      const [before, left] = [`{${key}}before`, `{${key}}left`];
      for (const port of ports) await pushInOrder(port, `${before}${ports.indexOf(port)}`);
      const move = await beginMove(cluster, key);
      moves.push(move);
      // The source answers ASK for what is absent, and the target executes it after ASKING.
      for (const port of ports) {
        expect(await port.eval(push, { keys: [left], args: ["c"] })).toEqual([
          ports.indexOf(port) + 1,
          "list",
        ]);
      }
      expect(await move.whereIs(left)).toBe("target");
      await move.finish();
      // It answers MOVED, and the client's table of slots is read anew.
      for (const port of ports) {
        expect(await port.eval(push, { keys: [left], args: ["d"] })).toEqual([
          ports.indexOf(port) + 3,
          "list",
        ]);
      }
    },
  );
});

test("with asap, a lock that no replica has is not acquired", async () => {
  const client = await openServer(replicated.master.port, { commandOptions: { asap: true } });
  const store = new RedisStore(client, { ackReplicas: 1 });
  const lock = openLock({ store, ttlMs: 4_000, acquireTimeoutMs: 2_000, commandTimeoutMs: 500 });
  await lock.withLock(freshUser(), { waitMs: 10_000 }, () => {});
  await replicated.inStep();
  const [replica] = replicated.replicas;
  replica?.pause();
  const attempt = lock.acquire(freshUser()).finally(() => replica?.resume());
  expect(causeOf(await attempt).message).toContain("1 replica was to acknowledge");
});

/** Caches that no message of the server empties. */
class StaleCache extends BasicClientSideCache {
  override invalidate(): void {}
}
class StalePooledCache extends BasicPooledClientSideCache {
  override invalidate(): void {}
}

describe.each([
  {
    kind: "a server",
    open: () => openServer(sharedRedisPort(), { clientSideCache: new StaleCache() }),
    other: () => openServer(sharedRedisPort(), {}),
  },
  {
    kind: "a Cluster",
    open: () => openCluster({ clientSideCache: new StalePooledCache() }),
    other: () => openCluster({}),
  },
])("a client of $kind with a client-side cache", ({ open, other }) => {
  test("never answers the lock from it", async () => {
    const client = await open();
    const [lock, rival] = [client, await other()].map((each) =>
      openLock({ store: new RedisStore(each), ttlMs: 20_000, acquireTimeoutMs: 4_000 }),
    ) as [SubmitLock, SubmitLock];
    const user = freshUser();
    const key = lock.keyFor(user);
    const cached = () => Promise.all([client.get(key), client.get(recordKey(key))]);
    expect(await cached()).toEqual([null, null]);
    const submission = { id: "cart 7" };
    expect((await lock.lookUp(user, { submission })).outcome).toBe("none");
    const lease = await submissionOf(rival, user);
    // What the application reads is old now; what the lock reads is not.
    expect(await cached()).toEqual([null, null]);
    expect(await lock.inspect(user)).toMatchObject({ state: "held" });
    expect((await lock.lookUp(user, { submission })).outcome).toBe("in-flight");
    expect((await lock.acquire(user)).outcome).toBe("contended");
    expect(await lease.complete(answer)).toBe("recorded");
    expect(await cached()).toEqual([null, null]);
    expect((await lock.lookUp(user, { submission })).outcome).toBe("completed");
    expect(foundBy(await submit(lock, user))).toBe("order 7");
    expect(await lock.inspect(user)).toMatchObject({ state: "free" });
  });
});
