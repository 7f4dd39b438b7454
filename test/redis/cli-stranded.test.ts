import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { expectFailure, runMain } from "../support/cli.ts";
import { command } from "../support/command.ts";
import { startProxy } from "../support/proxy.ts";
import { type RedisServer, startRedis } from "../support/redis-server.ts";

let redis: RedisServer;
beforeEach(async () => {
  redis = await startRedis();
});
afterEach(() => redis.stop());

const minute = 60_000;
const lifeMs = 120 * minute;
const old = ["--value", "1", "--life", "2h", "--older", "10m"];
const freeing = ["free", "--stranded", ...old];

const set = (key: string, value: string, leftMs?: number) =>
  command(redis.port, "set", key, value, ...(leftMs === undefined ? [] : ["PX", leftMs]));

/** Locks of an old shop, of this age, and whatever else may be under the prefix. */
async function fill(): Promise<void> {
  await set("lock:submit:dead", "1", lifeMs - 90 * minute);
  await set("lock:submit:auth0|42", "1", lifeMs - 11 * minute);
  await set("lock:submit:living", "1", lifeMs - 9 * minute);
  await set("lock:submit:endless", "1");
  await set("lock:submit:longer", "1", lifeMs + minute);
  await set("lock:submit:other", "2", minute);
  await set("lock:submit:ours", "0f8fad5b-0000-4000-8000-000000000000:1:1:1:::", minute);
  await command(redis.port, "rpush", "lock:submit:list", "1");
  await set("lock:refund:dead", "1", minute);
}

const keys = async () => ((await command(redis.port, "keys", "*")) as string[]).sort();

function auditsOf(stderr: string): Record<string, unknown>[] {
  return stderr
    .split("\n")
    .filter(Boolean)
    .map((line) => JSON.parse(line));
}

describe("free --stranded", () => {
  test("deletes the locks of an old shop that are too old, and no other key", async () => {
    await fill();
    const before = await keys();
    const env = { REDIS_URL: redis.url };
    const dry = await runMain([...freeing, "--dry-run"], env);
    expect(dry).toMatchObject({ code: 0, stderr: "" });
    const says = dry.stdout.trim().split("\n");
    expect(says.slice(0, 2).sort()).toEqual([
      expect.stringMatching(/^would free lock:submit:auth0\|42, 1\d min( \d+ s)? old$/),
      expect.stringMatching(/^would free lock:submit:dead, 1 h 3\d min old$/),
    ]);
    expect(says[2]).toMatch(
      /^lock:submit: on database 0 of 127.*: would free 2 locks older than 10 min; left alone: /,
    );
    expect(await keys()).toEqual(before);

    const { code, stdout, stderr } = await runMain([...freeing, "--by", "cron"], env);
    expect(code).toBe(0);
    for (const said of [
      "freed 2 locks older than 10 min",
      "1 younger",
      "3 with another value",
      "1 without an expiry, for which --life is not true",
      "1 with more time left than --life",
      "looked at 9 keys",
    ]) {
      expect(stdout).toContain(said);
    }
    const gone = ["lock:submit:auth0|42", "lock:submit:dead"];
    expect(await keys()).toEqual(before.filter((key) => !gone.includes(key)));
    const audits = auditsOf(stderr);
    expect(audits.map(({ key }) => key).sort()).toEqual(gone);
    const { ageMs, ...audit } = audits.find(({ userId }) => userId === "dead") ?? {};
    expect(audit).toEqual({
      event: "submit-lock free --stranded",
      time: expect.stringMatching(/^\d{4}-/),
      ...{ reason: "stranded", by: "cron", redis: `127.0.0.1:${redis.port}`, database: 0 },
      ...{ value: "1", lifeMs, olderMs: 10 * minute },
      ...{ key: "lock:submit:dead", userId: "dead", outcome: "freed" },
    });
    expect(Number(ageMs)).toBeGreaterThanOrEqual(90 * minute);
    expect(Number(ageMs)).toBeLessThan(100 * minute);

    const again = await runMain([...freeing, "--json"], env);
    expect(again.stderr).toBe("");
    expect(JSON.parse(again.stdout)).toEqual({
      prefixes: [
        {
          ...{ keyPrefix: "lock:submit:", freed: 0, younger: 1, otherValue: 3, endless: 1 },
          ...{ longer: 1, keysLookedAt: 7, isComplete: true, tookMs: expect.any(Number) },
        },
      ],
    });
  });

  test("looks under the prefix of the locks, behind that of the client", async () => {
    await set("shop:lock:pay:dead", "1", minute);
    const where = ["--prefix", "lock:pay:", "--prefix", "lock:x:", "--ioredis-prefix", "shop:"];
    const { code, stdout, stderr } = await runMain([...freeing, ...where], {
      REDIS_URL: redis.url,
    });
    expect(code).toBe(0);
    expect(stdout).toMatch(/^lock:pay: on .*: freed 1 lock older/);
    expect(stdout).toMatch(/^lock:x: on .*: freed 0 locks older/m);
    expect(auditsOf(stderr)).toMatchObject([{ key: "lock:pay:dead", outcome: "freed" }]);
    expect(await keys()).toEqual([]);
  });

  test("says of which locks it does not know whether they are freed", async () => {
    await set("lock:submit:dead", "1", minute);
    const proxy = await startProxy(redis.port);
    try {
      const lost = proxy.loseReplyOnce((argv) => argv.includes("lock:submit:dead"));
      void lost.then(() => proxy.swallowReplies(true));
      const ended = await runMain(freeing, { REDIS_URL: `redis://127.0.0.1:${proxy.port}` });
      expect(ended).toMatchObject({ code: 3, stdout: "" });
      const [audit] = ended.stderr.split("\n");
      expect(JSON.parse(audit ?? "")).toMatchObject({
        key: "lock:submit:dead",
        outcome: "unknown",
      });
    } finally {
      await proxy.stop();
    }
  });

  test.each<[string[], string]>([
    [["free", "--stranded"], "needs --value and --life and --older"],
    [["free", "42", "--stranded", ...old], "takes no user id"],
    [[...freeing, "--now"], "takes no --now"],
    [["free", "42", "--older", "10m"], "--older is an option of free --stranded"],
    [["free", "--stranded", "--value", "1", "--life", "2h", "--older", "2h"], "below --life"],
    [["free", "--stranded", "--value", "1", "--life", "2h", "--older", "0s"], "above 0"],
    [
      [
        "free",
        "--stranded",
        "--value",
        "cooldown:0f8fad5b-0000-4000-8000-000000000000",
        ...old.slice(2),
      ],
      "that is a lock of submit-lock",
    ],
  ])("refuses %j", async (args, message) => {
    // Redis is not asked.
    expectFailure(await runMain(args, { REDIS_URL: "redis://127.0.0.1:1" }), 2, message);
  });
});
