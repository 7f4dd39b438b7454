import { setTimeout as sleep } from "node:timers/promises";
import { RedisStore, SubmitLock } from "../../../src/index.ts";
import { until } from "../../support/until.ts";
import { labClients, Misses } from "../laboratory.ts";
import { connect } from "../shop/connect.ts";
import { now } from "../shop/protocol.ts";
import { type Durable, startDurable } from "./durable.ts";
import type { Result } from "./load-process.ts";
import { startPipe } from "./pipe.ts";
import { printed, Site } from "./site.ts";

const of = (result: Result, name: string): number => result[name] ?? 0;
const isCalm = (result: Result) => of(result, "unavailable") + of(result, "lost leases") === 0;

/** The steps of docs/operations/capacity.md, beside 200 orders a second of 100 ms each. */
export async function gameDay(): Promise<void> {
  const fast = ["--repl-diskless-sync-delay", "0"];
  const master = await startDurable("everysec", fast);
  const { redis, server } = master;
  const front = await startPipe(server.port);
  const ports = [front.port];
  const { end, redis: client } = connect({ kind: "single", port: front.port }, labClients()[0]);
  const lock = new SubmitLock({ store: new RedisStore(client) });
  const site = await Site.open([master], { processes: 2, ports });
  const misses = new Misses();
  const step = async (
    what: string,
    happens: () => Promise<unknown>,
    isSeen: (result: Result) => boolean = isCalm,
  ) => {
    const during = async () => [await sleep(1_000), await happens(), await sleep(3_000)];
    const load = { perSecond: 200, holdMs: 100 };
    const result = printed(what, await site.load(load, during));
    misses.expect(isSeen(result), `${what}: ${JSON.stringify(result)}`);
  };
  const [from, day] = [now(), { runs: 0 }];
  const runTwice = async () => {
    const again = await site.ask({ againFrom: from, to: now() });
    misses.expect(of(again, "run twice") === 0, `ran twice: ${JSON.stringify(again)}`);
  };

  await step("1. two clicks", async () => {
    const work = async () => ++day.runs;
    const clicks = [1, 2].map(() => lock.once("one", { id: "order" }, work));
    misses.expect(
      (await Promise.all(clicks)).some(({ replayed }) => replayed),
      "no replay",
    );
    misses.expect(day.runs === 1, "two clicks ran twice");
  });
  const one = { perSecond: 50, holdMs: 30_000, oneUser: true } as const;
  await step("2. kill -9 of a process", async () => {
    const doomed = await Site.open([], { ports });
    void doomed.load(one, () => sleep(60_000)).catch(() => {});
    await sleep(500);
    await doomed.close();
    const at = now();
    const isFree = async () => {
      const attempt = await lock.acquire("bot");
      return attempt.outcome === "acquired" && (await attempt.lease.release()) === "released";
    };
    misses.expect(!(await isFree()), "a dead process' order had no lock");
    await until(isFree, { what: "a free user", boundMs: 11_000, everyMs: 100 });
    misses.expect(now() - at < 10_500, "a user was locked for longer than ttlMs");
  });
  await step("3. SIGSTOP of a process, for longer than ttlMs", async () => {
    const frozen = await Site.open([], { ports });
    const result = await frozen.load({ ...one, perSecond: 1 }, async () => {
      await sleep(2_000);
      frozen.signal("SIGSTOP");
      await sleep(12_000);
      frozen.signal("SIGCONT");
      await sleep(500);
    });
    misses.expect(of(result, "lost leases") === 1, `the holder was not told`);
    await frozen.close();
  });
  await step("4. CLIENT KILL", () => redis.call("CLIENT", "KILL", "TYPE", "normal"));
  await step("5. BGSAVE, BGREWRITEAOF", async () => [
    await redis.bgsave(),
    await redis.bgrewriteaof(),
  ]);
  await step(
    "6. Redis stands still for 3 s",
    async () => [server.pause(), await sleep(3_000), server.resume()],
    (result) => of(result, "unavailable") > 0 && of(result, "lost leases") === 0,
  );
  await step(
    "7. kill -9 of Redis, and a restart",
    () => server.restart(),
    (result) => of(result, "lost leases") === 0,
  );
  await runTwice();
  await step(
    "8. full",
    async () => {
      await redis.config("SET", "maxmemory", 1);
      await sleep(1_000);
      await redis.config("SET", "maxmemory", 0);
    },
    (result) => of(result, "unavailable") > 0 && of(result, "recorded") === of(result, "acquired"),
  );
  await step(
    "9. a permission is missing",
    async () => {
      await redis.call("ACL", "SETUSER", "default", "-evalsha", "-eval");
      await sleep(1_000);
      await redis.call("ACL", "SETUSER", "default", "+evalsha", "+eval");
    },
    (result) => of(result, "unavailable") > 0,
  );
  await runTwice();
  const standby: Durable = await startDurable("everysec", [
    ...fast,
    "--replicaof",
    `127.0.0.1 ${server.port}`,
  ]);
  const online = async () => /state=online/.test(await redis.info("replication"));
  await until(online, { what: "a replica", everyMs: 20 });
  await step(
    "10. a failover",
    async () => {
      await server.kill();
      await sleep(1_000);
      await standby.redis.replicaof("NO", "ONE");
      front.leadTo(standby.server.port);
    },
    (result) => of(result, "unavailable") > 0,
  );
  await step("orders flow again", () => sleep(0));
  for (const miss of misses.found) console.log(`MISSED: ${miss}`);
  if (misses.found.length > 0) process.exitCode = 1;
  end();
  front.stop();
  await site.close();
  await standby.stop();
}
