import { describe, expect, test } from "vitest";
import { runChild, sourceUrl } from "../support/child.ts";
import { freshUser } from "../support/ids.ts";
import { observer } from "../support/observer.ts";
import { sharedRedisPort } from "../support/redis-server.ts";

/** A process whose own clock is wrong from its first line, and right by its own account. */
const code = (skewMs: number, user: string) => `
  const { now } = Date;
  Date.now = () => now() + ${skewMs};
  const { subscribe } = await import("node:diagnostics_channel");
  const { Redis } = await import("ioredis");
  const { RedisStore, SubmitLock } = await import(${JSON.stringify(sourceUrl("index.ts"))});
  const copies = [];
  subscribe("submit-lock:acquire", (message) => copies.push(message.copies));
  const redis = new Redis(${sharedRedisPort()});
  const lock = new SubmitLock({ store: new RedisStore(redis), acquireTimeoutMs: 5_000 });
  await new Promise((resolve) => redis.once("ready", resolve));
  const outcomes = [];
  for (let i = 0; i < 3; i++) {
    const first = await lock.acquire(${JSON.stringify(user)});
    outcomes.push(first.outcome, first.confirmed);
    outcomes.push((await lock.acquire(${JSON.stringify(user)})).outcome);
    outcomes.push(await first.lease.release());
  }
  // The clock is the server's, and so that of every store on the client.
  const other = new SubmitLock({ store: new RedisStore(redis), keyPrefix: "lock:other:" });
  await other.withLock(${JSON.stringify(user)}, () => {});
  await other.close();
  await lock.close();
  await redis.quit();
  console.log(JSON.stringify({ copies, outcomes }));`;

describe("rule 12: a wrong clock costs one more request for each client, and nothing else", () => {
  test.each([
    ["an hour ahead", 3_600_000, 2],
    ["an hour behind", -3_600_000, 2],
    ["right", 0, 1],
  ])("a process whose clock is %s", async (_name, skewMs, firstCopies) => {
    const user = freshUser();
    const { code: exit, stdout, stderr } = await runChild(code(skewMs, user));
    expect({ exit, stderr }).toEqual({ exit: 0, stderr: "" });
    const round = ["acquired", false, "contended", "released"];
    expect(JSON.parse(stdout)).toEqual({
      copies: [firstCopies, 1, 1, 1, 1, 1, 1],
      outcomes: [...round, ...round, ...round],
    });
    expect(await observer().exists(`lock:submit:${user}`)).toBe(false);
  });
});
