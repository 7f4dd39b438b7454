import { afterEach, expect, test } from "vitest";
import { Program } from "../support/child.ts";
import { bin, runMain } from "../support/cli.ts";
import { freshUser } from "../support/ids.ts";
import { leaseOf } from "../support/locks.ts";
import { sharedRedisPort, startRedis } from "../support/redis-server.ts";
import { closeFixtures, openDirect } from "./fixture.ts";

afterEach(closeFixtures);

test("watch prints what happens to a lock, until it is interrupted", async () => {
  const lock = await openDirect({ ttlMs: 3_000, holder: "web-3:4711" });
  const user = freshUser();
  const env = { ...process.env, REDIS_URL: `redis://127.0.0.1:${sharedRedisPort()}` };
  const watch = new Program(process.execPath, [bin, "watch", user], { env });
  await watch.prints(/free/);
  const lease = await leaseOf(lock, user);
  const id = lease.ownerId.slice(0, 8);
  await watch.prints(new RegExp(`taken    web-3:4711 ${id}`));
  await watch.prints(/renewed/);
  await lease.release();
  await watch.prints(/free {5}after about /);
  const lines = watch.output().trim().split("\n");
  for (const line of lines) expect(line).toMatch(/^\d\d:\d\d:\d\d\.\d{3} (free|taken|renewed)/);
  watch.kill("SIGINT");
  expect(await watch.ended).toBe("SIGINT");
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
    const watch = new Program(process.execPath, [bin, "watch", freshUser()], { env });
    await watch.prints(/free/);
    redis.pause();
    expect(await watch.ended).toBe(3);
    expect(watch.output()).toContain("submit-lock: no answer from 127.0.0.1:");
  } finally {
    await redis.stop();
  }
});
