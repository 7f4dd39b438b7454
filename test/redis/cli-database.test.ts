import { afterAll, describe, expect, test } from "vitest";
import type { Ended } from "../support/child.ts";
import { configModule, expectFailure, runEvery, runMain } from "../support/cli.ts";
import { command } from "../support/command.ts";
import { freePort } from "../support/free-port.ts";
import { freshUser } from "../support/ids.ts";
import { startProxy } from "../support/proxy.ts";
import { forTest, startRedis } from "../support/redis-server.ts";
import { until } from "../support/until.ts";

/** The line of the page on permissions, without `+select`. */
const rights = ["+eval", "+evalsha", "+get", "+set", "+pttl", "+pexpire", "+del", "+time", "+info"];
const checkout = ["on", ">pw", "~lock:submit:*", ...rights, "+scan"];

/** A lock of database 0, of the user in `commands`. */
const key = "lock:submit:42";

const redis = await startRedis();
afterAll(() => redis.stop());
await command(redis.port, "acl", "setuser", "checkout", ...checkout);

/** Runs every command, and looks that database 0 was left alone. */
async function refusals(...given: Parameters<typeof runEvery>): Promise<Ended[]> {
  await command(redis.port, "set", key, "1");
  const ends = await runEvery(...given);
  expect(await command(redis.port, "get", key)).toBe("1");
  return ends;
}

describe("P10: every command proves its database before it looks", () => {
  test("and ends with 2 where there is none of that number", async () => {
    for (const ended of await refusals(`${redis.url}/99`)) {
      expectFailure(ended, 2, `database 99 of 127.0.0.1:${redis.port} does not exist`);
    }
  });

  test("and ends with 4 for a user without +select, which it names", async () => {
    const url = `redis://checkout:pw@127.0.0.1:${redis.port}/5`;
    for (const ended of await refusals(url)) {
      expectFailure(
        ended,
        4,
        "ACL SETUSER <user> +select",
        `database 5 of 127.0.0.1:${redis.port}`,
      );
    }
  });

  test("and ends with 3 where Redis refuses for another reason", async () => {
    const busy = await forTest(startRedis({ args: ["--lua-time-limit", "1"] }));
    const proxy = await forTest(startProxy(busy.port));
    const script = command(busy.port, "eval", "while true do end", 0).catch(() => {});
    const isBusy = () =>
      command(busy.port, "get", "a").catch((error) => String(error).includes("BUSY"));
    await until(isBusy, { what: "the script to be too long" });
    const url = `redis://127.0.0.1:${proxy.port}/5`;
    expectFailure(await runMain(["show", "42"], { REDIS_URL: url }), 3, "SCRIPT KILL");
    expect(proxy.commands.filter(([name]) => name?.startsWith("eval"))).toEqual([]);
    await command(busy.port, "script", "kill");
    await script;
  });

  test("and a user without +select may look into database 0", async () => {
    const env = { REDIS_URL: `redis://checkout:pw@127.0.0.1:${redis.port}/0` };
    const { code, stderr } = await runMain(["show", "43"], env);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  });

  test("and free names it in the audit line", async () => {
    const user = freshUser();
    const lock = `lock:submit:${user}`;
    await command(
      redis.port,
      "eval",
      "redis.call('SELECT', 5) redis.call('SET', KEYS[1], 1)",
      1,
      lock,
    );
    const args = ["free", user, "--id", "356a192b", "--reason", "x"];
    const { code, stderr } = await runMain(args, { REDIS_URL: `${redis.url}/5` });
    expect(code).toBe(0);
    expect(JSON.parse(stderr.trim().split("\n").at(-1) ?? "")).toMatchObject({
      outcome: "freed",
      database: 5,
      redis: `127.0.0.1:${redis.port}`,
    });
  });
});

describe("P10: the client of --config", () => {
  const config = (options: string, more = ""): string =>
    configModule(
      `export const redis = new Redis({ port: ${redis.port}, host: "127.0.0.1", ...${options} });
       ${more}
       export default new SubmitLock({ store: new RedisStore(redis) });`,
    );

  test.each([
    ["of no such database", "{ db: 99 }", "", 2, "database 99 of"],
    ["selected later", "{}", "redis.select(99).catch(() => {});", 2, "database 99 of"],
    [
      "not permitted",
      '{ db: 5, username: "checkout", password: "pw" }',
      "",
      4,
      "ACL SETUSER <user> +select",
    ],
    ["not reachable", "{ db: 5, port: 1 }", "", 3, "ECONNREFUSED"],
  ])("is refused where its database is %s", async (_what, options, more, wanted, message) => {
    for (const ended of await refusals("", ["--config", config(options, more)])) {
      expectFailure(ended, wanted, message);
    }
  });

  test.each([
    ["as an option", "{ db: 5 }", ""],
    ["lazily", "{ db: 5, lazyConnect: true }", ""],
    ["at run time", "{}", "void redis.select(5);"],
  ])("looks into the database that it chose %s, and says which", async (_how, options, more) => {
    const { code, stdout, stderr } = await runMain([
      "show",
      "42",
      "--config",
      config(options, more),
    ]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout).toContain(`in database 5 of 127.0.0.1:${redis.port}`);
  });
});

describe("P10: an address", () => {
  const ends = ["?db=5", "/?db=5", "/5?", "/0#5", "/0/1", "/5/", "//5", "/5000000000", "/one"];
  const passwords = [
    ...["/S3cret", "S3/cret", "12/S3cret", "12/34/S3cret", "12?S3cret", "12#S3cret", "S3?cret"],
    ...["S3#cret", "S3%cret", "12/S3%zzcret", "S3cret\u001b/"],
  ];
  const places = ["@127.0.0.1:6379/0", "@127.0.0.1:6379", "@127.0.0.1/5?a=b"];

  test.each([
    "http://127.0.0.1",
    "127.0.0.1:6379",
    "redis://:S3%cret@127.0.0.1:6379",
    // The database is the path alone.
    ...ends.map((end) => `redis://127.0.0.1:6379${end}`),
    ...passwords.flatMap((password) => places.map((at) => `redis://shop:${password}${at}`)),
  ])("such as %j is refused, and no password is shown", async (url) => {
    const { code, stdout, stderr } = await runMain(["show", "42"], { REDIS_URL: url });
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toContain("expected an address such as redis://user:password@host:6379/0");
    expect(stderr).not.toMatch(/S3|cret|34/);
  });

  test("of a Cluster has no database", async () => {
    const url = `redis://127.0.0.1:${await freePort()}`;
    const { code, stdout, stderr } = await runMain(["show", "42", "--cluster"], {
      REDIS_URL: `${url}/5`,
    });
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toContain("a Cluster has only database 0");
    // Nothing answers here, and so the address was right.
    expect(await runMain(["show", "42", "--cluster"], { REDIS_URL: `${url}/0` })).toMatchObject({
      code: 3,
    });
  });
});
