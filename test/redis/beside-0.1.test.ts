import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { RedisStore } from "../../src/index.ts";
import { type Asking, asking } from "../support/asking.ts";
import { type AnyRedis, closeClients, ioredis6, untilReady } from "../support/clients.ts";
import { closeLocks, commandOf } from "../support/locks.ts";
import { observer } from "../support/observer.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { onceOf, recordOf } from "../support/submissions.ts";

/** What version 0.1 does to a key: its values are bare UUIDs, and it compares them whole. */
class Of01 {
  readonly #redis: AnyRedis;

  constructor(redis: AnyRedis) {
    this.#redis = redis;
  }

  async acquire(key: string, ownerId: string): Promise<boolean> {
    return (await this.#redis.set(key, ownerId, "PX", 60_000, "NX")) === "OK";
  }

  extend(key: string, ownerId: string): Promise<unknown> {
    return this.#ifOwned("redis.call('PEXPIRE', KEYS[1], 60000)", key, ownerId);
  }

  release(key: string, ownerId: string): Promise<unknown> {
    return this.#ifOwned("redis.call('DEL', KEYS[1])", key, ownerId);
  }

  #ifOwned(act: string, key: string, ownerId: string): Promise<unknown> {
    const script = `if redis.call('GET', KEYS[1]) == ARGV[1] then return ${act} end return 'foreign'`;
    return this.#redis.eval(script, 1, key, ownerId);
  }
}

const redis = observer();
let old: Of01;
let store: RedisStore;
let now: Asking;
beforeEach(async () => {
  const client = await untilReady(ioredis6.connect(sharedRedisPort()));
  old = new Of01(client);
  store = new RedisStore(client);
  now = asking(store);
});
afterEach(async () => {
  await closeLocks();
  closeClients();
});

describe("while a process of 0.1 holds, one of 0.2", () => {
  test.each([
    ["without a submission", commandOf],
    ["with one", onceOf],
  ])("is kept out (%s), and touches nothing", async (_what, make) => {
    const { key, ownerId } = commandOf();
    expect(await old.acquire(key, ownerId)).toBe(true);
    const mine = make({ key });
    const seen = async () => [await redis.get(key), await redis.send("PEXPIRETIME", key)];
    const was = await seen();
    const reply = await now.acquire(mine).reply;
    expect(reply).toMatchObject({ kind: "contended" });
    expect(reply).not.toMatchObject({ sameSubmission: true });
    for (const each of [mine, onceOf({ key })]) {
      expect(await now.extend(each).reply).toMatchObject({ kind: "foreign" });
      expect(await now.release(each).reply).toMatchObject({ kind: "foreign" });
      expect(await now.release(each, Date.now() + 60_000).reply).toMatchObject({ kind: "foreign" });
    }
    const plan = { record: recordOf(onceOf()), expiresAtMs: Date.now() + 5_000 };
    expect(await now.complete(onceOf({ key }), plan).reply).toMatchObject({ kind: "late" });
    expect(await seen()).toEqual(was);
    expect(await old.extend(key, ownerId)).toBe(1);
    expect(await old.release(key, ownerId)).toBe(1);
  });
});

describe("while a process of 0.2 holds, one of 0.1", () => {
  test.each([
    ["a lock alone", commandOf],
    ["a submission", onceOf],
  ])("is kept out of %s, and touches nothing", async (_what, make) => {
    const held = make();
    expect(await now.acquire(held).reply).toMatchObject({ kind: "taken" });
    const was = await redis.get(held.key);
    expect(await old.acquire(held.key, commandOf().ownerId)).toBe(false);
    // Not even with the owner id itself.
    for (const ownerId of [commandOf().ownerId, held.ownerId]) {
      expect(await old.extend(held.key, ownerId)).toBe("foreign");
      expect(await old.release(held.key, ownerId)).toBe("foreign");
    }
    expect(await redis.get(held.key)).toBe(was);
    expect(await now.release(held).reply).toMatchObject({ kind: "done" });
  });
});
