import { afterAll, afterEach, expect, test } from "vitest";
import { RedisStore } from "../../src/index.ts";
import { configModule, runMain } from "../support/cli.ts";
import { closeClients, ioredis6, redisClients, untilReady } from "../support/clients.ts";
import { command } from "../support/command.ts";
import { closeLocks, leaseOf, openLock } from "../support/locks.ts";
import { startProxy } from "../support/proxy.ts";
import { forTest, startRedis } from "../support/redis-server.ts";

const redis = await startRedis();
afterAll(() => redis.stop());
afterEach(async () => {
  await closeLocks();
  await closeClients();
});

/** As the shop has locked before: nothing is encoded, and the id is not at the end. */
const keyOf = (userId: string) => `shop:${userId}:lock`;
const send = (name: string, ...args: (string | number)[]) => command(redis.port, name, ...args);

test.each(redisClients)(
  "P1: old keys keep submit-lock out, and the other way round: $name",
  async ({ connect }) => {
    const store = new RedisStore(connect(redis.port));
    const lock = openLock({ store, keyPrefix: "shop:", keyOf });
    await lock.check({ submissions: true });
    for (const user of ["auth0|42", "a+b", "é", "50%", "a%41"]) {
      expect(await send("SET", keyOf(user), "1", "NX", "EX", 7_200)).toBe("OK");
      expect(await lock.acquire(user)).toMatchObject({ outcome: "contended" });
      await send("DEL", keyOf(user));
      const lease = await leaseOf(lock, user);
      expect(await send("SET", keyOf(user), "1", "NX", "EX", 7_200)).toBeNull();
      expect(await lease.release()).toBe("released");
      const once = () => lock.once(user, { id: "cart 7" }, () => user);
      expect(await once()).toMatchObject({ value: user, replayed: false });
      expect(await once()).toMatchObject({ value: user, replayed: true });
      expect(await send("EXISTS", keyOf(user))).toBe(0);
      await send("FLUSHALL");
    }
  },
);

// Without a `commandTimeout`, a promise of ioredis never settles there.
test.each([
  { how: "again, as ever", options: {}, outcome: "gone" },
  { how: "once", options: { autoResendUnfulfilledCommands: false }, outcome: "released" },
])(
  "P4: a DEL of the old code whose reply is lost is sent $how: a new lease is $outcome",
  async ({ options, outcome }) => {
    const proxy = await forTest(startProxy(redis.port));
    const old = ioredis6.connect(proxy.port, { commandTimeout: 1_000, ...options });
    const store = new RedisStore(ioredis6.connect(redis.port));
    const lock = openLock({ store, keyPrefix: "shop:", keyOf });
    await lock.check();
    await old.set(keyOf("42"), "1", "EX", 7_200, "NX");
    const lost = proxy.loseReplyOnce(([name]) => name === "del");
    const deleted = old.del(keyOf("42")).catch(() => {});
    await lost;
    // The customer's next order, at a new server.
    const lease = await leaseOf(lock, "42");
    proxy.resetAll();
    await deleted;
    await old.ping();
    expect(await lease.release()).toBe(outcome);
  },
);

// As redlock 5 and redis-semaphore 5 write them.
test.each([
  ["redlock", "lock:42", "0f8fad5b000040008000000000000000"],
  ["redis-semaphore", "mutex:42", "0f8fad5b-0000-4000-8000-000000000000"],
])("P1: a lock of %s and ours keep each other out", async (_library, key, value) => {
  const keyPrefix = key.replace("42", "");
  const lock = openLock({ store: new RedisStore(ioredis6.connect(redis.port)), keyPrefix });
  expect(await send("SET", key, value, "NX", "PX", 60_000)).toBe("OK");
  expect(await lock.acquire("42")).toMatchObject({ outcome: "contended" });
  await send("DEL", key);
  const lease = await leaseOf(lock, "42");
  expect(await send("SET", key, value, "NX", "PX", 60_000)).toBeNull();
  await lease.release();
});

test("P10: the commands have the keys of --config", async () => {
  const file = configModule(
    `export const redis = new Redis({ port: ${redis.port}, host: "127.0.0.1", keyPrefix: "{a}:" });
     const keyOf = (id) => {
       if (id === "gone") throw new Error("no such user");
       return "shop:" + id + ":lock";
     };
     export default new SubmitLock({ store: new RedisStore(redis), keyPrefix: "shop:", keyOf });`,
  );
  const client = ioredis6.connect(redis.port, { keyPrefix: "{a}:" });
  await untilReady(client);
  const lock = openLock({ store: new RedisStore(client), keyPrefix: "shop:", keyOf });
  await lock.once("auth0|42", { id: "cart 7" }, () => 1);
  await leaseOf(lock, "auth0|42");
  for (const old of ["a%41", "50%"]) await send("SET", `{a}:${keyOf(old)}`, "1", "PX", 60_000);
  await send("SET", "{a}:shop:visits", "1");
  const run = (...args: string[]) => runMain([...args, "--config", file]);

  const { stdout } = await run("list");
  expect(stdout).toMatch(/^shop: on database 0 of .*: 3 locks \(1 working, 2 foreign\)/);
  for (const user of ["auth0|42", "a%41", "50%"]) expect(stdout).toContain(`\n${user} `);
  expect(stdout).toMatch(/^1 key under this prefix is of no user id, .*: shop:visits$/m);
  const answers = JSON.parse((await run("answers", "auth0|42", "--json")).stdout);
  expect(answers).toMatchObject({ userId: "auth0|42", answers: [{}] });
  const shown = await run("show", "a%41", "--json");
  expect(JSON.parse(shown.stdout)).toMatchObject({ userId: "a%41", state: "foreign" });
  for (const command of ["show", "answers", "free"]) {
    const refused = await run(command, "gone", command === "free" ? "--dry-run" : "--json");
    expect(refused).toMatchObject({ code: 2, stdout: "" });
    expect(refused.stderr).toContain(
      "keyOf of the lock refuses this user id (Error: no such user)",
    );
  }
  const { id } = JSON.parse(shown.stdout);
  const freed = await run("free", "a%41", "--id", id, "--reason", "ticket 7");
  expect(freed.stdout).toContain("can order again now");
  const old = ["--value", "1", "--life", "2h", "--older", "10m"];
  const stranded = await run("free", "--stranded", ...old);
  expect(stranded.stderr).toContain('"key":"shop:50%:lock","userId":"50%"');
  expect((await run("doctor")).stdout).toContain("1 key under shop: of no user id");
});
