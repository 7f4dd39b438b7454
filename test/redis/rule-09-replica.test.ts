import { afterEach, describe, expect, test } from "vitest";
import { RedisStore } from "../../src/index.ts";
import { closeClients, redisClients, untilReady } from "../support/clients.ts";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { acquired, causeOf, closeLocks, leaseOf, openLock } from "../support/locks.ts";
import { observer } from "../support/observer.ts";
import { startProxy } from "../support/proxy.ts";
import { forTest } from "../support/redis-server.ts";
import { startReplicated } from "../support/replicated-redis.ts";
import { answer, foundBy, submissionOf, submit } from "../support/submissions.ts";
import { until } from "../support/until.ts";

afterEach(async () => {
  await closeLocks();
  closeClients();
});

const times = { ttlMs: 20_000, acquireTimeoutMs: 4_000, commandTimeoutMs: 1_000 };

describe.each(redisClients)("rule 9: a connection to a replica, with $name", ({ connect }) => {
  async function open(storeOptions = {}) {
    const site = await forTest(startReplicated());
    const proxy = await forTest(startProxy(site.master.port));
    const client = await untilReady(connect(proxy.port));
    const store = new RedisStore(client, storeOptions);
    const lock = openLock({ store, ...times });
    await lock.withLock(freshUser(), { waitMs: 10_000 }, () => {});
    const [next] = site.replicas as [(typeof site.replicas)[number]];
    /** Behind one address: what is open stays connected to the old master. */
    const failOver = async (to = next.port) => {
      await site.inStep();
      await command(next.port, "REPLICAOF", "NO", "ONE");
      await command(site.master.port, "REPLICAOF", "127.0.0.1", next.port);
      const isInStep = async () =>
        String(await command(site.master.port, "INFO", "replication")).includes(
          "master_link_status:up",
        );
      await until(isInStep, { what: "the old master to follow the new one", boundMs: 30_000 });
      proxy.leadTo(to);
      return next.port;
    };
    return { lock, store, proxy, site, failOver, heir: observer(next.port) };
  }

  test.each([
    ["", {}],
    [", with ackReplicas", { ackReplicas: 1 }],
  ])("is left for one that leads to the master%s", async (_name, storeOptions) => {
    const { lock, failOver, heir, proxy } = await open(storeOptions);
    const [user, other] = [freshUser(), freshUser()];
    const held = await leaseOf(lock, user);
    const order = await submissionOf(lock, other);
    const connections = proxy.connections;
    await failOver();
    const { lease } = acquired(await lock.acquire(freshUser()));
    expect(await heir.ownerOf(lease.key)).toBe(lease.ownerId);
    expect(proxy.connections).toBe(2 * connections);
    expect(await held.release()).toBe("released");
    expect(await heir.exists(held.key)).toBe(false);
    expect(await order.complete(answer)).toBe("recorded");
    expect(foundBy(await submit(lock, other))).toBe("order 7");
    expect(await lock.inspect(user)).toMatchObject({ state: "free" });
  });

  test("is left also where the second one was opened before the address led elsewhere", async () => {
    const { lock, failOver, proxy, site } = await open();
    const target = await failOver(site.master.port);
    expect((await lock.acquire(freshUser())).outcome).toBe("unavailable");
    proxy.leadTo(target);
    await until(async () => (await lock.acquire(freshUser())).outcome === "acquired", {
      what: "another second connection",
    });
  });

  test.each([
    ["READONLY", "yes"],
    ["MASTERDOWN", "no"],
  ])(
    "makes the lock unavailable by %s, and serves once it leads to a master",
    async (error, stale) => {
      const { lock, store, site, proxy } = await open();
      const { master, redis } = site;
      await redis.send("CONFIG", "SET", "replica-serve-stale-data", stale);
      await command(master.port, "REPLICAOF", "127.0.0.1", 1);
      const brief = openLock({ store, ttlMs: 2_000, acquireTimeoutMs: 300 });
      const user = freshUser();
      for (let attempt = 0; attempt < 5; attempt++) {
        const cause = causeOf(await brief.acquire(user));
        expect(cause.message).toContain("the last request was not executed: no master took it");
        expect((cause.cause as Error).message).toMatch(new RegExp(`^${error}\\b`));
      }
      // One more, and not one for each refusal.
      expect(proxy.connections).toBe(2);
      await command(master.port, "REPLICAOF", "NO", "ONE");
      expect(await redis.exists(lock.keyFor(user))).toBe(false);
      const { confirmed, lease } = acquired(await lock.acquire(user));
      expect(confirmed).toBe(false);
      expect(await lease.release()).toBe("released");
    },
  );
});
