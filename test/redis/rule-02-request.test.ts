import { once } from "node:events";
import { afterEach, describe, expect, test } from "vitest";
import { asking } from "../support/asking.ts";
import { record } from "../support/channels.ts";
import { closeClient, isNodeRedis, redisClients } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { acquired, commandOf, leaseOf } from "../support/locks.ts";
import { until } from "../support/until.ts";
import {
  closeFixtures,
  isAcquire,
  openFixture,
  openHeld,
  patient,
  untilUsable,
} from "./fixture.ts";

afterEach(closeFixtures);

describe("rule 2: a request is in flight until its own answer", () => {
  test("each copy carries a deadline acquireTimeoutMs ahead, and a window of twice that", async () => {
    const { lock, proxy } = await openFixture();
    const from = Date.now();
    const lease = await leaseOf(lock, freshUser());
    const [, , , , deadline, window, adopt, life] = proxy.commands.find(isAcquire) as string[];
    expect(Number(deadline) - from).toBeGreaterThanOrEqual(1_500 - 2);
    expect(Number(deadline) - Date.now()).toBeLessThanOrEqual(1_500 + 2);
    expect([window, adopt, life]).toEqual(["3000", "60000", "4000"]);
    await lease.release();
  });

  test("a copy that comes after its deadline is refused by Redis, and writes nothing", async () => {
    const { store, proxy, redis } = await openFixture();
    const late = commandOf({ times: { ...shortTimes, acquireTimeoutMs: 50 } });
    proxy.holdRequests();
    const copy = asking(store).acquire(late);
    await until(async () => copy.deadlineMs !== undefined && Date.now() > copy.deadlineMs + 5, {
      what: "the deadline to be over",
    });
    proxy.releaseHeld();
    expect(await copy.reply).toMatchObject({ kind: "outOfWindow" });
    expect(await redis.exists(late.key)).toBe(false);
  });

  describe.each(redisClients)("with $name", ({ name, connect }) => {
    const sendsAgain = !isNodeRedis(name);

    test("an answer that comes after a reconnect is not listened to", async () => {
      const { store, client, proxy } = await openFixture({ connect });
      const command = commandOf();
      const lost = proxy.loseReplyOnce(isAcquire, { resetAfterMs: 0 });
      const first = asking(store).acquire(command);
      await lost;
      // The client re-sends in silence; the store has long said that it does not know.
      expect(await first.reply).toMatchObject({ kind: "unknown" });
      const copies = () => proxy.commands.filter(isAcquire).length;
      if (sendsAgain) await until(() => copies() === 2, { what: "the re-send" });
      await untilUsable(client);
      if (!sendsAgain) expect(copies()).toBe(1);
      expect(await asking(store).acquire(command).reply).toMatchObject({ kind: "mine" });
      await asking(store).release(command).reply;
    });

    test("the client's own re-send does not make its user contend with himself", async () => {
      const { lock, proxy, redis } = await openFixture({ connect });
      const user = freshUser();
      const retire = record("submit-lock:retire", `lock:submit:${user}`);
      const lost = proxy.loseReplyOnce(isAcquire, { resetAfterMs: 0 });
      const { lease, confirmed } = acquired(await lock.acquire(user));
      await lost;
      expect(confirmed).toBe(true);
      expect(await lease.release()).toBe("released");
      await until(() => retire.length === 1, { what: "the owner id to be retired" });
      expect(retire[0]?.outcome).toBe("final");
      expect(await redis.exists(lease.key)).toBe(false);
    });
  });

  test("a lock whose every request was answered retires nothing", async () => {
    const { lock, user, lease } = await openHeld(patient);
    const retire = record("submit-lock:retire", `lock:submit:${user}`);
    expect((await lock.acquire(user)).outcome).toBe("contended");
    await lease.release();
    expect(retire).toEqual([]);
  });

  test("a command on a connection that closes is answered as unknown at once", async () => {
    const { store, client, proxy } = await openFixture();
    proxy.holdRequests();
    const copy = asking(store).acquire(commandOf());
    await until(() => copy.deadlineMs !== undefined, { what: "the copy to be written" });
    const closed = once(client, "close");
    closeClient(client);
    await closed;
    expect(await copy.reply).toMatchObject({ kind: "unknown" });
  });
});

const shortTimes = { ttlMs: 1_000, maxHoldMs: 1_000, commandTimeoutMs: 20 };
