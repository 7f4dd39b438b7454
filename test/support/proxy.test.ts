import { once } from "node:events";
import { createConnection } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import type { Redis } from "ioredis";
import { afterEach, beforeEach, expect, test } from "vitest";
import { forTest } from "../support/redis-server.ts";
import { closeClients, ioredis6, type SharedOptions } from "./clients.ts";
import { command } from "./command.ts";
import { freshUser } from "./ids.ts";
import { type RedisProxy, startProxy } from "./proxy.ts";
import { sharedRedisPort } from "./redis-server.ts";
import { until } from "./until.ts";

// One connection, no second try: each test sees exactly what the proxy did to it.
const ONCE = { retryStrategy: null, maxRetriesPerRequest: 0, commandTimeout: 500 } as const;

let proxy: RedisProxy;
let key: string;
beforeEach(async () => {
  proxy = await startProxy(sharedRedisPort());
  key = freshUser();
});
afterEach(async () => {
  closeClients();
  await proxy.stop();
  await command(sharedRedisPort(), "DEL", key);
});

/** A client behind the proxy that is connected. */
async function open(options: SharedOptions = {}): Promise<Redis> {
  const redis = ioredis6.connect(proxy.port, { ...ONCE, ...options });
  await once(redis, "ready");
  return redis;
}

const stored = (): Promise<unknown> => command(sharedRedisPort(), "GET", key);
const isSet = (argv: string[]): boolean => argv[0] === "set";

test("what is not disturbed passes, and is counted", async () => {
  const redis = ioredis6.connect(proxy.port, ONCE);
  const big = "x".repeat(300_000);
  await redis.set(key, big);
  expect(await redis.get(key)).toBe(big);
  expect(proxy.count("SET")).toBe(1);
  expect(proxy.commands.at(-1)).toEqual(["get", key]);
  expect(proxy.connections).toBe(1);
});

test("a reply is lost once: Redis has applied the command, and an earlier reply still arrives", async () => {
  const redis = await open();
  const lost = proxy.loseReplyOnce(isSet);
  const before = redis.ping();
  const set = redis.set(key, "1");
  const after = redis.ping();
  await Promise.all([
    expect(before).resolves.toBe("PONG"),
    expect(set).rejects.toThrow("Command timed out"),
    expect(after).rejects.toThrow("Command timed out"),
    lost,
  ]);
  expect(await stored()).toBe("1");
  const other = ioredis6.connect(proxy.port, ONCE);
  expect(await other.set(key, "2")).toBe("OK");
});

test("a connection whose reply was lost is reset after the given time", async () => {
  const redis = await open({ commandTimeout: 10_000 });
  const lost = proxy.loseReplyOnce(isSet, { resetAfterMs: 10 });
  await expect(redis.set(key, "1")).rejects.toThrow();
  await lost;
  expect(await stored()).toBe("1");
});

test("swallowed replies leave the command applied, and no later reply takes their place", async () => {
  const redis = await open();
  proxy.swallowReplies(true);
  await expect(redis.set(key, "1")).rejects.toThrow("Command timed out");
  proxy.swallowReplies(false);
  await expect(redis.get(key)).rejects.toThrow("Command timed out");
  expect(await stored()).toBe("1");
});

test("swallowed requests never reach Redis", async () => {
  const redis = await open();
  proxy.swallowRequests(true);
  await expect(redis.set(key, "1")).rejects.toThrow("Command timed out");
  proxy.swallowRequests(false);
  await expect(redis.ping()).rejects.toThrow("Command timed out");
  expect(await ioredis6.connect(proxy.port, ONCE).ping()).toBe("PONG");
  expect(await stored()).toBe(null);
});

test("held requests reach Redis later, also when their client has gone", async () => {
  const redis = await open();
  proxy.holdRequests();
  await expect(redis.set(key, "late")).rejects.toThrow("Command timed out");
  closeClients();
  await until(() => proxy.connections === 0, { what: "the client to be gone" });
  expect(await stored()).toBe(null);
  proxy.releaseHeld();
  await until(async () => (await stored()) === "late", { what: "the late copy to arrive" });
});

test("requests held for a time go on by themselves", async () => {
  const redis = await open({ commandTimeout: 10_000 });
  proxy.holdRequests(50);
  expect(await redis.set(key, "1")).toBe("OK");
});

test("one request is held with all that follow it on its connection; others pass", async () => {
  const [redis, other] = [ioredis6.connect(proxy.port), ioredis6.connect(proxy.port)];
  await Promise.all([once(redis, "ready"), once(other, "ready")]);
  const held = proxy.holdRequestOnce(isSet);
  const set = redis.set(key, "1");
  await held;
  expect(await other.get(key)).toBe(null);
  proxy.releaseHeld();
  expect(await set).toBe("OK");
});

test("one request is held for a time and outlives its client, whose side was reset", async () => {
  const redis = await open();
  const held = proxy.holdRequestOnce(isSet, { releaseAfterMs: 150, resetClientAfterMs: 20 });
  const set = redis.set(key, "late");
  await held;
  await expect(set).rejects.toThrow();
  expect(await stored()).toBe(null);
  await until(async () => (await stored()) === "late", { what: "the late copy to arrive" });
});

test("one reply is held for a time, and Redis has applied the command meanwhile", async () => {
  const redis = await open({ commandTimeout: 10_000 });
  const held = proxy.holdReplyOnce(isSet, { releaseAfterMs: 300 });
  const from = performance.now();
  const set = redis.set(key, "1");
  await held;
  await until(async () => (await stored()) === "1", { what: "Redis to have applied it" });
  expect(await set).toBe("OK");
  expect(performance.now() - from).toBeGreaterThan(250);
});

test("a reset before: Redis never sees the request", async () => {
  const redis = await open();
  const reset = proxy.resetBeforeOnce(isSet);
  await expect(redis.set(key, "1")).rejects.toThrow();
  await reset;
  expect(await stored()).toBe(null);
});

test("a deaf connection: one command is applied, no later one is", async () => {
  const redis = await open();
  const lost = proxy.loseReplyOnce(isSet, { deaf: true });
  await Promise.all([expect(redis.set(key, "1")).rejects.toThrow("Command timed out"), lost]);
  await expect(redis.set(key, "2")).rejects.toThrow("Command timed out");
  expect(await stored()).toBe("1");
});

test("every request waits for what is done before it, and keeps its place", async () => {
  const redis = await open();
  let done = 0;
  proxy.waitBeforeEachRequest(async () => void done++);
  const replies = await Promise.all([redis.set(key, "1"), redis.get(key), redis.del(key)]);
  expect(replies).toEqual(["OK", "1", 1]);
  expect(done).toBe(3);
  const later = ioredis6.connect(proxy.port, ONCE);
  await later.ping();
  expect(done).toBeGreaterThan(3);
});

test("a fault can wait for a request on another connection", async () => {
  const [first, second] = [ioredis6.connect(proxy.port), ioredis6.connect(proxy.port, ONCE)];
  await Promise.all([once(first, "ready"), once(second, "ready")]);
  const seen = new Set<number>();
  const held = proxy.holdRequestOnce((argv, connection) => {
    if (!isSet(argv) || seen.size === 0) {
      if (isSet(argv)) seen.add(connection);
      return false;
    }
    return !seen.has(connection);
  });
  expect(await first.set(key, "1")).toBe("OK");
  expect(await first.set(key, "2")).toBe("OK");
  const set = second.set(key, "3");
  await held;
  await expect(set).rejects.toThrow("Command timed out");
  expect(await stored()).toBe("2");
});

test("held replies arrive once they are released", async () => {
  const redis = ioredis6.connect(proxy.port);
  await once(redis, "ready");
  proxy.holdReplies();
  const set = redis.set(key, "1");
  await until(async () => (await stored()) === "1", { what: "Redis to have applied it" });
  const first = await Promise.race([set, sleep(50, "nothing yet")]);
  proxy.releaseHeld();
  expect([first, await set]).toEqual(["nothing yet", "OK"]);
});

test("a client that ends its side still hears what Redis has to say", async () => {
  const socket = createConnection({ port: proxy.port, host: "127.0.0.1" });
  proxy.holdReplies();
  socket.end("*1\r\n$4\r\nPING\r\n");
  await until(() => proxy.count("PING") === 1, { what: "the request to pass" });
  proxy.releaseHeld();
  const [reply] = await once(socket, "data");
  expect(String(reply)).toBe("+PONG\r\n");
  await once(socket, "close");
});

test("a reset breaks every connection", async () => {
  const redis = await open();
  proxy.resetAll();
  await until(() => redis.status === "end", { what: "the client to notice" });
  await until(() => proxy.connections === 0, { what: "the connection to be gone" });
});

test("refused: new connections fail, open ones stay, until it is lifted", async () => {
  const redis = await open();
  await proxy.refuse(true);
  await expect(command(proxy.port, "PING")).rejects.toThrow();
  expect(await redis.ping()).toBe("PONG");
  await proxy.refuse(false);
  expect(await command(proxy.port, "PING")).toBe("PONG");
});

test("a Redis that is away looks like a connection that breaks", async () => {
  const nobody = await forTest(startProxy(1));
  await expect(command(nobody.port, "PING")).rejects.toThrow();
});
