import { startMasters } from "../../test/support/masters.ts";
import { startServer } from "../../test/support/server-process.ts";
import { submitLock } from "../libraries.ts";
import { type PairProcess, startPairs } from "../pair-process.ts";
import { type Findings, rounds, seconds } from "../part.ts";
import { sampledEveryMicros } from "../process/serve.ts";
import {
  checkStatus,
  type LoadJob,
  type LoadProcess,
  nameOf,
  type Route,
  routes,
  type ServerProcess,
  startLoad,
  startRoute,
} from "../route/processes.ts";
import { medianOf, number, spreadOf, spreadText, table, turns } from "../statistics.ts";

const masters = 3;
const connections = 64;

/** What is profiled, in a process of its own. */
interface Cell {
  readonly name: string;
  /** Resolves with the processor time of an order, in microseconds. */
  run(): Promise<number>;
  profile(): Promise<unknown>;
  ownShare(): Promise<number>;
  readonly results: { readonly micros: number; readonly own: number }[];
}

/** The processor time of an order in the files of this package, and in no others. */
export async function profile(binary: string): Promise<Findings> {
  const redis = await startServer(binary);
  const nodes = await startMasters(binary, masters, ["--cluster-announce-ip", "127.0.0.1"]);
  const ports = nodes.map(({ port }) => port);
  const load = await startLoad();
  const single = await startPairs(submitLock, "redis", [redis.port]);
  const clustered = await startPairs(submitLock, "cluster", ports);
  const cells = [
    ...pairCells("one server", single),
    ...pairCells(`a Cluster of ${masters}`, clustered),
  ];
  const servers: ServerProcess[] = [];
  const open = async (route: Omit<Route, "sends">) => {
    const server = await startRoute({ ...route, sends: [] }, redis.port);
    servers.push(server);
    return server;
  };
  for (const route of routes.filter(({ variant }) => ["guard", "protect"].includes(variant))) {
    cells.push(routeCell(nameOf(route), await open(route), load));
  }
  for (const framework of ["Express", "Koa"] as const) {
    const server = await open({ framework, variant: "once" });
    cells.push(routeCell(`${framework}, a new order with an id`, server, load, { key: "new" }));
    const same = { key: "same", user: "the-same" } as const;
    cells.push(routeCell(`${framework}, a replay`, server, load, same));
  }
  // V8 knows whose line an inlined one is if it compiles under a profile: the first run is under one.
  for (const cell of cells) {
    await cell.profile();
    for (let ran = 0; ran < 1; ran += seconds) await cell.run();
    await cell.ownShare();
  }
  for (let round = 0; round < rounds; round++) {
    for (const { run, profile, ownShare, results } of turns(cells, round)) {
      await profile();
      await run();
      const share = await ownShare();
      const micros = await run();
      results.push({ micros, own: share * micros });
    }
  }
  await Promise.all([load, single, clustered, ...servers].map((process) => process.stop()));
  await Promise.all([redis, ...nodes].map((server) => server.stop()));
  const rows = cells.map(({ name, results }) => [
    name,
    number(medianOf(results.map(({ micros }) => micros)), 1),
    spreadText(spreadOf(results.map(({ own }) => own)), 1),
    `${number(100 * medianOf(results.map(({ own, micros }) => own / micros)))} %`,
  ]);
  const head = ["submit-lock", "processor µs", "in its own files, µs", "share"];
  return {
    text: `## In its own files

The processor time of a pair, or of a request over ${connections} connections, that the process takes in this package's own files: not in ioredis, the framework, \`uuid\`, Node or the garbage collector. V8's profiler looks every ${sampledEveryMicros} µs which file is running, in a run of its own that slows no other; the share of its samples, idle ones left out, is multiplied by the processor time of a run without it, right after.

${table(head, rows)}`,
    targets: [],
  };
}

function pairCells(on: string, process: PairProcess): Cell[] {
  return [1, 32, 256].map((callers) => ({
    name: `pairs on ${on}, ${callers === 1 ? "1 caller" : `${callers} callers`}`,
    run: async () => (await process.run({ kind: "pairs", callers, seconds })).cpuMicrosPerPair,
    profile: () => process.run({ kind: "profile" }),
    ownShare: async () => (await process.run({ kind: "own-share" })).ownShare,
    results: [],
  }));
}

function routeCell(
  name: string,
  server: ServerProcess,
  load: LoadProcess,
  more: Pick<LoadJob, "key" | "user"> = {},
): Cell {
  const job = { port: server.hello.port, connections, seconds, ...more };
  return {
    name,
    async run() {
      // The first is over before its replays are asked for.
      await load.run({ ...job, connections: 1, seconds: 0.01 });
      await server.run({ kind: "cpu" });
      const { requests } = checkStatus(await load.run(job), 201);
      return (await server.run({ kind: "cpu" })) / requests;
    },
    profile: () => server.run({ kind: "profile" }),
    ownShare: () => server.run({ kind: "own-share" }),
    results: [],
  };
}
