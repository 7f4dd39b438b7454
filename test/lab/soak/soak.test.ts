import { expect, inject, test } from "vitest";
import { misses, soak } from "./soak.ts";

// `npm run soak` goes on for ten minutes.
test.each([
  ["one server", false],
  ["a Cluster", true],
])(
  "mixed traffic on %s under random faults leaves nothing behind",
  async (_on, onCluster) => {
    const seed = Number(process.env["SOAK_SEED"] ?? Math.floor(Math.random() * 2 ** 32));
    const result = await soak({
      binary: inject("redisServerBinary"),
      onCluster,
      seed,
      rounds: 1,
      roundMs: 9_000,
      customers: 16,
      untilIdle: false,
    });
    expect(misses(result), `SOAK_SEED=${seed} ${JSON.stringify(result)}`).toEqual([]);
  },
  150_000,
);
