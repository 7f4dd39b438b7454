import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import type { LockStore } from "../../src/index.ts";
import { asking } from "./asking.ts";
import { freshUser } from "./ids.ts";
import { commandOf, expiresInMs, roomyTimes } from "./locks.ts";

/** What the lock relies on, whatever holds the keys. */
export function keepsTheContract(openStore: () => LockStore): void {
  const open = () => asking(openStore());
  const rivalOf = (key: string) => commandOf({ key });

  test("a second copy finds the key to be mine, and leaves its life as it is", async () => {
    const [store, mine] = [open(), commandOf()];
    await store.acquire(mine).reply;
    const takenBefore = performance.now();
    await sleep(50);
    expect(await store.acquire(mine).reply).toMatchObject({ kind: "mine" });
    const askedAfter = performance.now();
    const left = await expiresInMs(store.acquire(rivalOf(mine.key)));
    // Two milliseconds, because both ends are rounded.
    expect(left).toBeLessThanOrEqual(roomyTimes.ttlMs - (askedAfter - takenBefore) + 2);
  });

  test("250 keys of one turn each get the answer that is theirs", async () => {
    const store = open();
    const held = Array.from({ length: 125 }, () => commandOf());
    await Promise.all(held.map((command) => store.acquire(command).reply));
    const asked = held.flatMap(({ key }) => [rivalOf(key), commandOf()]);
    const replies = await Promise.all(asked.map((command) => store.acquire(command).reply));
    expect(replies.map(({ kind }) => kind)).toEqual(held.flatMap(() => ["contended", "taken"]));
  });

  test("an extend never shortens a life", async () => {
    const [store, mine] = [open(), commandOf()];
    await store.acquire(mine).reply;
    const shorter = { ...mine, times: { ...roomyTimes, ttlMs: 100 } };
    expect(await store.extend(shorter).reply).toMatchObject({ kind: "done" });
    expect(await expiresInMs(store.acquire(rivalOf(mine.key)))).toBeGreaterThan(100);
  });

  test("an extend by another owner is foreign, and leaves the life as it is", async () => {
    const [store, mine] = [open(), commandOf()];
    await store.acquire(mine).reply;
    const longer = commandOf({ key: mine.key, times: { ...roomyTimes, ttlMs: 60_000 } });
    expect(await store.extend(longer).reply).toMatchObject({ kind: "foreign" });
    const left = await expiresInMs(store.acquire(rivalOf(mine.key)));
    expect(left).toBeLessThanOrEqual(roomyTimes.ttlMs + 2);
  });

  test("an extend of a free key says gone, and does not take it", async () => {
    const [store, mine] = [open(), commandOf()];
    expect(await store.extend(mine).reply).toMatchObject({ kind: "gone" });
    expect(await store.acquire(rivalOf(mine.key)).reply).toMatchObject({ kind: "taken" });
  });

  test("a release frees the key, and a second one finds it gone", async () => {
    const [store, mine] = [open(), commandOf()];
    await store.acquire(mine).reply;
    expect(await store.release(mine).reply).toMatchObject({ kind: "done" });
    expect(await store.release(mine).reply).toMatchObject({ kind: "gone" });
    expect(await store.acquire(rivalOf(mine.key)).reply).toMatchObject({ kind: "taken" });
  });

  test("a release by another owner is foreign, and the key stays", async () => {
    const [store, mine] = [open(), commandOf()];
    await store.acquire(mine).reply;
    expect(await store.release(rivalOf(mine.key)).reply).toMatchObject({ kind: "foreign" });
    expect(await store.acquire(mine).reply).toMatchObject({ kind: "mine" });
  });

  test("the store's time never runs backwards", async () => {
    const [store, mine] = [open(), commandOf()];
    let last = Number.NEGATIVE_INFINITY;
    for (const name of ["acquire", "acquire", "extend", "extend", "release", "release"] as const) {
      const reply = await store[name](mine).reply;
      if (!("storeTimeMs" in reply)) throw new Error(`no answer: ${reply.kind}`);
      expect(reply.storeTimeMs).toBeGreaterThanOrEqual(last);
      last = reply.storeTimeMs;
    }
  });

  test("a store is attached and detached any number of times", async () => {
    const store = openStore();
    const detach = [store.attach(() => {}), store.attach(() => {})];
    await Promise.all([...detach, ...detach].map((end) => end()));
    const end = store.attach(() => {});
    const user = freshUser();
    const { reply } = asking(store).acquire(commandOf({ key: user }));
    expect(await reply).toMatchObject({ kind: "taken" });
    await end();
  });
}
