import { expect, test } from "vitest";
import type { LockStore } from "../../src/index.ts";
import { asking } from "../support/asking.ts";
import { everyClusterClient, everyRedisClient } from "../support/clients.ts";
import { commandOf } from "../support/locks.ts";
import { keepsAnswers } from "../support/once-contract.ts";
import { keepsTheContract } from "../support/store-contract.ts";
import { onRedisStores } from "./every-redis-store.ts";

function releasesFirst(openStore: () => LockStore): void {
  test("a release of one turn comes before its acquires", async () => {
    const [store, mine] = [asking(openStore()), commandOf()];
    await store.acquire(mine).reply;
    const next = store.acquire(commandOf({ key: mine.key }));
    const release = store.release(mine);
    expect([(await release.reply).kind, (await next.reply).kind]).toEqual(["done", "taken"]);
  });
}

onRedisStores(everyRedisClient, everyClusterClient, keepsTheContract, keepsAnswers, releasesFirst);
