import { createHash, randomUUID } from "node:crypto";
import { afterEach, describe, expect, test } from "vitest";
import { LockMisconfiguredError, LockUnavailableError, RedisStore } from "../../src/index.ts";
import { redisClients, untilReady } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { leaseOf, openLock } from "../support/locks.ts";
import { until } from "../support/until.ts";
import { closeFixtures, isFree, isInspect, openFixture, openHeld, takePulse } from "./fixture.ts";

afterEach(closeFixtures);

const why = { by: "anna@ops-1", reason: "ticket 4711" };
const sha1 = (text: string) => createHash("sha1").update(text).digest("hex");

describe.each(redisClients)("what a person finds at a key, with $name", ({ connect }) => {
  test.each([
    ["empty", ""],
    ["the incident's", "1"],
    ["freed: and no owner id", "freed:me:anna:1:x"],
    ["cooldown: and no owner id", "cooldown:soon"],
    ["a tombstone that says no more", `freed:${"0".repeat(36)}`],
  ])("a value that is %s is foreign, and only its beginning is shown", async (_what, value) => {
    const { lock, redis } = await openFixture({ connect });
    const user = freshUser();
    await redis.send("SET", lock.keyFor(user), value, "PX", 60_000);
    const before = await redis.dump(lock.keyFor(user));
    const found = await lock.inspect(user);
    const id = sha1(`${value}:${await redis.send("PEXPIRETIME", lock.keyFor(user))}`);
    const valueStart = value.slice(0, 16);
    expect(found).toMatchObject({ state: "foreign", id: id.slice(0, 8), valueStart });
    expect(await redis.dump(lock.keyFor(user))).toEqual(before);
    const freed = await lock.free(user, { id, ...why });
    expect(freed).toEqual({ outcome: "freed", freeInMs: 0 });
    expect(await redis.exists(lock.keyFor(user))).toBe(false);
  });

  test.each([
    ["text", "SET"],
    ["list", "RPUSH"],
  ])("rule 19: free leaves the next lock of another program alone: a %s", async (_what, name) => {
    const { lock, redis } = await openFixture({ connect });
    const user = freshUser();
    const key = lock.keyFor(user);
    // Every lock of an old shop holds the same value, and lives for as long.
    const takeOld = async (lifeMs: number) => {
      await redis.send("DEL", key);
      await redis.send(name, key, "1");
      await redis.send("PEXPIRE", key, lifeMs);
    };
    await takeOld(7_200_000);
    const dead = await lock.inspect(user);
    if (dead.state !== "foreign") throw new Error(dead.state);
    await until(async () => (await redis.send("PTTL", key)) !== 7_200_000, { what: "a later ms" });
    await takeOld(7_200_000);
    for (const now of [false, true]) {
      expect(await lock.free(user, { id: dead.id, ...why, now })).toEqual({ outcome: "changed" });
    }
    const living = await lock.inspect(user);
    if (living.state !== "foreign") throw new Error(living.state);
    expect(await lock.free(user, { id: living.id, ...why })).toMatchObject({ outcome: "freed" });
  });

  test("rule 19: the id of a foreign value stays the same while time goes by", async () => {
    const { lock, redis } = await openFixture({ connect });
    const user = freshUser();
    await redis.send("SET", lock.keyFor(user), "1", "PX", 60_000);
    const ids = new Set<string>();
    for (let look = 0; look < 300; look++) {
      const found = await lock.inspect(user);
      ids.add(found.state === "foreign" ? found.id : found.state);
    }
    expect(ids.size).toBe(1);
    // A click has given it an expiry, or another one.
    await redis.send("PEXPIRE", lock.keyFor(user), 30_000);
    const [id = ""] = ids;
    expect(await lock.free(user, { id, ...why })).toEqual({ outcome: "changed" });
    await redis.send("DEL", lock.keyFor(user));
  });

  test("a key without an expiry has none, which JSON writes as null", async () => {
    const { lock, redis } = await openFixture({ connect });
    const user = freshUser();
    await redis.send("SET", lock.keyFor(user), "1");
    const found = await lock.inspect(user);
    // Of its value alone.
    const id = sha1("1").slice(0, 8);
    expect(found).toMatchObject({ state: "foreign", id, expiresInMs: Number.POSITIVE_INFINITY });
    expect(JSON.parse(JSON.stringify(found)).expiresInMs).toBe(null);
    await redis.send("DEL", lock.keyFor(user));
  });

  test.each([
    ["list", "RPUSH", ["somebody", "else"]],
    ["stream", "XADD", ["*", "somebody", "else"]],
  ])("a %s is foreign, and freed by the id of its key's name", async (_what, name, values) => {
    const { lock, redis } = await openFixture({ connect });
    const user = freshUser();
    const key = lock.keyFor(user);
    await redis.send(name, key, ...values);
    const before = await redis.dump(key);
    const expiresInMs = Number.POSITIVE_INFINITY;
    const id = sha1(key).slice(0, 8);
    expect(await lock.inspect(user)).toEqual({ state: "foreign", id, expiresInMs, notText: true });
    expect(await lock.acquire(user)).toMatchObject({ outcome: "contended", expiresInMs });
    for (const now of [false, true]) {
      const other = id.startsWith("0") ? "11111111" : "00000000";
      expect(await lock.free(user, { id: other, ...why, now })).toEqual({ outcome: "changed" });
    }
    expect(await redis.dump(key)).toEqual(before);
    expect(await lock.free(user, { id, ...why })).toEqual({ outcome: "freed", freeInMs: 0 });
    expect(await redis.exists(key)).toBe(false);
    await (await leaseOf(lock, user)).release();
  });

  test("the id of a key that held no text frees no text that is there by now", async () => {
    const { lock, redis } = await openFixture({ connect });
    const user = freshUser();
    const key = lock.keyFor(user);
    await redis.send("RPUSH", key, "somebody", "else");
    const found = await lock.inspect(user);
    if (found.state !== "foreign") throw new Error(found.state);
    await redis.send("DEL", key);
    const lease = await leaseOf(lock, user);
    for (const now of [false, true]) {
      expect(await lock.free(user, { id: found.id, ...why, now })).toEqual({ outcome: "changed" });
    }
    expect(await redis.ownerOf(key)).toBe(lease.ownerId);
    await lease.release();
  });

  test.each([
    ["a bare UUID of another library", randomUUID()],
    ["a UUID with other text behind it", `${randomUUID()} of somebody`],
  ])("%s is held and freed as ours is, because its holder may live", async (_what, value) => {
    const { lock, redis } = await openFixture({ connect });
    const user = freshUser();
    await redis.send("SET", lock.keyFor(user), value, "PX", 60_000);
    const id = value.slice(0, 8);
    expect(await lock.inspect(user)).toEqual({
      state: "held",
      id,
      holder: "",
      heldMs: undefined,
      renewedMs: undefined,
      expiresInMs: expect.any(Number),
      endsInMs: undefined,
    });
    const result = await lock.free(user, { id, ...why });
    if (result.outcome !== "freed") throw new Error(result.outcome);
    expect(result.freeInMs).toBeGreaterThan(5_000);
    expect(await redis.get(lock.keyFor(user))).toContain(`freed:${value.slice(0, 36)}:`);
    expect(await lock.free(user, { id, ...why, now: true })).toMatchObject({ freeInMs: 0 });
    expect(await redis.exists(lock.keyFor(user))).toBe(false);
  });

  test("no age is below 0, whatever the clocks and the values say", async () => {
    const { lock, redis } = await openFixture({ connect });
    const user = freshUser();
    const future = `${Date.now() + 86_400_000}000`;
    const value = `${randomUUID()}:${future}:1000:2000:web%2D3%::`;
    await redis.send("SET", lock.keyFor(user), value, "PX", 60_000);
    const found = await lock.inspect(user);
    expect(found).toMatchObject({ state: "held", heldMs: 0, renewedMs: 0, endsInMs: 2_000 });
    // More than the second that it says of itself.
    expect(found).toMatchObject({ clockSetBack: true });
    // As it is, because it is no percent-encoding.
    expect(found).toMatchObject({ holder: "web%2D3%" });
    await redis.send("DEL", lock.keyFor(user));
  });

  test("the client's own prefix counts, and stringNumbers do not matter", async () => {
    const clientOptions = { keyPrefix: "shop:", stringNumbers: true };
    const { lock, redis, user, lease } = await openHeld({ connect, clientOptions });
    expect(await redis.exists(`shop:${lease.key}`)).toBe(true);
    const found = await lock.inspect(user);
    if (found.state !== "held") throw new Error(found.state);
    expect(found.expiresInMs).toBeLessThanOrEqual(4_000);
    const result = await lock.free(user, { id: found.id, ...why });
    if (result.outcome !== "freed") throw new Error(result.outcome);
    expect(result.freeInMs).toBeGreaterThan(0);
    await lock.free(user, { id: found.id, ...why, now: true });
    expect(await lock.inspect(user)).toEqual({ state: "free" });
    await redis.send("RPUSH", `shop:${lease.key}`, "a list");
    const id = sha1(`shop:${lease.key}`).slice(0, 8);
    expect(await lock.inspect(user)).toMatchObject({ state: "foreign", id, notText: true });
    await redis.send("DEL", `shop:${lease.key}`);
  });
});

describe("a Redis that is away or refuses", () => {
  const patient = { ttlMs: 40_000, acquireTimeoutMs: 20_000, commandTimeoutMs: 100 };

  test("a lost answer is asked for again on the other connection", async () => {
    const { lock, proxy, user, lease } = await openHeld(patient);
    const id = lease.ownerId.slice(0, 8);
    const lostLook = proxy.loseReplyOnce(isInspect);
    expect(await lock.inspect(user)).toMatchObject({ state: "held", id });
    await lostLook;
    expect(proxy.connections).toBe(2);
    const lostFree = proxy.loseReplyOnce(isFree);
    expect(await lock.free(user, { id, ...why })).toMatchObject({ outcome: "freed" });
    await lostFree;
    expect(await lock.inspect(user)).toMatchObject({ state: "freed", id });
  });

  test("silence ends in an error within acquireTimeoutMs", async () => {
    const { lock, proxy } = await openFixture({ acquireTimeoutMs: 600, ttlMs: 4_000 });
    proxy.holdRequests();
    const pulse = await takePulse();
    const from = performance.now();
    const asked = [lock.inspect("42"), lock.free("42", { id: "0f8fad5b", ...why })];
    for (const each of await Promise.allSettled(asked)) {
      expect(each).toMatchObject({ status: "rejected", reason: expect.any(LockUnavailableError) });
    }
    expect(performance.now() - from).toBeLessThan(pulse.atMost(650));
  });

  test.each([
    ["eval", ["inspect", "free"]],
    ["get", ["inspect", "free"]],
    ["set", ["free"]],
  ])("a user who may not %s is told what is missing", async (name, refused) => {
    const { redis, proxy, user, lease } = await openHeld({ ttlMs: 40_000 });
    const username = freshUser();
    await redis.send("ACL", "SETUSER", username, "on", ">secret", "~*", "+@all", `-${name}`);
    const denied = redisClients[0]?.connect(proxy.port, { username, password: "secret" });
    if (denied === undefined) throw new Error("no client");
    await untilReady(denied);
    const other = openLock({ store: new RedisStore(denied) });
    const id = lease.ownerId.slice(0, 8);
    const cameOf = (asked: Promise<unknown>) =>
      asked.then(
        () => "answered",
        (error) => error,
      );
    const found = cameOf(other.inspect(user));
    const freed = cameOf(other.free(user, { id, ...why }));
    for (const [method, came] of Object.entries({ inspect: await found, free: await freed })) {
      if (refused.includes(method)) expect(came).toBeInstanceOf(LockMisconfiguredError);
      else expect(came).toBe("answered");
    }
    // Refused means untouched.
    expect(await redis.ownerOf(lease.key)).toBe(lease.ownerId);
  });
});
