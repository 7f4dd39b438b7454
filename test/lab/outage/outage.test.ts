import { expect, inject, test } from "vitest";
import { type Away, misses, outage } from "./outage.ts";

// `npm run outage` has 500 submits a second for a minute.
test.each(["killed", "silent"] satisfies Away[])(
  "P6 and P7: a Redis that is %s costs a 503 in time and no memory, and orders flow when it is back",
  async (away) => {
    const binary = inject("redisServerBinary");
    const result = await outage({ binary, away, seconds: 5, perSecond: 250 });
    expect(misses(result), JSON.stringify(result)).toEqual([]);
  },
  90_000,
);
