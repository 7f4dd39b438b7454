import { Redis } from "ioredis";
import { command } from "../test/support/command.ts";
import { startMasters } from "../test/support/masters.ts";
import { serverBinary } from "../test/support/server-binary.ts";
import { startServer } from "../test/support/server-process.ts";
import { until } from "../test/support/until.ts";
import type { LoadJob } from "./load.ts";
import type { PairJob, PairSetup } from "./pairs.ts";
import type { ShopSetup, Variant } from "./shop.ts";
import { type Measures, pin, Worker } from "./worker.ts";

/** How long one measurement lasts, in seconds. */
export const seconds = Number(process.env["BENCH_SECONDS"] ?? 0.6);
const callerCounts = [1, 32, 256];

/** One thing that is measured in every round. */
export interface Cell {
  readonly name: string;
  /** The name of the cell that this one is compared with in each round. */
  readonly base: string;
  run(): Promise<Measures>;
}

/** A subject by its name: the package of a tree, or what one writes by hand. */
export type Subjects = Readonly<Record<string, Omit<PairSetup, "ports">>>;

const toStop: (() => Promise<unknown>)[] = [];

/** Ends all that the cells have started. */
export async function stopAll(): Promise<void> {
  for (const stop of toStop.splice(0).reverse()) await stop();
}

async function worker<Job extends object>(file: string, setup: object): Promise<Worker<Job>> {
  const started = await Worker.start<Job>(file, setup);
  toStop.push(() => started.stop());
  return started;
}

/** A Redis on the other core than its client. */
async function server(args: readonly string[] = []): Promise<number> {
  const started = await startServer(serverBinary(), { args: [...args] });
  toStop.push(() => started.stop());
  pin(1, started.pid);
  return started.port;
}

/** The processor time of a server, in µs, and the bytes that its clients have sent. */
async function costOf(ports: readonly number[]): Promise<{ micros: number; bytes: number }> {
  const sum = { micros: 0, bytes: 0 };
  for (const port of ports) {
    const info = String(await command(port, "INFO", "everything"));
    const field = (name: string) => Number(new RegExp(`^${name}:(.+)$`, "m").exec(info)?.[1]);
    sum.micros += 1e6 * field("used_cpu_user_main_thread");
    sum.micros += 1e6 * field("used_cpu_sys_main_thread");
    sum.bytes += field("total_net_input_bytes");
  }
  return sum;
}

/** Acquire and release. The first subject is what the others are compared with. */
async function pairCells(subjects: Subjects, ports: readonly number[]): Promise<Cell[]> {
  const [first = ""] = Object.keys(subjects);
  const workers: [string, Worker<PairJob>][] = [];
  for (const [name, setup] of Object.entries(subjects)) {
    workers.push([name, await worker<PairJob>("pairs.ts", { ...setup, ports })]);
  }
  for (const [, each] of workers) {
    for (const callers of callerCounts)
      await each.run({ callers, seconds: Math.max(seconds, 0.5) });
  }
  return callerCounts.flatMap((callers) =>
    workers.map(([subject, each]) => ({
      name: `${subject}, ${callers}`,
      base: `${first}, ${callers}`,
      async run() {
        const before = await costOf(ports);
        const { count = 1, ...measures } = await each.run({ callers, seconds });
        const after = await costOf(ports);
        const redis = (after.micros - before.micros) / count;
        return { ...measures, "Redis' µs": redis, bytes: (after.bytes - before.bytes) / count };
      },
    })),
  );
}

export async function onServer(subjects: Subjects): Promise<Cell[]> {
  return await pairCells(subjects, [await server()]);
}

export async function onCluster(subjects: Subjects): Promise<Cell[]> {
  const announce = ["--cluster-announce-ip", "127.0.0.1"];
  const nodes = await startMasters(serverBinary(), 3, announce);
  for (const node of nodes) {
    toStop.push(() => node.stop());
    pin(1, node.pid);
  }
  return await pairCells(
    subjects,
    nodes.map(({ port }) => port),
  );
}

export async function withReplica(subjects: Subjects): Promise<Cell[]> {
  const fast = ["--repl-diskless-sync-delay", "0"];
  const port = await server(fast);
  await server([...fast, "--replicaof", `127.0.0.1 ${port}`]);
  const online = async () =>
    /state=online/.test(String(await command(port, "INFO", "replication")));
  await until(online, { what: "the replica to be in step", boundMs: 30_000, everyMs: 20 });
  return await pairCells(subjects, [port]);
}

/** One caller, with locks of other users in Redis. */
export async function withLocksHeld(tree: string, counts: readonly number[]): Promise<Cell[]> {
  const cells: Cell[] = [];
  for (const held of counts) {
    const port = await server();
    const redis = new Redis(port, "127.0.0.1");
    const fill = `for i = tonumber(ARGV[1]), tonumber(ARGV[2]) do
      redis.call('SET', 'lock:submit:held' .. i, string.rep('0', 36), 'PX', 3600000) end`;
    for (let from = 0; from < held; from += 10_000) {
      await redis.eval(fill, 0, from, Math.min(from + 10_000, held) - 1);
    }
    redis.disconnect();
    const [cell] = await pairCells({ "submit-lock": { tree, client: "ioredis" } }, [port]);
    const run = async () => ({ "acquire p50 ms": (await cell?.run())?.["acquire p50 ms"] ?? 0 });
    cells.push({ name: `${held} held`, base: `${counts[0]} held`, run });
  }
  return cells;
}

/** Many leases of one process, and their watchdogs. */
export async function leases(tree: string, count: number): Promise<Cell[]> {
  const setup: PairSetup = { tree, client: "ioredis", ports: [await server()] };
  const holder = await worker<PairJob>("pairs.ts", setup);
  const name = `${count} leases`;
  return [{ name, base: name, run: () => holder.run({ leases: count }) }];
}

/** An order route: as fast as it goes, and at 500 requests a second. */
export interface Shop {
  readonly tree: string;
  readonly framework: ShopSetup["framework"];
  readonly variant: Variant;
  readonly key?: NonNullable<LoadJob["key"]>;
  readonly base: string;
}

export async function shopCells(shops: Readonly<Record<string, Shop>>): Promise<Cell[]> {
  const redisPort = await server();
  const load = await worker<LoadJob>("load.ts", {});
  const cells: Cell[] = [];
  for (const [name, { base, key, ...setup }] of Object.entries(shops)) {
    const shop = await worker<object>("shop.ts", { ...setup, redisPort });
    const { port = 0 } = await shop.run({});
    const job = { port, ...(key === undefined ? {} : { key }) };
    // Long enough for the code to be optimised, and one answer for the replays.
    await load.run({ ...job, perSecond: 50, seconds: 0.1 });
    await load.run({ ...job, seconds: Math.max(1, seconds) });
    const run = async () => {
      // A process that has waited for its turn has given memory back, and takes it again first.
      await load.run({ ...job, seconds: seconds / 2 });
      await shop.run({});
      const { answers = 1, "a second": rate = 0 } = await load.run({ ...job, seconds });
      const { micros = 0 } = await shop.run({});
      const { "p50 ms": p50 = 0 } = await load.run({ ...job, perSecond: 500, seconds });
      return { "a second": rate, "processor µs": micros / answers, "p50 ms at 500/s": p50 };
    };
    cells.push({ name, base, run });
  }
  return cells;
}
