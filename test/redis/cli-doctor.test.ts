import { afterEach, describe, expect, inject, onTestFinished, test } from "vitest";
import type { Report } from "../../src/cli/doctor.ts";
import { RedisStore } from "../../src/index.ts";
import { page } from "../docs/page.ts";
import { startSentinels } from "../lab/topologies/sentinel.ts";
import { expectFailure, runMain } from "../support/cli.ts";
import { closeClients, ioredis6 } from "../support/clients.ts";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, openLock } from "../support/locks.ts";
import { startMasters } from "../support/masters.ts";
import { forTest, type RedisServer, startRedis } from "../support/redis-server.ts";
import { beginMove } from "../support/slot-move.ts";
import { until } from "../support/until.ts";

afterEach(async () => {
  await closeLocks();
  closeClients();
});

/** A server with these settings, which a right one has not. */
const server = (...args: string[]): Promise<RedisServer> =>
  forTest(
    startRedis({ args: ["--appendonly", "yes", "--repl-diskless-sync-delay", "0", ...args] }),
  );

interface Found {
  readonly code: number;
  /** Everything but what is right, as `level check`. */
  readonly found: string[];
  readonly report: Report;
  readonly text: string;
}

async function examine(url: string, ...args: string[]): Promise<Found> {
  const { code, stdout, stderr } = await runMain(["doctor", "--json", ...args], { REDIS_URL: url });
  expect(stderr).toBe("");
  const report: Report = JSON.parse(stdout);
  const all = [...report.servers.flatMap(({ findings }) => findings), ...report.findings];
  const found = all
    .filter(({ level }) => level !== "ok")
    .map(({ level, check }) => `${level} ${check}`);
  const text = all.map((finding) => `${finding.text} ${finding.remedy ?? ""}`).join("\n");
  return { code, found, report, text };
}

const lines = page("docs/reference/cli.md")
  .blocks.filter(({ heading }) => heading === "A right configuration")
  .flatMap(({ code }) => code.split("\n"))
  .filter((line) => /^\w/.test(line));
const settings = (...names: string[]): string[] =>
  names.flatMap((name) => {
    const line = lines.find((each) => each.startsWith(`${name} `));
    if (line === undefined) throw new Error(`no line ${name}`);
    return line.replace(/^/, "--").split(" ");
  });
const right = settings("appendonly", "maxmemory-policy");

describe("doctor has nothing to say", () => {
  test("of a server with the lines of the reference", async () => {
    const { url } = await server(...right);
    expect(await examine(url)).toMatchObject({
      code: 0,
      found: [],
      report: { failures: 0, warnings: 0 },
    });
  });

  test("of a Cluster with the line for it, until its failover takes a minute", async () => {
    const args = [...right, ...settings("cluster-node-timeout")];
    const nodes = await startMasters(inject("redisServerBinary"), 3, args);
    onTestFinished(async () => void (await Promise.all(nodes.map((node) => node.stop()))));
    const [{ url }] = nodes as [RedisServer];
    const { found, report } = await examine(url, "--cluster");
    expect(found).toEqual([]);
    expect(report.servers).toHaveLength(3);
    for (const { findings } of report.servers) {
      const text = "the locks of many users share a call";
      expect(findings).toContainEqual({ level: "ok", check: "gathering", text });
    }
    const ports = nodes.map(({ port }) => port);
    const move = await beginMove({ ports }, "bar"); // on the first master
    const moving = await examine(url, "--cluster");
    expect(moving).toMatchObject({ code: 0, found: Array(2).fill("warn moving") });
    expect(moving.text).toContain(`1 slot (${move.slot}) from or to this node has not ended`);
    await move.finish();
    expect((await examine(url, "--cluster")).found).toEqual([]);
    for (const { port } of nodes) {
      await command(port, "config", "set", "cluster-node-timeout", 60_000);
    }
    const slow = await examine(url, "--cluster");
    expect(slow).toMatchObject({ code: 0, found: Array(3).fill("warn node-timeout") });
    // A lock with a longer life is not lost by then.
    expect((await examine(url, "--cluster", "--ttl", "2min")).found).toEqual([]);
  });
});

describe("doctor gives exactly the finding", () => {
  // What else may be wrong is in test/unit/cli/doctor-findings.test.ts, on servers that are made up.
  test.each<[settings: string[], code: number, found: string[], text: string]>([
    [["--appendonly", "no", "--maxmemory", "100mb"], 0, ["warn persistence"], "appendonly yes"],
    [["--rename-command", "EVAL", ""], 1, ["fail commands"], "the lock cannot work"],
    // The check's own refusals are counted after INFO was read.
    [["--maxmemory", "100kb"], 1, ["fail commands"], "maxmemory"],
  ])("of %j", async (args, code, found, text) => {
    const { url } = await server(...args);
    const examined = await examine(url);
    expect({ code: examined.code, found: examined.found }).toEqual({ code, found });
    expect(examined.text).toContain(text);
  });

  test.each([["shop:"], ["{shop}:"]])(
    "of a server that keeps nothing, where records of a client with %s prevent second orders",
    async (keyPrefix) => {
      const { url, port } = await server("--appendonly", "no", "--save", "");
      const where = ["--ioredis-prefix", keyPrefix];
      const without = await examine(url, ...where);
      expect(without).toMatchObject({ code: 0, found: ["warn persistence"] });
      const lock = openLock({ store: new RedisStore(ioredis6.connect(port, { keyPrefix })) });
      await lock.once("42", { id: "cart-7" }, async () => "order 7");
      const kept = await examine(url, ...where);
      expect(kept).toMatchObject({ code: 1, found: ["fail persistence"] });
      expect(kept.text).toContain("a restart loses every lock and record");
      const listed = await runMain(["list", ...where], { REDIS_URL: url });
      expect(listed.stdout).toMatch(/: 0 locks\n/);
      expect(listed.stdout).not.toContain("of no user id");
      await command(port, "config", "set", "save", "3600 1");
      expect(await examine(url, ...where)).toMatchObject({ code: 0, found: ["warn persistence"] });
    },
  );

  test("of replicas that nobody waits for, until there is the line for them, and of a replica", async () => {
    const master = await server();
    const replica = await server("--replicaof", "127.0.0.1", `${master.port}`);
    const isConnected = async () =>
      String(await command(master.port, "info", "replication")).includes("connected_slaves:1");
    await until(isConnected, { what: "the replica to be connected" });
    const ofMaster = await examine(master.url);
    expect(ofMaster).toMatchObject({ code: 0, found: ["warn min-replicas"] });
    const ofReplica = await examine(replica.url);
    expect(ofReplica).toMatchObject({ code: 1, found: ["fail role"] });
    expect(ofReplica.text).toContain(`the master's address, 127.0.0.1:${master.port}`);
    const shown = await runMain(["show", "42"], { REDIS_URL: replica.url });
    expect(shown).toMatchObject({
      code: 0,
      stderr: expect.stringMatching(/may be old. Ask its master/),
    });
    const [line = "", ...value] = settings("min-replicas-to-write");
    await command(master.port, "config", "set", line.replace("--", ""), ...value);
    const isGood = async () => {
      const info = String(await command(master.port, "info", "replication"));
      return info.includes("min_slaves_good_slaves:1");
    };
    await until(isGood, { what: "the replica to be good" });
    const { found, report } = await examine(master.url);
    expect(found).toEqual([]);
    expect(report.servers[0]).toMatchObject({ role: "master", replicas: 1 });
    await command(master.port, "config", "set", "min-replicas-max-lag", "0");
    const { text } = await examine(master.url);
    expect(text).toContain("min-replicas-to-write or min-replicas-max-lag is 0");
  });

  test("of Sentinels, and show finds their master", async () => {
    const args = ["--appendonly", "yes", "--min-replicas-to-write", "1"];
    const topology = await forTest(startSentinels(inject("redisServerBinary"), args));
    const { target } = topology;
    if (target.kind !== "sentinel") throw new Error("no Sentinels");
    const addresses = target.ports.map((port) => `127.0.0.1:${port}`).join(",");
    const where = ["--sentinel", addresses, "--master", target.name];
    const user = freshUser();
    const master = await topology.masterOf("");
    await command(master.port, "set", `lock:submit:${user}`, "1", "PX", 60_000);
    const shown = await runMain(["show", user, ...where], { REDIS_URL: "" });
    expect(shown.stdout).toMatch(new RegExp(`free --id .* ${where.join(" ")} ${user}\\n`));
    await command(master.port, "del", `lock:submit:${user}`);
    const none = await runMain(["show", user, ...where], { REDIS_URL: "redis://unused/99" });
    expectFailure(none, 2, `database 99 of the master "${target.name}"`);
    expect((await examine("", ...where)).found).toEqual([]);
  });
});

describe("as a user with few permissions", () => {
  const [, rules = ""] =
    /^ACL SETUSER checkout on >password (~lock:submit:\* .*)$/m.exec(
      page("docs/operations/redis.md").text.replace(" ~{lock:submit:*", ""),
    ) ?? [];

  async function checkout(...args: string[]): Promise<RedisServer & { readonly as: string }> {
    const started = await server();
    const given = [...rules.split(" "), ...args];
    await command(started.port, "acl", "setuser", "checkout", "on", ">password", ...given);
    return { ...started, as: `redis://checkout:password@127.0.0.1:${started.port}` };
  }

  /** What was asked for and not permitted. */
  async function denials(port: number): Promise<string[]> {
    const entries = (await command(port, "acl", "log")) as (string[] | { object: string })[];
    return entries.map((entry) =>
      Array.isArray(entry) ? (entry[entry.indexOf("object") + 1] as string) : entry.object,
    );
  }

  test("show, free and watch run as the user that the documents give the lock", async () => {
    const { port, as } = await checkout();
    const env = { REDIS_URL: as };
    await command(
      port,
      "set",
      "lock:submit:42",
      "0f8fad5b-0000-4000-8000-000000000000",
      "PX",
      60_000,
    );
    const shown = await runMain(["show", "42"], env);
    expect(shown).toMatchObject({ code: 0, stderr: "" });
    const watched = await runMain(["watch", "42", "--for", "500ms"], env);
    expect(watched).toMatchObject({ code: 0, stderr: "" });
    expect(watched.stdout).toContain("taken    0f8fad5b");
    const args = ["free", "42", "--id", "0f8fad5b", "--reason", "x", "--by", "y"];
    expect(await runMain(args, env)).toMatchObject({ code: 0 });
    expect(await denials(port)).toEqual([]);
  });

  test("list says what it needs", async () => {
    const { port, as } = await checkout();
    const ended = await runMain(["list"], { REDIS_URL: as });
    expectFailure(ended, 4, "needs +scan", "ACL SETUSER checkout +scan");
    await command(port, "acl", "setuser", "checkout", "+scan");
    expect(await runMain(["list"], { REDIS_URL: as })).toMatchObject({ code: 0, stderr: "" });
  });

  test("doctor says ? of what it may not see, and never ok", async () => {
    const { as } = await checkout();
    const { code, found, report, text } = await examine(as);
    expect({ code, found }).toEqual({ code: 0, found: ["unknown keys"] });
    expect(text).toMatch(/the keys under lock:submit: were not looked at: .*checkout \+scan/);
    expect(report.user).toBe("checkout");
    const blind = await checkout("-info");
    expect((await examine(blind.as)).found).toEqual(["unknown info", "unknown keys"]);
  });

  test("doctor finds a permission that the lock lacks", async () => {
    const { as } = await checkout("-pexpire");
    const { code, found, text } = await examine(as);
    expect({ code, found }).toEqual({ code: 1, found: ["fail commands", "unknown keys"] });
    expect(text).toContain("does not permit");
  });
});
