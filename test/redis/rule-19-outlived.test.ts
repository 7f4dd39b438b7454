import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, test, vi } from "vitest";
import type { CliLock } from "../../src/cli/context.ts";
import { outlivedUserOf } from "../../src/cli/scan.ts";
import { RedisStore } from "../../src/index.ts";
import type { LockCommand, OutliveRequest } from "../../src/lock/store.ts";
import { recordWarnings } from "../support/channels.ts";
import { Program } from "../support/child.ts";
import { bin, runMain } from "../support/cli.ts";
import { ioredis6, untilReady } from "../support/clients.ts";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { commandOf, leaseOf, openLock } from "../support/locks.ts";
import { observer } from "../support/observer.ts";
import { forTest, sharedRedisPort, startRedis } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { closeFixtures, openDirect, openFixture, patient } from "./fixture.ts";

afterEach(closeFixtures);

const port = sharedRedisPort();
const env = { REDIS_URL: `redis://127.0.0.1:${port}` };
const times = { ttlMs: 800, maxHoldMs: 800, acquireTimeoutMs: 400, commandTimeoutMs: 200 };

/** A user whose order goes on after its lock has run out. */
async function outlived(options: { holder?: string; keyPrefix?: string } = {}) {
  const [lock, user] = [
    await openDirect({ ...times, holder: "web-3:4711", ...options }),
    freshUser(),
  ];
  const lease = await leaseOf(lock, user);
  const looking = await openDirect({ ...patient, ...options });
  await until(async () => (await looking.inspect(user)).outlived, { what: "the trace" });
  const isOver = async () => (await looking.inspect(user)).outlived === undefined;
  return { lock, user, lease, isOver };
}

describe("rule 19: the trace of an order that has outlived its lock", () => {
  test("lasts an hour at most, and is in the slot of its lock whatever the client's prefix", async () => {
    const { user, lease } = await outlived();
    const redis = observer(port);
    const key = `${lease.key}:{${lease.key}}:outlived`;
    const [, takenAtMs, , reason, holder] = String(await redis.get(key)).split(":");
    expect([reason, holder]).toEqual(["max-hold", "web-3%3A4711"]);
    expect(Math.abs(Date.now() - Number(takenAtMs))).toBeLessThan(30_000);
    const leftMs = Number(await redis.send("PTTL", key));
    expect(leftMs).toBeGreaterThan(3_500_000);
    expect(leftMs).toBeLessThanOrEqual(3_600_000);
    await lease.release();
    const client = ioredis6.connect(port, { keyPrefix: "shop:" });
    await untilReady(client);
    const prefixed = openLock({ store: new RedisStore(client), ...times });
    const held = await leaseOf(prefixed, user);
    await until(async () => (await prefixed.inspect(user)).outlived, { what: "the trace" });
    expect(await redis.exists(`shop:${lease.key}:{shop:${lease.key}}:outlived`)).toBe(true);
    await held.release();
  });

  test("is not written by a copy that was on its way when the order ended", async () => {
    const client = ioredis6.connect(port);
    await untilReady(client);
    const store = new RedisStore(client);
    const [lock, user] = [openLock({ store }), freshUser()];
    const command = commandOf({ key: lock.keyFor(user), holder: "web-3%3A4711" });
    const trace = { reason: "expired", takenAtMs: Date.now(), endedAtMs: Date.now() } as const;
    const send = (more: Pick<OutliveRequest, "trace">, of = command) =>
      new Promise((answer) =>
        store.outlive({ command: of, deadlineMs: undefined, lifeMs: 5_000, answer, ...more }),
      );
    await send({ trace });
    expect(await lock.inspect(user)).toMatchObject({ outlived: [{ reason: "expired" }] });
    // Another order's end takes nothing away.
    await send({ trace: undefined }, commandOf({ key: command.key }));
    expect(await lock.inspect(user)).toMatchObject({ outlived: [{ holder: "web-3:4711" }] });
    await send({ trace: undefined });
    await send({ trace });
    expect(await lock.inspect(user)).toEqual({ state: "free" });
  });

  test("stays beside those of the user's other orders, until each has ended", async () => {
    const client = ioredis6.connect(port);
    await untilReady(client);
    const store = new RedisStore(client);
    const [lock, user] = [openLock({ store }), freshUser()];
    const key = lock.keyFor(user);
    const [first, second] = ["web-1:1", "web-2:2"].map((holder) =>
      commandOf({ key, holder: encodeURIComponent(holder) }),
    ) as [LockCommand, LockCommand];
    const now = Date.now();
    const trace = { reason: "max-hold", takenAtMs: now, endedAtMs: now } as const;
    const send = (command: LockCommand, more: Pick<OutliveRequest, "trace">, lifeMs = 5_000) =>
      new Promise((answer) =>
        store.outlive({ command, deadlineMs: undefined, lifeMs, answer, ...more }),
      );
    const holders = async () => (await lock.inspect(user)).outlived?.map(({ holder }) => holder);
    const lifeOf = async () =>
      Number(await observer(port).send("PTTL", `${key}:{${key}}:outlived`));
    await send(first, { trace }, 60_000);
    await send(second, { trace });
    expect(await holders()).toEqual(["web-1:1", "web-2:2"]);
    await send(second, { trace: undefined });
    expect(await holders()).toEqual(["web-1:1"]);
    expect(await lifeOf()).toBeGreaterThan(30_000);
    await send(first, { trace: undefined });
    expect(await holders()).toBe(undefined);
    expect(await lifeOf()).toBeLessThanOrEqual(5_000);
    // No more than fit: the oldest goes.
    for (let at = 1; at <= 60; at++) {
      const holder = `web-${at}%3A4711`;
      await send(commandOf({ key, holder }), { trace });
    }
    const [oldest = "", ...others] = (await holders()) ?? [];
    expect(oldest).toMatch(/^web-[1-5]\d:/);
    expect(others.at(-1)).toBe("web-60:4711");
  });

  test("is there when the lock is closed, before the application closes its connections", async () => {
    const client = ioredis6.connect(port);
    await untilReady(client);
    const lock = openLock({ store: new RedisStore(client), holder: "web-3:4711" });
    const user = freshUser();
    await leaseOf(lock, user);
    await lock.close({ timeoutMs: 0 });
    client.disconnect();
    const other = await openDirect(patient);
    expect((await other.inspect(user)).outlived).toMatchObject([{ reason: "closed" }]);
  });

  test.each(["cut off", "silent"])(
    "is written after the outage in which the lock was lost: %s",
    async (how) => {
      const { lock, proxy } = await openFixture({ ...times, maxHoldMs: 60_000 });
      const [user, other] = [freshUser(), freshUser()];
      const [lease, ended] = [await leaseOf(lock, user), await leaseOf(lock, other)];
      if (how === "silent") {
        proxy.swallowRequests(true);
      } else {
        await proxy.refuse(true);
        proxy.resetAll();
      }
      await until(() => lease.signal.aborted && ended.signal.aborted, { what: "the losses" });
      await ended.release();
      proxy.swallowRequests(false);
      await proxy.refuse(false);
      proxy.resetAll();
      const looking = await openDirect(patient);
      const outlivedBy = async (who: string) => (await looking.inspect(who)).outlived;
      const outlived = await until(() => outlivedBy(user), { what: "the trace" });
      expect(outlived).toMatchObject([{ reason: "expired" }]);
      await lease.release();
      await until(async () => !(await outlivedBy(user)), { what: "its end" });
      expect(await outlivedBy(other)).toBe(undefined);
      // Of an order that has ended before anything of its trace was sent, nothing is written.
      const key = `${ended.key}:{${ended.key}}:outlived`;
      if (how === "cut off") expect(await observer(port).send("EXISTS", key)).toBe(0);
    },
  );

  test("is written after an outage that ends on the same connection", async () => {
    const server = await forTest(startRedis());
    const client = ioredis6.connect(server.port);
    await untilReady(client);
    const lock = openLock({ store: new RedisStore(client), ...times, maxHoldMs: 60_000 });
    const user = freshUser();
    const lease = await leaseOf(lock, user);
    await command(server.port, "REPLICAOF", "127.0.0.1", 1);
    await until(() => lease.signal.aborted, { what: "the loss" });
    // The trace is sent at the end of the lease's time, a tenth of ttlMs later, and refused.
    await sleep(times.ttlMs / 2);
    await command(server.port, "REPLICAOF", "NO", "ONE");
    const outlived = async () => (await lock.inspect(user)).outlived;
    expect(await until(outlived, { what: "the trace" })).toMatchObject([{ reason: "expired" }]);
    await lease.release();
    await until(async () => !(await outlived()), { what: "its end" });
  });

  test("is left by an order that a person has freed, and that goes on", async () => {
    const [lock, user] = [
      await openDirect({ ttlMs: 6_000, acquireTimeoutMs: 3_000, maxHoldMs: 60_000 }),
      freshUser(),
    ];
    const lease = await leaseOf(lock, user);
    const { id } = (await lock.inspect(user)) as { id: string };
    await lock.free(user, { id, by: "anna", reason: "ticket 4711" });
    await until(() => lease.signal.aborted, { what: "the holder to hear of it" });
    const outlived = await until(async () => (await lock.inspect(user)).outlived, {
      what: "the trace",
    });
    expect(outlived).toMatchObject([{ reason: "freed" }]);
    await lease.release();
    const isOver = async () => (await lock.inspect(user)).outlived === undefined;
    await until(isOver, { what: "its end" });
  });

  test("is what show, list and watch say, in place of an all-clear", async () => {
    const keyPrefix = `lock:${freshUser()}:`;
    const { user, lease, isOver } = await outlived({ keyPrefix });
    const onPrefix = ["--prefix", keyPrefix];
    const shown = (await runMain(["show", user, ...onPrefix], env)).stdout;
    expect(shown).toContain(`User ${user} is not locked`);
    expect(shown).toContain("(max-hold), and may still be at work in process 4711 on web-3");
    expect(shown).not.toContain("does not keep the user out now");
    const listed = await runMain(["list", ...onPrefix], env);
    expect(listed.stdout).toContain(
      `An order of user ${user} outlived its lock and may still be at work at web-3:4711`,
    );
    expect(listed.stdout).not.toContain("of no user id");
    const noIds = await runMain(["list", "--no-ids", ...onPrefix], env);
    expect(noIds.stdout).toContain("An order of a user outlived its lock");
    expect(noIds.stdout).not.toContain(user);
    const { prefixes } = JSON.parse((await runMain(["list", "--json", ...onPrefix], env)).stdout);
    expect(prefixes[0].outlived).toEqual([
      expect.objectContaining({ userId: user, holder: "web-3:4711", reason: "max-hold" }),
    ]);
    const watch = new Program(process.execPath, [bin, "watch", user, ...onPrefix], {
      env: { ...process.env, ...env },
    });
    await watch.prints(/ free +an order outlived its lock, which ended .* at web-3:4711\n/);
    await lease.release();
    await watch.prints(/ ended +an order that had outlived its lock\n/);
    watch.kill("SIGINT");
    await watch.ended;
    expect(await isOver()).toBe(true);
    const after = (await runMain(["show", user, ...onPrefix], env)).stdout;
    expect(after).toContain("does not keep the user out now");
  });
});

test("rule 19: a scan finds the user of a trace, whatever keyOf makes of the id", () => {
  const plain = { keyPrefix: "shop:", keyFor: (user: string) => `shop:${user}` } as CliLock;
  const keys = ["shop:a:b:{shop:a:b}:outlived", "shop:42:{app:shop:42}:outlived"];
  expect(keys.map((key) => outlivedUserOf(plain, key))).toEqual(["a:b", "42"]);
  expect(outlivedUserOf(plain, "shop:42:shop:42:outlived")).toBe("42");
  expect(outlivedUserOf(plain, "shop:42:outlived")).toBe(undefined);
});

test("rule 19: an order at work beyond maxHoldMs is a process warning, once", async () => {
  vi.resetModules();
  const given = recordWarnings();
  const { MemoryStore, SubmitLock } = await import("../../src/index.ts");
  const lock = new SubmitLock({ store: new MemoryStore(), ...times });
  const [first, second] = [await lock.acquire("1"), await lock.acquire("2")];
  if (first.outcome !== "acquired" || second.outcome !== "acquired") throw new Error("contended");
  await until(async () => (await lock.inspect("2")).outlived, { what: "the end of both" });
  expect(given.calls).toHaveLength(1);
  expect(given.calls[0]).toEqual([
    expect.stringMatching(/had not ended when its lock did, after maxHoldMs \(800 ms\)/),
    { type: "SubmitLockWarning", code: "SUBMIT_LOCK_OUTLIVED" },
  ]);
  given.restore();
  await lock.close({ timeoutMs: 0 });
});
