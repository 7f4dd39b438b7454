import { expect, test } from "vitest";
import { asking } from "../support/asking.ts";
import { commandOf } from "../support/locks.ts";
import { keepsTheContract } from "../support/store-contract.ts";
import { onEveryRedisStore } from "./every-redis-store.ts";

onEveryRedisStore((openStore) => {
  keepsTheContract(openStore);

  test("a release of one turn comes before its acquires", async () => {
    const [store, mine] = [asking(openStore()), commandOf()];
    await store.acquire(mine).reply;
    const next = store.acquire(commandOf({ key: mine.key }));
    const release = store.release(mine);
    expect([(await release.reply).kind, (await next.reply).kind]).toEqual(["done", "taken"]);
  });
});
