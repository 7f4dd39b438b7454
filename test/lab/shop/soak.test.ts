import { expect, inject, test } from "vitest";
import { bothLibraries, seedOf } from "../laboratory.ts";
import { misses, soak } from "./soak.ts";

// `npm run lab -- soak` goes on for ten minutes, and with `--cluster` on a Cluster.
test("mixed traffic under random faults leaves nothing behind", async () => {
  const seed = seedOf("SOAK_SEED");
  const result = await soak({
    binary: inject("redisServerBinary"),
    onCluster: false,
    seed,
    rounds: 1,
    roundMs: 9_000,
    customers: 16,
    clients: bothLibraries,
    untilIdle: false,
  });
  expect(misses(result), `SOAK_SEED=${seed} ${JSON.stringify(result)}`).toEqual([]);
});
