import { afterAll, expect, test } from "vitest";
import { endAll } from "../../support/child.ts";
import { command } from "../../support/command.ts";
import { type RedisServer, startRedis } from "../../support/redis-server.ts";
import { runExample } from "./run-example.ts";

let redis: RedisServer | undefined;

afterAll(async () => {
  endAll();
  await redis?.stop();
});

/** What is said about Ada's account, in order. */
function expectOneAfterTheOther(output: string): void {
  const said = output.split("\n").map((line) => line.replace(/^ *\d+ ms {2}/, ""));
  const ada = said.filter((line) => / account of ada$/.test(line));
  expect(ada).toEqual([
    "invoices begins on the account of ada",
    "invoices ends on the account of ada",
    "statements begins on the account of ada",
    "statements ends on the account of ada",
  ]);
  expect(said).toContain("newsletter gives up for today: ada is busy");
  // Another customer's job does not wait.
  const grace = said.indexOf("invoices begins on the account of grace");
  expect(grace).toBeGreaterThan(0);
  expect(grace).toBeLessThan(said.indexOf("invoices ends on the account of ada"));
}

test.each(["in the memory of this process", "in Redis"])(
  "the jobs of one customer run one after the other, with locks %s",
  async (place) => {
    if (place === "in Redis") redis = await startRedis();
    const example = runExample("examples/job.ts", redis ? { env: { REDIS_URL: redis.url } } : {});
    expect(await example.ended, example.output()).toBe(0);
    expect(example.output()).toContain(`Locks are kept ${place}`);
    expectOneAfterTheOther(example.output());
    if (redis) expect(await command(redis.port, "keys", "*")).toEqual([]);
  },
);
