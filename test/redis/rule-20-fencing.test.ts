import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type LockStore, RedisStore } from "../../src/index.ts";
import { portOf } from "../../src/stores/redis/clients/port-of.ts";
import { slotOf } from "../../src/stores/redis/clients/slots.ts";
import { acquireOnceScript, acquireScript } from "../../src/stores/redis/commands/acquire.ts";
import { asking } from "../support/asking.ts";
import {
  closeClients,
  clusterClients,
  ioredis6,
  isNodeRedis,
  redisClients,
  untilReady,
} from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { commandOf, leaseOf } from "../support/locks.ts";
import { type RedisCluster, startCluster } from "../support/redis-cluster.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { scriptCallsOf } from "../support/script-calls.ts";
import { answer, hashesOf, submissionOf } from "../support/submissions.ts";
import { until } from "../support/until.ts";
import { closeFixtures, isAcquire, openFixture, openHeld } from "./fixture.ts";

afterEach(closeFixtures);

/** The floor that an acquire was sent with. */
const floorOf = (argv: string[]): number => Number(argv[3 + Number(argv[2]) + 4]);

describe.each(redisClients)("rule 20: the fencing token, with $name", ({ connect }) => {
  test("is in the key from the take on, and an extend leaves it there", async () => {
    const { redis, lease } = await openHeld({ connect, ttlMs: 6_000, acquireTimeoutMs: 3_000 });
    const value = await redis.get(lease.key);
    expect(value?.split(":")[1]).toBe(String(lease.fencingToken));
    const before = Number(await redis.send("PEXPIRETIME", lease.key));
    await until(async () => Number(await redis.send("PEXPIRETIME", lease.key)) > before, {
      what: "an extend",
    });
    expect(await redis.get(lease.key)).toBe(value);
    await lease.release();
  });
});

describe("rule 20: the floor", () => {
  test("is the highest token or clock that was heard, and is sent with every acquire", async () => {
    const { lock, proxy } = await openFixture();
    const first = await leaseOf(lock, freshUser());
    const second = await submissionOf(lock, freshUser());
    const third = await leaseOf(lock, freshUser());
    const floors = proxy.commands.filter(isAcquire).map(floorOf);
    expect(floors[0]).toBe(0);
    expect(floors[1]).toBeGreaterThanOrEqual(first.fencingToken as number);
    expect(floors[2]).toBeGreaterThanOrEqual(second.fencingToken as number);
    for (const lease of [first, third]) await lease.release();
    await second.complete(answer);
  });

  /** The token of a script call that was sent a floor so many µs ahead of Redis' clock. */
  async function tokenAbove(aheadUs: number, submission: boolean): Promise<number[]> {
    const redis = ioredis6.connect(sharedRedisPort());
    const { key, ownerId } = commandOf();
    const [seconds, micros] = (await redis.time()) as unknown as [string, string];
    const nowUs = Number(seconds) * 1e6 + Number(micros);
    const floorUs = nowUs + aheadUs;
    const head = [Math.floor(nowUs / 1_000) + 10_000, 20_000, 60_000, 40_000, floorUs, "tail:"];
    const { id, fingerprint } = hashesOf();
    const [, token, code] = (
      submission
        ? await redis.eval(acquireOnceScript, 2, key, `${key}:`, ...head, ownerId, id, fingerprint)
        : await redis.eval(acquireScript, 1, key, ...head, ownerId)
    ) as [number, number, number];
    expect(code).toBe(-1);
    expect((await redis.get(key))?.split(":")[1]).toBe(String(token));
    await redis.del(key);
    closeClients();
    return [token - floorUs, token - nowUs];
  }

  test.each([
    ["a lock alone", false],
    ["a submission", true],
  ])("of %s counts up to 60 s ahead: more was a wrong clock's", async (_what, submission) => {
    // A clock that stepped back does not make tokens fall.
    expect((await tokenAbove(30_000_000, submission))[0]).toBe(1);
    expect((await tokenAbove(59_000_000, submission))[0]).toBe(1);
    for (const aheadUs of [61_000_000, -1_000_000]) {
      const [, aboveClock] = (await tokenAbove(aheadUs, submission)) as [number, number];
      expect(aboveClock).toBeGreaterThanOrEqual(0);
      expect(aboveClock).toBeLessThan(30_000_000);
    }
  });
});

describe.each(clusterClients)("rule 20: on a Cluster, with $name", ({ name, connect }) => {
  let cluster: RedisCluster;
  beforeAll(async () => {
    cluster = await startCluster();
  });
  afterAll(() => cluster.stop());

  // The calls are read at the methods of ioredis.
  test.skipIf(isNodeRedis(name))(
    "a node's floor is its own: the masters' clocks differ, and so would the tokens",
    async () => {
      const client = connect(cluster.ports);
      await untilReady(client);
      const store: LockStore = new RedisStore(client);
      const detach = store.attach(() => {});
      const calls = scriptCallsOf(client);
      for (let i = 0; i < 60; i++) await asking(store).acquire(commandOf()).reply;
      const heard = new Map<string, number>();
      // The question whether a node takes calls without keys has one argument.
      for (const { argv, reply } of calls.filter((call) => call.argv.length > 4)) {
        const key = argv[2] === "0" ? argv.at(-2) : argv[3];
        const node = portOf(client).nodeOf(slotOf(key as string));
        const [, token = 0] = (await reply) as number[];
        const floor = floorOf(argv);
        const highest = heard.get(node) ?? 0;
        // Nothing was heard of this node, whatever the others have said.
        if (highest === 0) expect(floor).toBe(0);
        expect(floor).toBeGreaterThanOrEqual(highest);
        heard.set(node, Math.max(highest, token));
      }
      expect(heard.size).toBe(3);
      await detach();
    },
  );
});
