import { startServer } from "../../test/support/server-process.ts";
import { bar, line, svg, text } from "../../test/support/svg.ts";
import { atLeast, atMost, type Findings, rounds, seconds, type Target } from "../part.ts";
import {
  checkStatus,
  type LoadResult,
  nameOf,
  type Route,
  routes,
  type ServerProcess,
  startLoad,
  startRoute,
  type Variant,
  variantNames,
  warmAgain,
  warmUp,
} from "../route/processes.ts";
import { costBetween, Observer } from "../server-stats.ts";
import {
  medianOf,
  number,
  ratioOf,
  type Spread,
  spreadOf,
  spreadText,
  table,
  turns,
} from "../statistics.ts";

const connections = 64;

/** Far from what a server can do, so that a latency is that of the way and not that of a queue. */
const perSecond = 500;

interface Cell {
  readonly full: LoadResult;
  readonly paced: LoadResult;
  readonly commandsPerRequest: number;
  readonly cpuMicrosPerRequest: number;
}

type Cells = ReadonlyMap<Route, Cell[]>;

/** One order route: how many requests a second, and what the lock adds to each. */
export async function route(binary: string): Promise<Findings> {
  const redis = await startServer(binary);
  const observer = new Observer(redis.port);
  const load = await startLoad();
  const servers = new Map<Route, ServerProcess>();
  for (const each of routes) servers.set(each, await startRoute(each, redis.port));

  for (const { hello } of servers.values()) await warmUp(load, { port: hello.port, connections });
  const cells = new Map<Route, Cell[]>(routes.map((each) => [each, []]));
  for (let round = 0; round < rounds; round++) {
    for (const each of turns(routes, round)) {
      const server = servers.get(each) as ServerProcess;
      const job = { port: server.hello.port, connections, seconds };
      await warmAgain(load, job);
      await server.run({ kind: "cpu" });
      const before = await observer.stats();
      const full = checkStatus(await load.run(job), 201);
      const cpuMicros = await server.run({ kind: "cpu" });
      const { commands } = costBetween(before, await observer.stats(), each.sends);
      const paced = checkStatus(await load.run({ ...job, perSecond }), 201);
      cells.get(each)?.push({
        full,
        paced,
        commandsPerRequest: commands / full.requests,
        cpuMicrosPerRequest: cpuMicros / full.requests,
      });
    }
  }
  observer.close();
  await Promise.all([load.stop(), ...[...servers.values()].map((server) => server.stop())]);
  await redis.stop();
  return {
    text: textOf(cells),
    targets: targetsOf(cells),
    pictures: {
      "route.svg": routePicture(
        routes.map((each) => ({
          route: each,
          throughput: ratioOf(rates(cells, each), rates(cells, peerOf(each, "bare"))),
          addedMs: added(cells, each),
        })),
      ),
    },
  };
}

function textOf(cells: Cells): string {
  const rows = routes.map((each) => {
    const of = (pick: (cell: Cell) => number): number =>
      medianOf((cells.get(each) ?? []).map(pick));
    const bare = peerOf(each, "bare");
    return [
      nameOf(each),
      number(of(({ full }) => full.requestsPerSecond)),
      spreadText(ratioOf(rates(cells, each), rates(cells, bare))),
      number(
        of(({ full }) => full.p50Ms),
        2,
      ),
      number(
        of(({ full }) => full.p99Ms),
        2,
      ),
      number(of(({ cpuMicrosPerRequest }) => cpuMicrosPerRequest)),
      number(
        of(({ commandsPerRequest }) => commandsPerRequest),
        2,
      ),
      number(
        of(({ paced }) => paced.p50Ms),
        3,
      ),
      number(
        of(({ paced }) => paced.p99Ms),
        2,
      ),
      each === bare ? "" : spreadText(added(cells, each), 3),
    ];
  });
  const head = [
    "route",
    "requests a second",
    "bare = 1.00",
    "p50 ms",
    "p99 ms",
    "processor µs a request",
    "commands a request",
    `p50 ms at ${perSecond}/s`,
    `p99 ms at ${perSecond}/s`,
    "added p50 ms",
  ];
  return `## The order route

\`POST /orders\` with a handler that answers 201 at once, in a process of its own; ${connections} connections from another process, each request of another user. First as fast as it goes, where a p50 is that of the queue; then ${perSecond} requests a second at random times over the same connections, which is what "added p50" goes by. "One PING" awaits a \`PING\` and does nothing else: one Redis round trip, as a request sees it. The hand-written lock is \`SET NX PX\` before and a compare-and-delete on \`finish\` ([route/server.ts](route/server.ts)); "its scripts alone" is the same with the two scripts of submit-lock, one by one and without the lock around them.

![The order route](route.svg)

${table(head, rows)}`;
}

function targetsOf(cells: Cells): Target[] {
  return routes.flatMap((each): Target[] => {
    if (each.variant !== "guard" && each.variant !== "protect") return [];
    const ratio = ratioOf(rates(cells, each), rates(cells, peerOf(each, "hand-written")));
    const roundTripMs = added(cells, peerOf(each, "ping")).median;
    const addedMs = added(cells, each);
    const alone = peerOf(each, "scripts");
    const aloneRatio = ratioOf(rates(cells, alone), rates(cells, peerOf(each, "hand-written")));
    const limit = `${variantNames.scripts}: `;
    const ping = peerOf(each, "ping");
    const toPing = ratioOf(rates(cells, each), rates(cells, ping));
    const theirs = times(cells, peerOf(each, "hand-written"));
    const toTheirs = ratioOf(times(cells, each), theirs);
    return [
      {
        ...atLeast(
          `requests a second against one PING: ${nameOf(each)}`,
          0.95,
          toPing.median,
          spreadText(toPing),
        ),
        limit: limit + spreadText(ratioOf(rates(cells, alone), rates(cells, ping))),
      },
      {
        ...atLeast(
          `requests a second against hand-written: ${nameOf(each)}`,
          1.05,
          ratio.median,
          spreadText(ratio),
        ),
        limit: limit + spreadText(aloneRatio),
      },
      atMost(
        `processor time against hand-written: ${nameOf(each)}`,
        each.framework === "Koa" ? 0.85 : 0.8,
        toTheirs.median,
        spreadText(toTheirs),
      ),
      {
        ...atMost(
          `added p50: ${nameOf(each)} (one PING + 0.1)`,
          Number((roundTripMs + 0.1).toFixed(3)),
          addedMs.median,
          `${spreadText(addedMs, 3)} ms`,
          " ms",
        ),
        limit: `${limit + spreadText(added(cells, alone), 3)} ms`,
      },
    ];
  });
}

function rates(cells: Cells, each: Route): number[] {
  return (cells.get(each) ?? []).map(({ full }) => full.requestsPerSecond);
}

function times(cells: Cells, each: Route): number[] {
  return (cells.get(each) ?? []).map(({ cpuMicrosPerRequest }) => cpuMicrosPerRequest);
}

/** How much later half of the answers come than on the bare route in the same round. */
function added(cells: Cells, each: Route): Spread {
  const bare = cells.get(peerOf(each, "bare")) ?? [];
  return spreadOf(
    (cells.get(each) ?? []).map(
      ({ paced }, round) => paced.p50Ms - (bare[round]?.paced.p50Ms ?? Number.NaN),
    ),
  );
}

function peerOf({ framework }: Route, variant: Variant): Route {
  return routes.find((each) => each.framework === framework && each.variant === variant) as Route;
}

interface Row {
  readonly route: Route;
  /** Requests a second, bare = 1. */
  readonly throughput: Spread;
  readonly addedMs: Spread;
}

const width = 760;
const left = 150;
const middle = 430;
const row = 19;
const gap = 30;
const top = 66;

const series: Record<Route["variant"], number> = {
  bare: 0,
  ping: 1,
  scripts: 1,
  "hand-written": 2,
  guard: 3,
  protect: 3,
  once: 3,
  measured: 3,
  traced: 3,
};

const colours = [
  ["#6e7781", "#8b949e"],
  ["#afb8c1", "#6e7681"],
  ["#bf8700", "#d29922"],
  ["#1a7f37", "#3fb950"],
] as const;

/** Two columns of bars: how much of the bare route's throughput is left, and what p50 it costs. */
function routePicture(rows: readonly Row[]): string {
  const frameworks = [...new Set(rows.map(({ route }) => route.framework))];
  const mostAdded = Math.max(...rows.map(({ addedMs }) => addedMs.most), 0.01);
  const most = Math.max(1, ...rows.map(({ throughput }) => throughput.most));
  const share = (value: number): number => left + (value / most) * 200;
  const added = (value: number): number => middle + (Math.max(0, value) / mostAdded) * 240;
  let y = top;
  const body = [
    text(left, 44, "requests a second, bare = 1", { classes: "quiet" }),
    text(middle, 44, "added p50 latency, ms", { classes: "quiet" }),
  ];
  for (const framework of frameworks) {
    body.push(text(16, y, framework, { classes: "head" }));
    y += 8;
    for (const { route, throughput, addedMs } of rows) {
      if (route.framework !== framework) continue;
      body.push(...rowOf(route, y));
      body.push(...barOf(route, throughput, y, left, share, 2));
      if (route.variant !== "bare") body.push(...barOf(route, addedMs, y, middle, added, 3));
      y += row;
    }
    y += gap;
  }
  const title = "One order route with 64 connections";
  return svg({ width, height: y - gap + 14, title, colours }, body);
}

function rowOf({ variant }: Route, y: number): string[] {
  const classes = series[variant] === 3 ? "ours" : "";
  return [text(left - 8, y + row / 2 + 4, variantNames[variant], { classes, anchor: "end" })];
}

function barOf(
  { variant }: Route,
  value: Spread,
  y: number,
  from: number,
  x: (value: number) => number,
  digits: number,
): string[] {
  const at = y + row / 2;
  const classes = series[variant] === 3 ? "ours" : "";
  return [
    bar(from, y + 2, x(value.median) - from, row - 4, series[variant]),
    line("range", [x(value.least), at], [x(value.most), at]),
    text(x(Math.max(value.most, 0)) + 6, at + 4, value.median.toFixed(digits), { classes }),
  ];
}
