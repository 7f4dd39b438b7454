import { startServer } from "../../test/support/server-process.ts";
import { atLeast, atMost, type Findings } from "../part.ts";
import {
  checkStatus,
  type LoadJob,
  type ServerProcess,
  startLoad,
  startRoute,
  warmAgain,
  warmUp,
} from "../route/processes.ts";
import type { Route, Variant } from "../route/variants.ts";
import { costBetween, Observer } from "../server-stats.ts";
import { rounds, seconds } from "../settings.ts";
import { medianOf, ratioOf, turns } from "../statistics.ts";
import { number, spreadText, table } from "../text.ts";

const connections = 64;

/** What is measured on the order route of Express. */
interface Cell {
  readonly name: string;
  readonly variant: Variant;
  /** All requests are this user's. */
  readonly user?: string;
  readonly key?: LoadJob["key"];
}

const ping: Cell = { name: "one PING", variant: "ping" };
const lockOnly: Cell = { name: "lock only", variant: "protect" };
const fresh: Cell = { name: "a new order with an id", variant: "once", key: "new" };
const replay: Cell = { name: "a replay", variant: "once", user: "the-same", key: "same" };
const cells: readonly Cell[] = [ping, lockOnly, fresh, replay];

interface Result {
  readonly perSecond: number;
  readonly cpuMicros: number;
  readonly commands: number;
  readonly bytes: number;
}

/** What it costs to recognise a submission, and to repeat its answer. */
export async function once(binary: string): Promise<Findings> {
  const redis = await startServer(binary);
  const observer = new Observer(redis.port);
  const load = await startLoad();
  const servers = new Map<Variant, ServerProcess>();
  for (const variant of ["ping", "protect", "once"] as const) {
    servers.set(variant, await startRoute(routeOf(variant), redis.port));
  }
  const jobOf = ({ key, user, variant }: Cell) => ({
    port: (servers.get(variant) as ServerProcess).hello.port,
    connections,
    ...(user === undefined ? {} : { user }),
    ...(key === undefined ? {} : { key }),
  });
  // One answer that the replays repeat.
  await load.run({ ...jobOf(replay), connections: 1, seconds: 0.05 });
  for (const cell of cells) await warmUp(load, jobOf(cell));
  const results = new Map<Cell, Result[]>(cells.map((cell) => [cell, []]));
  for (let round = 0; round < rounds; round++) {
    for (const cell of turns(cells, round)) {
      const server = servers.get(cell.variant) as ServerProcess;
      const job = { ...jobOf(cell), seconds };
      await warmAgain(load, job);
      await server.run({ kind: "cpu" });
      const before = await observer.stats();
      const { requests, requestsPerSecond } = checkStatus(await load.run(job), 201);
      const cpuMicros = await server.run({ kind: "cpu" });
      const after = await observer.stats();
      const sends = cell.variant === "ping" ? ["ping"] : ["eval"];
      results.get(cell)?.push({
        perSecond: requestsPerSecond,
        cpuMicros: cpuMicros / requests,
        commands: costBetween(before, after, sends).commands / requests,
        bytes: (after.bytesIn - before.bytesIn) / requests,
      });
    }
  }
  observer.close();
  await Promise.all([load.stop(), ...[...servers.values()].map((server) => server.stop())]);
  await redis.stop();

  const all = (cell: Cell, pick: (result: Result) => number) => (results.get(cell) ?? []).map(pick);
  const rate = (cell: Cell) => all(cell, ({ perSecond }) => perSecond);
  const rows = cells.map((cell) => [
    cell.name,
    number(medianOf(rate(cell))),
    spreadText(ratioOf(rate(cell), rate(lockOnly))),
    spreadText(ratioOf(rate(cell), rate(ping))),
    number(medianOf(all(cell, ({ cpuMicros }) => cpuMicros))),
    number(medianOf(all(cell, ({ commands }) => commands)), 2),
    number(medianOf(all(cell, ({ bytes }) => bytes))),
  ]);
  const freshRatio = ratioOf(rate(fresh), rate(lockOnly));
  const replayRatio = ratioOf(rate(replay), rate(ping));
  const head = [
    "Express, 64 connections",
    "requests a second",
    "against the lock alone",
    "against one PING",
    "processor time of the server, µs a request",
    "calls of Redis a request",
    "bytes to Redis a request",
  ];
  return {
    text: `## Once: a submission that is recognised\n\n${table(head, rows)}`,
    targets: [
      atLeast(
        "requests a second of a new order with an id against the lock alone",
        0.95,
        freshRatio.median,
        spreadText(freshRatio),
      ),
      atLeast(
        "requests a second of a replay against one PING (1 / 1.25)",
        0.8,
        replayRatio.median,
        spreadText(replayRatio),
      ),
      atMost(
        "script calls of a replay",
        1,
        Math.round(medianOf(all(replay, ({ commands }) => commands)) * 100) / 100,
        number(medianOf(all(replay, ({ commands }) => commands)), 2),
      ),
    ],
  };
}

function routeOf(variant: Variant): Route {
  return { framework: "Express", variant, sends: [] };
}
