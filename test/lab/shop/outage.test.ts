import { describe, expect, inject, test } from "vitest";
import type { ClientName } from "../laboratory.ts";
import { type Away, acquireTimeoutMs, misses, outage } from "./outage.ts";

// `npm run lab -- outage` has 500 submits a second for a minute.
describe.each(["ioredis 6", "node-redis 6"] satisfies ClientName[])("with %s", (client) => {
  test.each(["killed", "silent"] satisfies Away[])(
    "P6 and P7: a Redis that is %s costs a 503 in time and no memory, and orders flow when it is back",
    async (away) => {
      const binary = inject("redisServerBinary");
      const result = await outage({ binary, away, client, seconds: 5, perSecond: 250 });
      // How fast an answer comes is judged by `npm run lab -- outage`: other tests run beside this one.
      // What waited for a second time-out is found here as well.
      const { tookMs: _, ...seen } = result;
      expect(misses(result, 0.9 * acquireTimeoutMs), JSON.stringify(seen)).toEqual([]);
    },
    90_000,
  );
});
