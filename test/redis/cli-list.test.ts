import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { CliLock } from "../../src/cli/context.ts";
import { findLocks } from "../../src/cli/list.ts";
import { RedisStore } from "../../src/index.ts";
import { portOf } from "../../src/stores/redis/clients/port-of.ts";
import { expectFailure, runMain } from "../support/cli.ts";
import { closeClients, ioredis6, untilReady } from "../support/clients.ts";
import { command } from "../support/command.ts";
import { closeLocks, openLock } from "../support/locks.ts";
import { forTest, startRedis } from "../support/redis-server.ts";

const dashes = "-".repeat(22);
/** What a holder with a lease of 1 000 s writes: nothing of it expires while a busy machine tests. */
const leaseFor = (owner: string, heldMs: number, holder: string) =>
  `${owner}:${(Date.now() - heldMs) * 1_000}:1000000:6000000:${holder}:${dashes}:${dashes}`;

const redis = await startRedis();
afterAll(() => redis.stop());
const env = { REDIS_URL: redis.url };

beforeAll(async () => {
  const set = (user: string, value: string, ms: number) =>
    command(redis.port, "set", `lock:submit:${user}`, value, "PX", ms);
  await set("42", leaseFor("0f8fad5b-0000-4000-8000-000000000000", 60_000, "web-3%3A17"), 990_000);
  await set(
    "77",
    leaseFor("9c41be07-0000-4000-8000-000000000000", 1_800_000, "web-4%3A17"),
    200_000,
  );
  await set("1009", "1", 7_200_000);
  await set("47", "cooldown:0f8fad5b-0000-4000-8000-000000000000", 900_000);
  await set("44", "freed:0f8fad5b-0000-4000-8000-000000000000:anna%40ops:1:why", 900_000);
  // No lock of a user: a record and a told answer under a hash tag, a key that asks for shards (rule 24), and others.
  await command(redis.port, "set", `lock:submit:42:${"a".repeat(22)}`, "record");
  await command(redis.port, "set", `lock:submit:42:${"a".repeat(22)}:told`, "told");
  await command(redis.port, "set", `lock:submit:42:shared-${randomUUID()}-14`, "asked");
  await command(redis.port, "set", "lock:submit:%zz", "1");
  await command(redis.port, "set", "lock:submit:%34%37", "1");
  await command(redis.port, "set", "lock:submi?:5", "1");
  await command(redis.port, "set", "lock[1]:6", "1");
  await command(redis.port, "set", "lock:refund:8", "1", "PX", 900_000);
  await command(
    redis.port,
    "eval",
    "for i = 1, 2500 do redis.call('SET', 'other:' .. i, 1) end",
    0,
  );
});

/** The first two columns. */
function rows(stdout: string): string[] {
  const lines = stdout
    .split("\n")
    .filter((line) => /^\S+ +(working|silent|unknown|freed|cooldown|foreign) /.test(line));
  return lines.map((line) => line.split(/ +/).slice(0, 2).join(" "));
}

describe("list", () => {
  test("shows every lock, the longest held first, and no other key", async () => {
    const { code, stdout, stderr } = await runMain(["list"], env);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(rows(stdout).slice(0, 3)).toEqual(["1009 foreign", "77 silent", "42 working"]);
    const strange = ["%34%37", "%zz"].map((part) => `lock:submit:${part}`);
    const named = /^2 keys under this prefix are of no user id, .*: (.*)$/m.exec(stdout)?.[1];
    expect(named?.split(", ").sort()).toEqual(strange);
    expect(rows(stdout).slice(3).sort()).toEqual(["44 freed", "47 cooldown"]);
    expect(stdout.split("\n")[0]).toMatch(
      /^lock:submit: on database 0 of 127\.0\.0\.1:\d+: 5 locks \(1 working, 1 silent, 1 freed, 1 cooldown, 1 foreign\), the oldest held for 3\d min( \d+ s)?$/,
    );
    expect(stdout).toContain("another lock: npx --no-install submit-lock show 1009");
    expect(stdout).toMatch(/^looked at 2 513 keys in /m);
  });

  test("prints one JSON object", async () => {
    const { stdout, stderr } = await runMain(["list", "--json", "--limit", "2"], env);
    expect(stderr).toBe("");
    const { prefixes } = JSON.parse(stdout);
    expect(prefixes).toMatchObject([
      { keyPrefix: "lock:submit:", count: 5, otherKeys: 2, isComplete: true, keysLookedAt: 2_513 },
    ]);
    expect(prefixes[0].locks).toMatchObject([
      { userId: "1009", state: "foreign", valueStart: "1" },
      { userId: "77", state: "held", holder: "web-4:17" },
    ]);
    // It goes on missing them while a busy machine starts the command.
    expect(prefixes[0].locks[1].missedRenewals).toBeGreaterThanOrEqual(1);
  });

  test.each([
    [
      ["--state", "silent,foreign"],
      ["1009 foreign", "77 silent"],
    ],
    [
      ["--older", "10min"],
      ["1009 foreign", "77 silent"],
    ],
    [["--limit", "1"], ["1009 foreign"]],
    [["--prefix", "lock:refund:"], ["8 foreign"]],
    [["--prefix", "lock:submi?:"], ["5 foreign"]],
    [["--prefix", "lock[1]:"], ["6 foreign"]],
    [["--prefix", "lock:refund:", "--prefix", "none:"], ["8 foreign"]],
  ])("%j shows %j", async (options, expected) => {
    const { code, stdout } = await runMain(["list", ...options], env);
    expect(code).toBe(0);
    expect(rows(stdout)).toEqual(expected);
  });

  test("leaves the user ids out with --no-ids", async () => {
    for (const more of [[], ["--json"]]) {
      const { stdout } = await runMain(["list", "--no-ids", ...more], env);
      // An id stands in quotes or between blanks: a time may be 1009 ms.
      expect(stdout).not.toMatch(/(?<=[\s"])1009(?=[\s"])|userId|USER/);
      expect(stdout).toContain("web-4:17");
    }
  });

  test("says that it is not complete when its budget is used up", async () => {
    const { code, stdout } = await runMain(["list", "--budget", "1ms"], env);
    expect(code).toBe(0);
    expect(stdout).toMatch(/Not complete: after .* about [\d ]+ of 2 513 keys had been looked at/);
  });

  test("inspects within its budget, too, and shows what it has seen", async () => {
    const { port } = await forTest(startRedis());
    const locks = "for i = 1, 30000 do redis.call('SET', 'lock:submit:' .. i, 1) end";
    await command(port, "eval", locks, 0);
    const client = ioredis6.connect(port);
    await untilReady(client);
    const lock = openLock({ store: new RedisStore(client), acquireTimeoutMs: 5_000 });
    const budgetMs = 300;
    const from = performance.now();
    let late = 0;
    const counting = {
      ...{ keyPrefix: lock.keyPrefix, keyFor: (user: string) => lock.keyFor(user) },
      inspect: (user: string) => {
        if (performance.now() - from > budgetMs) late++;
        return lock.inspect(user);
      },
    } as unknown as CliLock;
    const target = { address: "Redis", client: portOf(client), clientPrefix: "" };
    const listed = await findLocks({ ...target, locks: [counting] }, counting, budgetMs);
    await closeLocks();
    closeClients();
    expect(listed.locks.length).toBeGreaterThan(0);
    // Those of the last SCAN.
    expect(late).toBeLessThan(1_000);
  });

  test("advises no longer budget where it stops at 100 000 locks", async () => {
    const { port, url } = await forTest(startRedis());
    const locks = "for i = 1, 101000 do redis.call('SET', 'lock:submit:' .. i, 1) end";
    await command(port, "eval", locks, 0);
    const args = ["list", "--limit", "1", "--budget", "10min"];
    const { code, stdout } = await runMain(args, { REDIS_URL: url });
    expect(code).toBe(0);
    const said =
      /^Not complete: after .* about [\d ]+ of 101 000 keys had been looked at\. The scan stops at 100 000 locks\.$/m;
    expect(stdout).toMatch(said);
  });

  test.each([
    [
      ["--state", "dead"],
      '--state: expected any of working, silent, unknown, freed, cooldown, foreign, got "dead"',
    ],
    [["--limit", "0"], "--limit: expected a whole number from 1 on"],
    [["--older", "soon"], "--older: expected a time such as 30s"],
  ])("refuses %j", async (options, message) => {
    expectFailure(await runMain(["list", ...options], env), 2, message);
  });
});
