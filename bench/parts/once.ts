import { installPeers } from "../../test/lab/install-peers.ts";
import { measureSpeed, type Speed } from "../../test/lab/once/speed.ts";
import { startServer } from "../../test/support/server-process.ts";
import { scriptCalls } from "../libraries.ts";
import { atLeast, atMost, type Findings, rounds, seconds, type Target } from "../part.ts";
import {
  checkStatus,
  type LoadJob,
  type Route,
  type ServerProcess,
  startLoad,
  startRoute,
  type Variant,
  warmAgain,
  warmUp,
} from "../route/processes.ts";
import { costBetween, Observer } from "../server-stats.ts";
import { medianOf, number, pairedRatio, quartilesText, table, turns } from "../statistics.ts";

const connections = 64;
/** A rate at which no request waits for another. */
const perSecond = 500;

/** What is measured on an order route. */
interface Cell {
  readonly name: string;
  readonly framework: Route["framework"];
  readonly variant: Variant;
  /** All requests are this user's. */
  readonly user?: string;
  readonly key?: LoadJob["key"];
}

const express = { framework: "Express" } as const;
const ping: Cell = { ...express, name: "one PING", variant: "ping" };
const lockOnly: Cell = { ...express, name: "lock only", variant: "protect" };
const fresh: Cell = { ...express, name: "a new order with an id", variant: "once", key: "new" };
const replay: Cell = {
  ...express,
  name: "a replay",
  variant: "once",
  user: "the-same",
  key: "same",
};
const onKoa = { framework: "Koa" } as const;
const lockOnKoa: Cell = { ...onKoa, name: "lock only, Koa", variant: "guard" };
const freshOnKoa: Cell = {
  ...onKoa,
  name: "a new order with an id, Koa",
  variant: "once",
  key: "new",
};
const cells: readonly Cell[] = [ping, lockOnly, fresh, replay, lockOnKoa, freshOnKoa];
/** What a cell is compared with. */
const lockOf = ({ framework }: Cell): Cell => (framework === "Koa" ? lockOnKoa : lockOnly);

interface Result {
  readonly perSecond: number;
  readonly cpuMicros: number;
  readonly commands: number;
  readonly bytes: number;
  /** At `perSecond`. */
  readonly p50Ms: number;
}

/** What it costs to recognise a submission, and to repeat its answer. */
export async function once(binary: string): Promise<Findings> {
  const results = await measure(binary);
  const all = (cell: Cell, pick: (result: Result) => number) => (results.get(cell) ?? []).map(pick);
  const rate = (cell: Cell) => all(cell, (result) => result.perSecond);
  const cpu = (cell: Cell) => all(cell, ({ cpuMicros }) => cpuMicros);
  const p50 = (cell: Cell) => all(cell, ({ p50Ms }) => p50Ms);
  const rows = cells.map((cell) => [
    cell.name,
    number(medianOf(rate(cell))),
    quartilesText(pairedRatio(rate(cell), rate(lockOf(cell)))),
    quartilesText(pairedRatio(rate(cell), rate(ping))),
    number(medianOf(cpu(cell))),
    quartilesText(pairedRatio(cpu(cell), cpu(lockOf(cell)))),
    number(medianOf(p50(cell)), 2),
    quartilesText(pairedRatio(p50(cell), p50(lockOf(cell)))),
    number(medianOf(all(cell, ({ commands }) => commands)), 2),
    number(medianOf(all(cell, ({ bytes }) => bytes))),
  ]);
  const head = [
    `${connections} connections; Express, if nothing else is said`,
    "requests a second",
    "against the lock alone",
    "against one PING",
    "processor time of the server, µs a request",
    "against the lock alone",
    `p50 at ${perSecond} a second, ms`,
    "against the lock alone",
    "calls of Redis a request",
    "bytes to Redis a request",
  ];
  const neighbours = await onceNeighbours(binary);
  return {
    text: `## Once: a submission that is recognised

Ratios are taken within a round, in which all take turns: the median and the quartiles of ${rounds} rounds of ${seconds} s.

${table(head, rows)}

${neighbours.text}`,
    targets: [
      ...targets(
        pairedRatio(cpu(fresh), cpu(lockOnly)),
        pairedRatio(cpu(freshOnKoa), cpu(lockOnKoa)),
        pairedRatio(rate(replay), rate(ping)),
        (cell) => medianOf(all(cell, ({ commands }) => commands)),
      ),
      ...neighbours.targets,
    ],
  };
}

function targets(
  onExpress: ReturnType<typeof pairedRatio>,
  onKoaToo: ReturnType<typeof pairedRatio>,
  replayRatio: ReturnType<typeof pairedRatio>,
  commands: (cell: Cell) => number,
): Target[] {
  const ofLock = (framework: string, ratio: typeof onExpress) =>
    atMost(
      `processor time of a new order with an id against the lock alone, ${framework}`,
      1.15,
      ratio.median,
      quartilesText(ratio),
    );
  const calls = (cell: Cell, what: string, most: number) =>
    atMost(what, most, Math.round(commands(cell) * 100) / 100, number(commands(cell), 2));
  return [
    ofLock("Express", onExpress),
    ofLock("Koa", onKoaToo),
    atLeast(
      "requests a second of a replay against one PING (1 / 1.25)",
      0.8,
      replayRatio.median,
      quartilesText(replayRatio),
    ),
    calls(fresh, "script calls of a new order with an id", 2),
    calls(replay, "script calls of a replay", 1),
  ];
}

async function measure(binary: string): Promise<Map<Cell, Result[]>> {
  const redis = await startServer(binary);
  const observer = new Observer(redis.port);
  const load = await startLoad();
  const servers = new Map<string, ServerProcess>();
  const nameOf = ({ framework, variant }: Cell) => `${framework}, ${variant}`;
  for (const cell of cells) {
    if (servers.has(nameOf(cell))) continue;
    const { framework, variant } = cell;
    servers.set(nameOf(cell), await startRoute({ framework, variant, sends: [] }, redis.port));
  }
  const serverOf = (cell: Cell) => servers.get(nameOf(cell)) as ServerProcess;
  const jobOf = (cell: Cell) => ({
    port: serverOf(cell).hello.port,
    connections,
    ...(cell.user === undefined ? {} : { user: cell.user }),
    ...(cell.key === undefined ? {} : { key: cell.key }),
  });
  // One answer that the replays repeat.
  await load.run({ ...jobOf(replay), connections: 1, seconds: 0.05 });
  for (const cell of cells) await warmUp(load, jobOf(cell));
  const results = new Map<Cell, Result[]>(cells.map((cell) => [cell, []]));
  for (let round = 0; round < rounds; round++) {
    for (const cell of turns(cells, round)) {
      const server = serverOf(cell);
      const job = { ...jobOf(cell), seconds };
      await warmAgain(load, job);
      await server.run({ kind: "cpu" });
      const before = await observer.stats();
      const { requests, requestsPerSecond } = checkStatus(await load.run(job), 201);
      const cpuMicros = await server.run({ kind: "cpu" });
      const after = await observer.stats();
      const { p50Ms } = checkStatus(await load.run({ ...job, perSecond }), 201);
      const sends = cell.variant === "ping" ? ["ping"] : scriptCalls;
      results.get(cell)?.push({
        perSecond: requestsPerSecond,
        cpuMicros: cpuMicros / requests,
        commands: costBetween(before, after, sends).commands / requests,
        bytes: (after.bytesIn - before.bytesIn) / requests,
        p50Ms,
      });
    }
  }
  observer.close();
  await Promise.all([load.stop(), ...[...servers.values()].map((server) => server.stop())]);
  await redis.stop();
  return results;
}

/** This package beside the idempotency libraries that install on plain Express. */
async function onceNeighbours(binary: string): Promise<Findings> {
  installPeers("once/peers");
  const speeds = await measureSpeed({ binary, rounds, seconds });
  const [bare, ours, ...neighbours] = speeds;
  if (bare === undefined || ours === undefined) throw new Error("nothing was measured");
  const cells = ({ rates }: Speed, kind: "fresh" | "replay") => [
    number(medianOf(rates[kind])),
    quartilesText(pairedRatio(rates[kind], bare.rates[kind])),
  ];
  const rows = speeds.map((row) => [row.name, ...cells(row, "fresh"), ...cells(row, "replay")]);
  const head = [
    "Express, 32 connections",
    "new orders with a key a second",
    "against no protection",
    "replays a second",
    "against no protection",
  ];
  return {
    text: `The shops of [the neighbours' table](../docs/evidence/once-neighbours.md), each in a process of its own. The handler only answers; where nothing protects the route, a replay is another order.

${table(head, rows)}`,
    targets: neighbours.flatMap((neighbour) =>
      (["fresh", "replay"] as const).map((kind) => {
        const ratio = pairedRatio(ours.rates[kind], neighbour.rates[kind]);
        const what = kind === "fresh" ? "new orders with a key" : "replays";
        return atLeast(
          `${what} a second against ${neighbour.name}`,
          1,
          ratio.median,
          quartilesText(ratio),
        );
      }),
    ),
  };
}
