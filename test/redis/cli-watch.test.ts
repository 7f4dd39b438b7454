import { spawn } from "node:child_process";
import { once } from "node:events";
import { afterEach, expect, test } from "vitest";
import { bin, runMain } from "../support/cli.ts";
import { freshUser } from "../support/ids.ts";
import { leaseOf } from "../support/locks.ts";
import { sharedRedisPort, startRedis } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { closeFixtures, openDirect } from "./fixture.ts";

afterEach(closeFixtures);

test("watch prints what happens to a lock, until it is interrupted", async () => {
  const lock = await openDirect({ ttlMs: 3_000, holder: "web-3:4711" });
  const user = freshUser();
  const env = { ...process.env, REDIS_URL: `redis://127.0.0.1:${sharedRedisPort()}` };
  const child = spawn(process.execPath, [bin, "watch", user], { env });
  let printed = "";
  child.stdout.on("data", (chunk) => {
    printed += chunk;
  });
  const ended = once(child, "exit");
  const prints = (what: string) => until(() => printed.includes(what), { what: `"${what}"` });
  await prints("free");
  const lease = await leaseOf(lock, user);
  const id = lease.ownerId.slice(0, 8);
  await prints(`taken    web-3:4711 ${id}`);
  await prints("renewed");
  await lease.release();
  await prints("free     after about ");
  const lines = printed.trim().split("\n");
  for (const line of lines) expect(line).toMatch(/^\d\d:\d\d:\d\d\.\d{3} (free|taken|renewed)/);
  child.kill("SIGINT");
  expect(await ended).toEqual([null, "SIGINT"]);
});

test("watch --json prints one object a line", async () => {
  const lock = await openDirect({});
  const user = freshUser();
  const lease = await leaseOf(lock, user);
  const env = { REDIS_URL: `redis://127.0.0.1:${sharedRedisPort()}` };
  const { code, stdout, stderr } = await runMain(["watch", user, "--json", "--for", "300ms"], env);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  const [first] = stdout.trim().split("\n");
  expect(JSON.parse(first ?? "")).toMatchObject({
    time: expect.stringMatching(/^\d{4}-/),
    userId: user,
    change: "taken",
    state: "held",
    id: lease.ownerId.slice(0, 8),
  });
  await lease.release();
});

test("watch ends with 3 when Redis falls silent", async () => {
  const redis = await startRedis();
  try {
    const env = { ...process.env, REDIS_URL: redis.url };
    const child = spawn(process.execPath, [bin, "watch", freshUser()], { env });
    let printed = "";
    let said = "";
    child.stdout.on("data", (chunk) => {
      printed += chunk;
    });
    child.stderr.on("data", (chunk) => {
      said += chunk;
    });
    const ended = once(child, "close");
    await until(() => printed.includes("free"), { what: "the first look" });
    redis.pause();
    expect(await ended).toEqual([3, null]);
    expect(said).toContain("submit-lock: no answer from 127.0.0.1:");
  } finally {
    await redis.stop();
  }
});
