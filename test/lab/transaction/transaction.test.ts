import { expect, inject, test } from "vitest";
import { seedOf, setting } from "../laboratory.ts";
import { playOn } from "./run.ts";

// `npm run lab -- transaction` plays 2 000 on PostgreSQL and 500 on MariaDB.
const most = setting("TRANSACTION", 40);
const seed = seedOf("TRANSACTION_SEED");

test.for([
  ["PostgreSQL", most],
  ["MariaDB", most / 2],
] as const)(
  "P9: whatever befalls a shop on %s, an order and what belongs to it are there once",
  async ([database, count], { skip }) => {
    const played = await playOn(database, {
      redisBinary: inject("redisServerBinary"),
      seed,
      lanes: 4,
      schedules: { "submissions.once": count, "the snippet of before": count / 2 },
    });
    if (played === undefined) return skip(`there is no ${database} here`);
    expect(played.misses, `TRANSACTION_SEED=${seed}`).toEqual([]);
    const once = played.tallies.get("submissions.once");
    expect(once).toMatchObject({ schedules: count, wrong: 0 });
    expect(once?.struck).toBeGreaterThan(0);
    // The laboratory sees what the snippet of before does.
    expect(played.tallies.get("the snippet of before")?.["double stock"]).toBeGreaterThan(0);
  },
);
