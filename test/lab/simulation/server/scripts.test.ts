import fc from "fast-check";
import { Redis } from "ioredis";
import { afterAll, beforeAll, test } from "vitest";
import { freshUser } from "../../../support/ids.ts";
import { type RedisServer, startRedis } from "../../../support/redis-server.ts";
import { entry, ownerOf01, ServerPair } from "./server-pair.ts";

/**
 * The simulation is worth as much as its server is like Redis: the same commands, at the same time
 * by the server's clock, have to give the same answers and leave the same keys.
 */

let server: RedisServer;
let redis: Redis;
beforeAll(async () => {
  server = await startRedis();
  redis = new Redis(server.port);
});
afterAll(async () => {
  await redis.quit();
  await server.stop();
});

/** With what a command is written. */
const settings = {
  /** In time, too late, too early. */
  inMs: fc.constantFrom(1_000, 1_000, -500, 9_000),
  lifeMs: fc.constantFrom(60, 20_000, 25_000),
  /** A floor of the tokens that counts, that is too low, and that is too far ahead. */
  floorInMs: fc.constantFrom(1_000, -1_000, 61_000),
};

/** What happens to both servers next: a command, a key of somebody else, a memory that is full, time. */
const step = fc.oneof(
  {
    weight: 12,
    arbitrary: fc.record({
      command: fc.constantFrom(
        "acquire" as const,
        "acquire" as const,
        "acquireOnce" as const,
        "acquireOnce" as const,
        "lookUp" as const,
        "tell" as const,
        "extend" as const,
        "release" as const,
        "release" as const,
        "complete" as const,
        "complete" as const,
        "record" as const,
        "inspect" as const,
        "free" as const,
        "free" as const,
        "touch" as const,
        "touchRecord" as const,
      ),
      entries: fc.array(entry, { minLength: 1, maxLength: 4 }),
      ...settings,
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      plant: entry,
      at: fc.constantFrom("lock" as const, "record" as const),
      value: fc.constantFrom("a list", "old", "", "1".repeat(58), "2".repeat(59), ownerOf01),
    }),
  },
  // As a step of the server's clock leaves a key.
  { weight: 2, arbitrary: fc.record({ lengthened: entry, lifeMs: fc.constantFrom(3_600_000) }) },
  { weight: 2, arbitrary: fc.record({ full: fc.boolean() }) },
  { weight: 1, arbitrary: fc.record({ waitMs: fc.constant(100) }) },
);

test("the simulated server answers as Redis does", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 12 }), async (steps) => {
      const pair = new ServerPair(redis, freshUser());
      for (const each of steps) {
        if ("command" in each) await pair.call(each.command, each.entries, each);
        else if ("plant" in each) await pair.plant(each.plant, each.at, each.value as string);
        else if ("lengthened" in each) await pair.lengthen(each.lengthened, each.lifeMs);
        else if ("full" in each) await pair.fill(each.full);
        else await new Promise((resolve) => setTimeout(resolve, each.waitMs));
      }
      await pair.fill(false);
      await pair.compareKeys();
    }),
    { numRuns: Number(process.env["SERVER_RUNS"] ?? 300) },
  );
});
