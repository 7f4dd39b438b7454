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

/** The results of each cell, round by round. */
type Results = ReadonlyMap<string, readonly Measures[]>;

/** Measures all cells in every round, beginning each with another one: none always follows the same. */
export async function measured(cells: readonly Cell[], rounds: number): Promise<Results> {
  const results = new Map<string, Measures[]>(cells.map(({ name }) => [name, []]));
  for (let round = 0; round < rounds; round++) {
    const first = round % cells.length;
    for (const cell of [...cells.slice(first), ...cells.slice(0, first)]) {
      results.get(cell.name)?.push(await cell.run());
    }
  }
  return results;
}

/** A Markdown table: medians, and in brackets the paired ratios to the base with their quartiles. */
export function tableOf(cells: readonly Cell[], results: Results): string {
  const columns = Object.keys(results.get(cells[0]?.name ?? "")?.[0] ?? {});
  const values = (name: string, column: string) =>
    (results.get(name) ?? []).map((measures) => measures[column] ?? Number.NaN);
  const rows = cells.map(({ base, name }) =>
    columns.map((column) => {
      const own = values(name, column);
      const median = rounded(quantile(own, 0.5));
      if (base === name) return median;
      const bases = values(base, column);
      return `${median} (${quartiles(own.map((value, round) => value / (bases[round] ?? Number.NaN)))})`;
    }),
  );
  const lines = [
    ["", ...columns],
    ["---", ...columns.map(() => "---:")],
    ...rows.map((row, at) => [cells[at]?.name ?? "", ...row]),
  ];
  return lines.map((cells) => `| ${cells.join(" | ")} |`).join("\n");
}

function quartiles(ratios: readonly number[]): string {
  const [lower, median, upper] = [0.25, 0.5, 0.75].map((at) => quantile(ratios, at).toFixed(2));
  return `${median}, ${lower}–${upper}`;
}

function quantile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (sorted.length - 1) * share;
  const below = sorted[Math.floor(at)] ?? Number.NaN;
  return below + ((sorted[Math.ceil(at)] ?? Number.NaN) - below) * (at % 1);
}

function rounded(value: number): string {
  if (value >= 1_000) return `${Math.round(value)}`.replace(/\B(?=(\d{3})+$)/g, "\u2009");
  return value.toPrecision(3);
}
