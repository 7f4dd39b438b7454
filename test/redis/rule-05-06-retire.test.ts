import { afterAll, afterEach, describe, expect, test } from "vitest";
import { record } from "../support/channels.ts";
import { freshUser } from "../support/ids.ts";
import { leaseOf } from "../support/locks.ts";
import { observer } from "../support/observer.ts";
import { startRedis } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import {
  closeFixtures,
  executed,
  executedScripts,
  isAcquire,
  isRelease,
  openDirect,
  openFixture,
  openWithHeldCopy,
  outcomeOf,
  patient,
  untilShared,
} from "./fixture.ts";

afterEach(closeFixtures);

const quick = { acquireTimeoutMs: 1_000, commandTimeoutMs: 50 } as const;

describe("rule 5, P3: an ending with an open copy retires its owner id", () => {
  test("unavailable: the copy that Redis had applied is deleted as soon as Redis answers", async () => {
    const { lock, proxy, redis } = await openFixture(quick);
    const user = freshUser();
    const retire = record("submit-lock:retire", `lock:submit:${user}`);
    proxy.holdReplies();
    expect((await lock.acquire(user)).outcome).toBe("unavailable");
    proxy.releaseHeld();
    expect(await outcomeOf(retire)).toBe("final");
    expect(await redis.exists(`lock:submit:${user}`)).toBe(false);
  });

  test("contended: an earlier copy of the same attempt may still be on its way", async () => {
    const { lock, proxy, redis } = await openFixture({ ...patient, commandTimeoutMs: 50 });
    const user = freshUser();
    // Patient: an acquire of the holder that is late would be retired, too, and heard here.
    const lease = await leaseOf(await openDirect(patient), user);
    const retire = record("submit-lock:retire", lease.key);
    const held = proxy.holdRequestOnce(isAcquire);
    expect((await lock.acquire(user)).outcome).toBe("contended");
    await held;
    // The holder's key is not the retired owner id's to delete.
    expect(await redis.ownerOf(lease.key)).toBe(lease.ownerId);
    await lease.release();
    proxy.releaseHeld();
    expect(await outcomeOf(retire)).toBe("final");
    expect(await redis.exists(lease.key)).toBe(false);
  });

  test("without open copies a release is one call, and nothing follows", async () => {
    const { lock, proxy } = await openFixture(patient);
    const leases = [await leaseOf(lock, freshUser()), await leaseOf(lock, freshUser())];
    await leases[0]?.release();
    expect(proxy.commands.filter(isRelease)).toHaveLength(1);
    // 50 ms later a retire would have asked again: the second release comes after that.
    const at = performance.now() + 120;
    await until(() => performance.now() > at, { what: "two rounds of the retire loop" });
    await leases[1]?.release();
    expect(proxy.commands.filter(isRelease)).toHaveLength(2);
  });
});

const server = await startRedis();
const redis = observer(server.port);
afterAll(() => server.stop());
describe("rule 6, P3: a retire is final only past every open deadline", () => {
  test("a held copy that lands within its deadline, after its client has gone, leaves no orphan", async () => {
    const { proxy, client, lease, retired } = await openWithHeldCopy({
      port: server.port,
      // A busy machine may take a while to bring the client back.
      ttlMs: 20_000,
      acquireTimeoutMs: 5_000,
    });
    expect(await lease.release()).toBe("released");
    client.disconnect(true);
    await until(() => client.status === "ready", { what: "the client's next connection" });
    const before = await executed(redis, "set");
    proxy.releaseHeld();
    // On a busy machine a third request may have been sent, and held behind the first one.
    await until(async () => (await executed(redis, "set")) > before, {
      what: "the held copy to take effect",
    });
    await until(async () => !(await redis.exists(lease.key)), {
      what: "the orphan to be deleted",
    });
    expect(await retired()).toBe("final");
    expect(await redis.exists(lease.key)).toBe(false);
  });

  test("it goes on until Redis' clock has passed the deadline, and a copy that lands then is refused", async () => {
    const options = { port: server.port, ttlMs: 8_000, acquireTimeoutMs: 4_000 };
    const { proxy, lease, retired } = await openWithHeldCopy(options);
    await lease.release();
    await retired();
    const deadline = Number(proxy.commands.find(isAcquire)?.[4]);
    expect(Date.now()).toBeGreaterThanOrEqual(deadline);
    expect(proxy.commands.filter(isRelease).length).toBeGreaterThan(2);
    const before = { scripts: await executedScripts(redis), set: await executed(redis, "set") };
    proxy.releaseHeld();
    await until(async () => (await executedScripts(redis)) > before.scripts, {
      what: "the held copy to be executed",
    });
    expect(await executed(redis, "set")).toBe(before.set);
    expect(await redis.exists(lease.key)).toBe(false);
  });

  test("a Redis that stays silent is given up after 2 × acquireTimeoutMs + ttlMs", async () => {
    const times = { ttlMs: 200, acquireTimeoutMs: 60, commandTimeoutMs: 20 };
    const { lock, proxy } = await openFixture({ port: server.port, ...times });
    const user = freshUser();
    const retire = record("submit-lock:retire", `lock:submit:${user}`);
    proxy.holdRequests();
    expect((await lock.acquire(user)).outcome).toBe("unavailable");
    await until(() => retire.length > 0, { what: "the retire to be given up" });
    expect(retire[0]?.outcome).toBe("abandoned");
    expect(retire[0]?.durationMs).toBeGreaterThan(2 * 60 + 200);
  });

  test("many owner ids are retired in gathered calls, not one by one", async () => {
    const fixture = await openFixture({ port: server.port, acquireTimeoutMs: 300 });
    const { lock, proxy } = fixture;
    await untilShared(fixture);
    const keyOf = (user: string) => `lock:submit:${user}`;
    let longest = 0;
    // Rule 24: alone are those on a second connection, which has not been asked yet. On a busy
    // machine these may be all of a round.
    for (let round = 1; round <= 10 && longest <= 3; round++) {
      const before = proxy.commands.length;
      const users = Array.from({ length: 30 }, freshUser);
      proxy.holdReplies();
      await Promise.all(users.map((user) => lock.acquire(user)));
      proxy.releaseHeld();
      for (const user of users) {
        await until(async () => !(await redis.exists(keyOf(user))), { what: "the key to be free" });
      }
      const calls = proxy.commands.slice(before).filter(isRelease);
      longest = Math.max(...calls.map(([, , keys]) => Number(keys)));
    }
    expect(longest).toBeGreaterThan(3);
  });
});
