import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { RedisStore, type SubmitLock } from "../../src/index.ts";
import {
  type AnyRedis,
  closeClient,
  closeClients,
  redisClients,
  untilReady,
} from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { causeOf, closeLocks, leaseOf, openLock } from "../support/locks.ts";
import { type ReplicatedRedis, startReplicated } from "../support/replicated-redis.ts";
import { until } from "../support/until.ts";

let server: ReplicatedRedis;
beforeAll(async () => {
  server = await startReplicated();
});
afterAll(() => server.stop());
afterEach(async () => {
  void closeLocks();
  closeClients();
});

const slow = { ttlMs: 40_000, acquireTimeoutMs: 20_000, commandTimeoutMs: 10_000 } as const;
const brisk = { ttlMs: 20_000, acquireTimeoutMs: 4_000, commandTimeoutMs: 1_000 } as const;

const lockOn = (client: AnyRedis, times: typeof slow | typeof brisk, ackReplicas = 1): SubmitLock =>
  openLock({ store: new RedisStore(client, { ackReplicas }), ...times });
const use = async (lock: SubmitLock) => await (await leaseOf(lock, freshUser())).release();

describe.each(redisClients)("rule 21: the connections that wait, with $name", ({ connect }) => {
  test("are open while a lock uses them, and as long as the client's", async () => {
    const name = `shop-${freshUser()}`;
    const connections = async () =>
      String(await server.redis.send("CLIENT", "LIST")).split(` name=${name} `).length - 1;
    const client = await untilReady(connect(server.master.port, { connectionName: name }));
    const [one, other] = [lockOn(client, slow), lockOn(client, slow)];
    await until(async () => (await connections()) === 2, { what: "a connection of its own" });
    await use(one);
    await one.close();
    await use(other);
    expect(await connections()).toBe(2);
    await other.close();
    await until(async () => (await connections()) === 1, { what: "it to be closed" });
    const third = lockOn(client, brisk);
    await until(async () => (await connections()) === 2, { what: "another one" });
    closeClient(client);
    await until(async () => (await connections()) === 0, { what: "both to be closed" });
    expect((await third.acquire(freshUser())).outcome).toBe("unavailable");
    expect(await connections()).toBe(0);
  });

  test("are not there without the option", async () => {
    const name = `shop-${freshUser()}`;
    const client = await untilReady(connect(server.master.port, { connectionName: name }));
    const lock = openLock({ store: new RedisStore(client), ...slow });
    await use(lock);
    expect(String(await server.redis.send("CLIENT", "LIST")).split(` name=${name} `)).toHaveLength(
      2,
    );
  });
});

describe.each(redisClients)(
  "rule 21: as many replicas as wanted, with $name",
  ({ connect, rights = [] }) => {
    test("one of two is enough where one is asked for, and not where two are", async () => {
      const two = await startReplicated(2);
      const client = await untilReady(connect(two.master.port));
      const [one, both] = [lockOn(client, brisk, 1), lockOn(client, brisk, 2)];
      await use(both);
      two.replicas[1]?.pause();
      expect((await one.acquire(freshUser())).outcome).toBe("acquired");
      expect(causeOf(await both.acquire(freshUser())).message).toMatch(
        /2 replicas were to confirm within 500 ms \(ackReplicas\), 1 did/,
      );
      two.replicas[1]?.resume();
      await both.withLock(freshUser(), { waitMs: 10_000 }, () => {});
      await two.stop();
    });

    test("check says that there are fewer, and that WAIT is not permitted", async () => {
      const alone = await startReplicated(0);
      const connected = (username?: string) =>
        untilReady(connect(alone.master.port, username ? { username, password: "p" } : {}));
      await expect(lockOn(await connected(), brisk).check()).rejects.toMatchObject({
        code: "SUBMIT_LOCK_UNAVAILABLE",
        message: expect.stringContaining("1 replica was to confirm within 500 ms (ackReplicas), 0"),
      });
      const may = "+eval +evalsha +get +set +pttl +pexpire +del +time +info";
      await alone.redis.send(
        "ACL",
        "SETUSER",
        "shop",
        "on",
        ">p",
        "~*",
        ...may.split(" "),
        ...rights,
      );
      await expect(lockOn(await connected("shop"), brisk).check()).rejects.toMatchObject({
        code: "SUBMIT_LOCK_MISCONFIGURED",
        message: expect.stringMatching(
          /^Redis does not permit WAIT, which ackReplicas needs: NOPERM/,
        ),
      });
      const isEmpty = async () => (await alone.redis.send("DBSIZE")) === 0;
      await until(isEmpty, { what: "no key to be left" });
      await alone.stop();
    });
  },
);
