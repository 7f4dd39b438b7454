import { setTimeout as sleep } from "node:timers/promises";
import { startMasters } from "../../support/masters.ts";
import { serverBinary } from "../../support/server-binary.ts";
import { until } from "../../support/until.ts";
import { setting } from "../laboratory.ts";
import { now } from "../shop/protocol.ts";
import { type Fsync, observed, settingsOf, startDurable, watchFile } from "./durable.ts";
import { gameDay } from "./game-day.ts";
import type { Result } from "./load-process.ts";
import { startPipe } from "./pipe.ts";
import { printed, Site } from "./site.ts";

/** How long each load lasts, how many orders a second, how often the Redis of each kind has its turn. */
const forMs = setting("CAPACITY_MS", 8_000);
const rate = setting("CAPACITY_RATE", 1_000);
const rounds = setting("CAPACITY_ROUNDS", 5);
const clients = setting("CAPACITY_CLIENTS", 500);
const aWhile = () => sleep(forMs);

const median = (values: readonly number[]): number =>
  values.toSorted((one, other) => one - other)[Math.floor(values.length / 2)] ?? 0;

/** Each kind of Redis is measured in each round; the ratios are those within the rounds. */
async function persistence(): Promise<void> {
  const kinds: readonly Fsync[] = ["no", "everysec", "always"];
  const sites = await Promise.all(kinds.map(async (kind) => Site.open([await startDurable(kind)])));
  for (const load of [{ perSecond: rate }, { perSecond: rate, isLockAlone: true } as const]) {
    const rows: Result[][] = kinds.map(() => []);
    for (let round = 0; round < rounds; round++) {
      for (const [at, site] of sites.entries()) {
        rows[at]?.push(await site.measured(`${kinds[at]}`, () => site.load(load, aWhile)));
      }
    }
    for (const [at, row] of rows.entries()) {
      const names = Object.keys(row[0] ?? {}).filter((name) => / p\d|µs/.test(name));
      const medians = names.map((name) => [name, median(row.map((each) => each[name] ?? 0))]);
      const ratios = row.map((each, round) => {
        return (each["Redis µs"] ?? 0) / (rows[0]?.[round]?.["Redis µs"] ?? 1);
      });
      const all = { ...Object.fromEntries(medians), "ratio of Redis µs": median(ratios) };
      printed(
        `MEDIANS ${"isLockAlone" in load ? "lock alone" : "orders"}, fsync ${kinds[at]}`,
        all,
      );
    }
  }
  for (const site of sites) await site.close();
}

/** What clients do while a large Redis forks, and while it stands still for longer. */
async function forks(): Promise<void> {
  const gigabytes = setting("CAPACITY_GB", 1);
  const fixed = ["--enable-debug-command", "local", "--auto-aof-rewrite-percentage", "0"];
  const durable = await startDurable("everysec", fixed);
  const { redis, server } = durable;
  await redis.call("DEBUG", "POPULATE", Math.round(gigabytes * 1.75e6), "record", 490);
  const site = await Site.open([durable], { processes: 4 });
  const forked = async (what: string, isUnderWay: string) => {
    await redis.call(what);
    await sleep(500);
    const isOver = async () => (await durable.info())[isUnderWay] === 0;
    await until(isOver, { what, boundMs: 300_000, everyMs: 100 });
  };
  const stopped = async (ms: number) => {
    await sleep(1_000);
    server.pause();
    await sleep(ms);
    server.resume();
    await sleep(2_000);
  };
  for (const [what, phase] of [
    ["at rest", aWhile],
    ["BGSAVE", () => forked("BGSAVE", "rdb_bgsave_in_progress")],
    ["BGREWRITEAOF", () => forked("BGREWRITEAOF", "aof_rewrite_in_progress")],
    ["stopped for 100 ms", () => stopped(100)],
    ["stopped for 300 ms", () => stopped(300)],
  ] as const) {
    await site.measured(what, () => site.load({ perSecond: rate }, phase));
    const { latest_fork_usec: micros = 0, used_memory: bytes = 0 } = await durable.info();
    printed(what, { "fork ms": micros / 1_000, "used GB": bytes / 1e9 });
  }
  await site.close();
}

/** Of the process alone, unless it says more. */
interface Death {
  readonly perSecond: number;
  /** A machine dies, with so much of the file. */
  readonly fileMs?: number;
  /** A replica that is so late takes over. */
  readonly lagMs?: number;
  readonly ackReplicas?: number;
}

/** Each order that was completed in the 3 s before is clicked again. */
async function lossOf(death: Death): Promise<void> {
  const { ackReplicas, fileMs = 0, lagMs, perSecond } = death;
  const fast = ["--repl-diskless-sync-delay", "0"];
  const master = await startDurable("everysec", fast);
  const { port } = master.server;
  const [front, late] = [await startPipe(port), await startPipe(port, lagMs)];
  const of = ["--replicaof", `127.0.0.1 ${late.port}`];
  const replica = await startDurable("everysec", [...fast, ...of]);
  const online = async () => /state=online/.test(await master.redis.info("replication"));
  await until(online, { what: "a replica", boundMs: 30_000, everyMs: 20 });
  const cut = await watchFile(master);
  const setup = { processes: 2, ports: [front.port], ackReplicas };
  const site = await Site.open([master, replica], setup);
  let diedAt = 0;
  const load = await site.load({ perSecond, holdMs: 200 }, async () => {
    await aWhile();
    diedAt = now();
    await master.server.kill();
    if (fileMs > 0) cut(diedAt - fileMs);
    if (lagMs === undefined) await master.server.restart();
    else await replica.redis.replicaof("NO", "ONE");
    if (lagMs !== undefined) front.leadTo(replica.server.port);
    await sleep(2_000);
  });
  const lostFrom = diedAt - (lagMs ?? fileMs);
  const before = await site.ask({ againFrom: diedAt - 3_000, to: lostFrom });
  const behind = await site.ask({ againFrom: lostFrom, to: diedAt });
  printed(JSON.stringify(death), {
    unavailable: load["unavailable"] ?? 0,
    "locks lost": load["late"] ?? 0,
    "completed in that time": behind["asked again"] ?? 0,
    "run twice": (before["run twice"] ?? 0) + (behind["run twice"] ?? 0),
    duplicate: (before["duplicate"] ?? 0) + (behind["duplicate"] ?? 0),
  });
  for (const pipe of [front, late]) pipe.stop();
  await site.close();
}

async function loss(): Promise<void> {
  for (const perSecond of [100, 300, 1_000]) {
    await lossOf({ perSecond });
    await lossOf({ perSecond, fileMs: 1_000 });
    await lossOf({ perSecond, lagMs: 100 });
  }
  await lossOf({ perSecond: 1_000, lagMs: 500 });
  await lossOf({ perSecond: 300, lagMs: 20, ackReplicas: 1 });
}

/** Records that all run out within a minute, beside orders. */
async function expiry(): Promise<void> {
  const durable = await startDurable();
  const count = setting("CAPACITY_RECORDS", 1_000_000);
  const at = Date.now() + setting("CAPACITY_FILL_MS", 45_000);
  const fill = `for i = ARGV[1], ARGV[2] do
    local key = '{lock:submit:' .. i .. '}:aaaaaaaaaaaaaaaaaaaaaa'
    redis.call('SET', key, ARGV[3], 'PXAT', string.format('%.0f', ARGV[4] + i * ARGV[5]))
  end`;
  const each = ["x".repeat(490), at, 60_000 / count];
  for (let from = 0; from < count; from += 10_000) {
    await durable.redis.eval(fill, 0, from, from + 9_999, ...each);
  }
  const site = await Site.open([durable]);
  const load = (during: () => Promise<unknown>) => () =>
    site.load({ perSecond: 200, isLockAlone: true }, during);
  const memory = async () => ((await durable.info())["used_memory"] ?? 0) / 1e6;
  const seen = { "MB before": await memory(), overdue: 0 };
  await site.measured(
    "before they run out",
    load(() => sleep(5_000)),
  );
  await sleep(Math.max(0, at - Date.now()));
  const during = async () => {
    while (Date.now() < at + 62_000) {
      const due = Math.min(1, (Date.now() - at) / 60_000) * count;
      seen.overdue = Math.max(seen.overdue, (await durable.redis.dbsize()) - (count - due));
      await sleep(250);
    }
  };
  await site.measured(`while ${count} run out`, load(during));
  printed("records", { ...seen, "MB after": await memory(), left: await durable.redis.dbsize() });
  await site.close();
}

/** Clients that lose their connections, all at once. */
async function storm(): Promise<void> {
  const durable = await startDurable();
  const { redis, server } = durable;
  const site = await Site.open([durable], { processes: 5, clients: clients / 5 });
  for (const [what, happens] of [
    ["nothing", () => sleep(0)],
    ["CLIENT KILL", () => redis.call("CLIENT", "KILL", "TYPE", "normal")],
    ["stopped for 1 s", async () => [server.pause(), await sleep(1_000), server.resume()]],
    ["restart", () => server.restart()],
  ] as const) {
    const seen = { "most connections": 0, "back after ms": 0 };
    const during = async () => {
      await sleep(2_000);
      const from = now();
      const happening = happens();
      while (now() < from + 2 * forMs) {
        const { connected_clients: open = 0 } = await durable.info();
        if (open <= clients) seen["back after ms"] = now() - from;
        seen["most connections"] = Math.max(seen["most connections"], open);
        await sleep(20);
      }
      await happening;
    };
    await site.measured(`${clients} clients, ${what}`, () => site.load({ perSecond: 500 }, during));
    printed(what, seen);
    // The second connections are closed.
    if (what !== "nothing") await sleep(32_000);
  }
  await site.close();
}

/** One user's bot, a thousand who wait, and the longest call. */
async function crowds(): Promise<void> {
  const durable = await startDurable();
  const { redis } = durable;
  const site = await Site.open([durable]);
  const alone = { perSecond: 1_000, isLockAlone: true } as const;
  await site.measured("1,000 users a second", () => site.load(alone, aWhile));
  const bot = { ...alone, oneUser: true, holdMs: 5_000 } as const;
  await site.measured("a bot, 1,000 clicks a second", () => site.load(bot, aWhile));
  for (const of of ["submission", "user"] as const) {
    await site.measured(`1,000 callers for one ${of}`, () =>
      site.ask({ burst: 1_000, of, waitMs: 5_000 }),
    );
  }
  await redis.config("SET", "slowlog-log-slower-than", 0, "slowlog-max-len", 5_000);
  for (let round = 0; round < 50; round++) await site.ask({ burst: 1_000, of: "users", waitMs: 0 });
  const slow = (await redis.call("SLOWLOG", "GET", 5_000)) as [number, number, number, string[]][];
  const full = slow.filter(([, , , argv]) => /eval/i.test(argv[0] ?? "") && argv[2] === "100");
  const micros = full.map(([, , each]) => each);
  const [, threshold] = (await redis.config("GET", "busy-reply-threshold")) as string[];
  const all = { calls: micros.length, median: median(micros), longest: Math.max(...micros) };
  printed("calls of 100 keys, µs", { ...all, "busy-reply-threshold ms": Number(threshold) });
  await site.close();
}

/** The same orders on 1, 3 and 6 masters, and what their bus costs. */
async function cluster(): Promise<void> {
  for (const masters of [1, 3, 6]) {
    const args = [...settingsOf("everysec"), "--cluster-announce-ip", "127.0.0.1"];
    const nodes = (await startMasters(serverBinary(), masters, args)).map(observed);
    const site = await Site.open(nodes, { processes: 2, isCluster: true });
    await site.measured(`${masters} masters at rest`, () => aWhile().then(() => ({})));
    await site.measured(`${masters} masters`, () => site.load({ perSecond: rate }, aWhile));
    await site.close();
  }
}

export const parts: Readonly<Record<string, () => Promise<void>>> = {
  ...{ persistence, forks, loss, expiry, storm, crowds, cluster, "game-day": gameDay },
};
