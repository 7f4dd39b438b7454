import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, onTestFinished, test } from "vitest";
import { keyId } from "../../src/http/submission.ts";
import { RedisStore, SubmitLock } from "../../src/index.ts";
import { identify } from "../../src/lock/submission.ts";
import { auditOf, configModule, expectFailure, runAsPerson, runMain } from "../support/cli.ts";
import {
  closeClients,
  clusterClients,
  ioredis6,
  redisClients,
  untilReady,
} from "../support/clients.ts";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, openLock } from "../support/locks.ts";
import { startCluster } from "../support/redis-cluster.ts";
import { forTest, sharedRedisPort, startRedis } from "../support/redis-server.ts";

afterEach(async () => {
  await closeLocks();
  closeClients();
});

const env = { REDIS_URL: `redis://127.0.0.1:${sharedRedisPort()}` };
const why = ["--reason", "ticket 4711", "--by", "anna@ops-1"];

/** A day, and longer than a test takes on any machine, so that a day is left. */
const retainMs = 88_200_000;

async function openShop(port = sharedRedisPort()) {
  const client = ioredis6.connect(port);
  await untilReady(client);
  const lock = openLock({ store: new RedisStore(client) });
  const user = freshUser();
  const order = async (id: string, body: string | Uint8Array = '{"number":7}') => {
    const attempt = await lock.acquire(user, { submission: { id, retainMs } });
    if (attempt.outcome !== "acquired") return attempt.outcome;
    const headers = { "content-type": "application/json" };
    return await attempt.lease.complete({ status: 201, headers, body });
  };
  return { lock, user, order, idOf: (id: string) => identify(user, { id }).id };
}

describe("answers", () => {
  test("are listed beside a key that holds none, which is named", async () => {
    const { idOf, lock, order, user } = await openShop();
    await order("cart 7");
    const odd = `{${lock.keyFor(user)}}:${idOf("another")}`;
    await command(sharedRedisPort(), "rpush", odd, "an element");
    const { code, stdout, stderr } = await runMain(["answers", user], env);
    expect({ code, stderr }).toEqual({ code: 0, stderr: `the key ${odd} holds no record\n` });
    expect(stdout).toContain(idOf("cart 7"));
  });

  test("of a user who may not read them are exit code 4, as everywhere", async () => {
    const server = await forTest(startRedis());
    const rules = ["on", "nopass", "~*", "+info", "+client|info", "+ping"];
    await command(server.port, "acl", "setuser", "reader", ...rules);
    const url = `redis://reader:any@127.0.0.1:${server.port}`;
    const { idOf, user } = await openShop();
    const ended = await runMain(["forget", user, idOf("cart 7"), ...why, "--url", url]);
    expectFailure(ended, 4, "ACL SETUSER");
  });

  test("lists what is kept for a user, the newest first, and nothing of others", async () => {
    const { idOf, lock, order, user } = await openShop();
    await order("cart 7");
    await sleep(5);
    await order("cart 8", Buffer.from([0xff, 0xd8]));
    await sleep(5);
    await lock.once(user, { id: "job 9", retainMs }, () => ({ paid: true }));
    const other = await openShop();
    await other.order("cart 7");
    const { code, stdout, stderr } = await runMain(["answers", user, "--body"], env);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    const lines = stdout.split("\n");
    expect(lines[0]).toMatch(/^User \S+ has 3 kept answers \(lock:submit: on database 0 of /);
    const rows = lines
      .filter((line) => /^[\w-]{22} /.test(line))
      .map((line) => line.split(/ {2,}/));
    const kept = [
      ...[
        { id: "job 9", status: "value", bytes: "13" },
        { id: "cart 8", status: "201", bytes: "2" },
      ],
      { id: "cart 7", status: "201", bytes: "12" },
    ];
    const expected = kept.map(async ({ id, status, bytes }) => {
      const seen = await lock.lookUp(user, { id: idOf(id) });
      if (seen.outcome !== "completed") throw new Error(seen.outcome);
      return { at: seen.completedAt, row: [idOf(id), status, "1 d", bytes] };
    });
    const newestFirst = (await Promise.all(expected)).sort((one, other) => other.at - one.at);
    const shown = rows.map(([id, status, , keptFor, bytes]) => [id, status, keptFor, bytes]);
    expect(shown).toEqual(newestFirst.map(({ row }) => row));
    for (const body of ['{"paid":true}', "base64:/9g=", '{"number":7}']) {
      expect(lines).toContain(`  ${body}`);
    }
    // One id in 64 begins with a hyphen: such a one is behind two hyphens, and quoted.
    const [id, forget] = [idOf("job 9"), "submit-lock forget --reason 'a wrong answer'"];
    const about = id.startsWith("-") ? `-- ${user} '${id}'` : `${user} ${id}`;
    expect(stdout).toContain(`${forget} ${about}\n`);
    expect(stdout).toMatch(/^looked at \d[\d ]* keys in /m);
    expect((await runMain(["answers", freshUser()], env)).stdout).toContain("has no kept answer");
  });

  test("prints JSON, and a body only where it is asked for", async () => {
    const { idOf, order, user } = await openShop();
    await order("cart 7");
    const { stdout } = await runMain(["answers", user, "--json"], env);
    const [answer] = JSON.parse(stdout).answers;
    expect(JSON.parse(stdout)).toMatchObject({ userId: user, isComplete: true });
    expect(answer).toMatchObject({ id: idOf("cart 7"), status: "201", bytes: 12 });
    expect(answer.expiresInMs).toBeGreaterThan(86_000_000);
    expect(answer).not.toHaveProperty("body");
  });

  test.each([
    ["a client's own key", ["--key", '"order-7"', "--route", "POST /orders"]],
    ["the same key without quotes", ["--key", "order-7", "--route", "POST /orders"]],
    ["a route with its query, as from a log", ["--key", "order-7", "--route", "POST /orders?a=1"]],
  ])("finds the answer of %s", async (_what, args) => {
    const { lock, user } = await openShop();
    const id = keyId(user, lock.keyFor(user), "POST /orders", "order-7");
    const attempt = await lock.acquireOrWait(user, { identity: { id, fingerprint: undefined } }, 0);
    if (attempt.outcome !== "acquired") throw new Error(attempt.outcome);
    await attempt.lease.complete({ status: 201 });
    const found = await runMain(["answers", user, ...args], env);
    expect(found.stdout).toMatch(new RegExp(`has 1 kept answer[^]*^${id} +201 `, "m"));
    const other = await runMain(["answers", user, ...args.slice(0, 3), "POST /carts"], env);
    expect(other.stdout).toContain("has no kept answer");
  });

  test("that lost its expiry, as in a migration, is kept forever", async () => {
    const { idOf, lock, order, user } = await openShop();
    await order("cart 7");
    await command(sharedRedisPort(), "persist", `{${lock.keyFor(user)}}:${idOf("cart 7")}`);
    expect((await runMain(["answers", user], env)).stdout).toMatch(/ ago +forever +12 /);
    const { stdout } = await runMain(["answers", user, "--json"], env);
    expect(JSON.parse(stdout).answers[0]).toMatchObject({ expiresInMs: null });
  });

  test("finds the answer of an id of once, and of its 22 characters", async () => {
    const { idOf, lock, user } = await openShop();
    await lock.once(user, { id: "job 9" }, () => 7);
    for (const id of ["job 9", idOf("job 9")]) {
      const { stdout } = await runMain(["answers", user, "--submission", id], env);
      expect(stdout).toContain("has 1 kept answer ");
    }
  });

  test.each([
    [["answers"], "answers needs a user id"],
    [["answers", "42", "--key", "a"], "--key and --route"],
    [
      ["answers", "42", "--key", "a b", "--route", "POST /orders"],
      '--key: expected the Idempotency-Key as it was sent, got "a b"',
    ],
    [
      ["answers", "42", "--key", "a", "--route", "orders"],
      '--route: expected a text such as "POST /orders", got "orders"',
    ],
    [["forget", "42"], "needs a user id and the 22 characters"],
    [
      ["forget", "43", "cart-7", ...why, "--prefix", "shop:"],
      "22 characters of a submission, as answers prints them: npx --no-install submit-lock answers --prefix shop: 43",
    ],
    [["forget", "42", "a".repeat(22)], "forget needs --reason"],
  ])("%j is refused", async (args, said) => {
    expectFailure(await runMain(args, env), 2, said);
  });

  test("among 100 000 keys of others it says how many it has looked at", async () => {
    const server = await forTest(startRedis());
    const fill = "for i = 1, 1e5 do redis.call('SET', 'other:' .. i, 1) end";
    await command(server.port, "eval", fill, 0);
    const { order, user } = await openShop(server.port);
    await order("cart 7");
    const from = performance.now();
    const { stdout } = await runMain(["answers", user], { REDIS_URL: server.url });
    expect(performance.now() - from).toBeLessThan(60_000);
    expect(stdout).toContain("has 1 kept answer ");
    expect(stdout).toMatch(/^looked at 100 00\d keys in /m);
  });

  test("without +dbsize it does not guess how many there are", async () => {
    const server = await forTest(startRedis());
    const { order, user } = await openShop(server.port);
    await order("cart 7");
    const rules = ["on", "nopass", "~*", "+@all", "-dbsize"];
    await command(server.port, "acl", "setuser", "reader", ...rules);
    const url = `redis://reader:any@127.0.0.1:${server.port}`;
    const { stdout } = await runMain(["answers", user], { REDIS_URL: url });
    expect(stdout).toContain("has 1 kept answer ");
    expect(stdout).toMatch(/^looked at all keys in /m);
  });
});

describe("forget", () => {
  test("deletes one answer, says what was in it, and the next retry runs", async () => {
    const { idOf, lock, order, user } = await openShop();
    await order("cart 7");
    await order("cart 8");
    expect(await order("cart 7")).toBe("completed");
    const id = idOf("cart 7");
    const dry = await runMain(["forget", user, id, "--dry-run"], env);
    expect(dry.stdout).toMatch(new RegExp(`^${id} +201 [^]*Nothing was changed.`, "m"));
    expect(await order("cart 7")).toBe("completed");
    const { code, stdout, stderr } = await runMain(["forget", user, id, ...why], env);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^Forgotten by anna@ops-1 \(ticket 4711\)\. The next retry .* runs\.$/m);
    expect(auditOf(stderr)).toMatchObject({
      ...{ event: "submit-lock forget", userId: user, id, reason: "ticket 4711" },
      ...{ by: "anna@ops-1", outcome: "forgotten", answer: { status: "201" } },
      ...{ key: lock.keyFor(user), database: 0 },
    });
    expect(await order("cart 7")).toBe("recorded");
    expect(await order("cart 8")).toBe("completed");
  });

  test("changes nothing while the order is under way, and says when there is no answer", async () => {
    const { idOf, lock, user } = await openShop();
    const attempt = await lock.acquire(user, { submission: { id: "cart 7" } });
    if (attempt.outcome !== "acquired") throw new Error(attempt.outcome);
    await attempt.lease.complete({ status: 201 });
    const none = await runMain(["forget", user, idOf("cart 8"), ...why, "--json"], env);
    expect(none).toMatchObject({ code: 0, stderr: "" });
    expect(JSON.parse(none.stdout)).toMatchObject({ outcome: "none" });
    const working = await lock.acquire(user, { submission: { id: "cart 9" } });
    if (working.outcome !== "acquired") throw new Error(working.outcome);
    expect(await runMain(["forget", user, idOf("cart 9"), ...why], env)).toMatchObject({ code: 1 });
    await working.lease.release();
  });

  test("takes the first 64 characters of a long name of a person and a host", async () => {
    const { idOf, order, user } = await openShop();
    await order("cart 7");
    const ofPerson = { ...env, SUDO_USER: "a".repeat(70) };
    const args = ["forget", user, idOf("cart 7"), "--reason", "ticket 4711"];
    const { code, stderr } = await runMain(args, ofPerson);
    expect(code).toBe(0);
    expect(auditOf(stderr)).toMatchObject({ by: "a".repeat(64), outcome: "forgotten" });
  });

  test("asks a person for the reason, behind what it shows", async () => {
    const { idOf, order, user } = await openShop();
    await order("cart 7");
    const args = ["forget", user, idOf("cart 7")];
    const left = await runAsPerson(args, env, [undefined]);
    expect(left).toMatchObject({ code: 2 });
    expect(await order("cart 7")).toBe("completed");
    const ended = await runAsPerson(args, env, ["ticket 4711"]);
    expect(ended).toMatchObject({ code: 0 });
    expect(ended.stderr).toContain("a second charge are possible");
    expect(await order("cart 7")).toBe("recorded");
  });
});

test.each(redisClients)(
  "sealed answers are opened by the lock of --config, with $name",
  async () => {
    const secret = randomBytes(32).toString("base64");
    const client = ioredis6.connect(sharedRedisPort());
    await untilReady(client);
    const seal = { keys: [Buffer.from(secret, "base64")] };
    const lock = new SubmitLock({ store: new RedisStore(client), seal });
    onTestFinished(() => lock.close());
    const user = freshUser();
    await lock.once(user, { id: "job 9" }, () => "secret");
    const { id } = identify(user, { id: "job 9" });
    const without = await runMain(["answers", user, "--body"], env);
    const [, shownId] =
      /^([\w-]{22}) +\? +\? .*sealed with another key$/m.exec(without.stdout) ?? [];
    expect(shownId).not.toBe(id);
    expect(without.stdout).toContain("give its module with --config");
    expect(without.stdout).not.toContain("secret");
    // By the order's own id, nothing is found without the seal, and nothing is promised.
    const unsaid = "unless it is sealed: then give the module of the shop's lock with --config.";
    const bySubmission = await runMain(["answers", user, "--submission", "job 9"], env);
    expect(bySubmission.stdout).toContain(unsaid.slice(0, -1));
    const byId = await runMain(["forget", user, id, ...why], env);
    expect(byId.stdout).toContain(unsaid);
    expect(byId.stdout).not.toContain("runs");
    const config = configModule(
      `export const redis = new Redis("${env.REDIS_URL}");
     const seal = { keys: [Buffer.from("${secret}", "base64")] };
     export default new SubmitLock({ store: new RedisStore(redis), seal });`,
    );
    const others = configModule(
      `export const redis = new Redis("${env.REDIS_URL}");
     const seal = { keys: [Buffer.alloc(32, 7)] };
     export default new SubmitLock({ store: new RedisStore(redis), seal });`,
    );
    const withOther = await runMain(["answers", user, "--config", others]);
    expect(withOther.stdout).toContain("add it to its seal.keys");
    expect(withOther.stdout).not.toContain("give its module");
    const found = await runMain(["answers", user, "--body", "--config", config]);
    expect(found.stdout).toMatch(new RegExp(`^${id} +value [^]*^  "secret"$`, "m"));
    const asked = ["answers", user, "--submission", "job 9", "--config", config];
    expect((await runMain(asked)).stdout).toMatch(/ value .* ago +\? +8 /);
    // By its id in Redis as well, with the ring and without.
    expect(await runMain(["forget", user, `${shownId}`, ...why], env)).toMatchObject({ code: 0 });
    expect(await lock.once(user, { id: "job 9" }, () => "again")).toMatchObject({
      replayed: false,
    });
    const forgotten = await runMain(["forget", user, id, ...why, "--config", config]);
    expect(forgotten).toMatchObject({ code: 0 });
    expect(await lock.lookUp(user, { id })).toEqual({ outcome: "none" });
  },
);

test.each(clusterClients)(
  "on a Cluster, one node is scanned, with $name",
  async ({ connect }) => {
    const cluster = await forTest(startCluster());
    const client = connect(cluster.ports);
    const lock = openLock({ store: new RedisStore(client) });
    const users = Array.from({ length: 6 }, freshUser);
    for (const user of users) await lock.once(user, { id: "job 9" }, () => 7);
    const scans = async () => {
      const infos = cluster.ports.map((port) => command(port, "info", "commandstats"));
      const texts = (await Promise.all(infos)) as string[];
      return texts.map((text) => Number(/cmdstat_scan:calls=(\d+)/.exec(text)?.[1] ?? 0));
    };
    for (const user of users) {
      const before = await scans();
      const url = `redis://127.0.0.1:${cluster.ports[0]}`;
      const { stdout } = await runMain(["answers", user, "--url", url, "--cluster"]);
      expect(stdout).toContain("has 1 kept answer ");
      const after = await scans();
      expect(after.filter((calls, at) => calls > (before[at] ?? 0))).toHaveLength(1);
    }
    // A scan of one node would miss the keys of the others.
    const url = `redis://127.0.0.1:${cluster.ports[0]}`;
    for (const words of [["answers", users[0] ?? ""], ["list"]]) {
      const refused = await runMain([...words, "--url", url]);
      expect(refused).toMatchObject({ code: 2, stdout: "" });
      expect(refused.stderr).toContain("--cluster");
    }
  },
  60_000,
);

test("a node of a Cluster that is down is not taken for the whole", async () => {
  const { port } = await forTest(startRedis({ args: ["--cluster-enabled", "yes"] }));
  for (const words of [["answers", freshUser()], ["list"]]) {
    const ended = await runMain([...words, "--url", `redis://127.0.0.1:${port}`]);
    expectFailure(ended, 3, "a part of the Cluster is down");
  }
});
