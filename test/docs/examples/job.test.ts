import { afterAll, describe, expect, test } from "vitest";
import { endAll } from "../../support/child.ts";
import { command } from "../../support/command.ts";
import { freePort } from "../../support/free-port.ts";
import { type RedisServer, startRedis } from "../../support/redis-server.ts";
import { runExample } from "./run-example.ts";

const file = "examples/job.ts";

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

describe("the job example", () => {
  test("runs the jobs of one customer one after the other", async () => {
    const example = runExample(file);
    expect(await example.ended, example.output()).toBe(0);
    expectOneAfterTheOther(example.output());
  });

  test("does the same on Redis, and leaves no key", async () => {
    redis = await startRedis();
    const example = runExample(file, { env: { REDIS_URL: redis.url } });
    expect(await example.ended, example.output()).toBe(0);
    expectOneAfterTheOther(example.output());
    expect(await command(redis.port, "keys", "*")).toEqual([]);
  });

  test("ends with an error when Redis cannot be reached", async () => {
    const REDIS_URL = `redis://127.0.0.1:${await freePort()}`;
    const example = runExample(file, { env: { REDIS_URL } });
    expect(await example.ended).toBe(1);
    expect(example.output()).toMatch(/^Redis at .* cannot be used: .*ECONNREFUSED/);
  });
});
