import fc from "fast-check";
import { Redis } from "ioredis";
import { afterAll, beforeAll, test } from "vitest";
import { freshUser } from "../../../support/ids.ts";
import { type RedisServer, startRedis } from "../../../support/redis-server.ts";
import { ServerPair } from "./server-pair.ts";
import { step } from "./server-steps.ts";

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

test("the simulated server answers as Redis does", { timeout: 120_000 }, async () => {
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
