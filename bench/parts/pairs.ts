import { startServer } from "../../test/support/server-process.ts";
import { type Library, libraries, neighbours, plain, submitLock } from "../libraries.ts";
import type { PairResult } from "../pair-jobs.ts";
import { type PairProcess, startPairs, warmUp } from "../pair-process.ts";
import { atLeast, atMost, type Findings, type Target } from "../part.ts";
import { pairsPicture } from "../pictures/pairs.ts";
import { type Cost, costBetween, Onlooker } from "../server-stats.ts";
import { rounds, seconds } from "../settings.ts";
import { medianOf, ratioOf, type Spread, turns } from "../statistics.ts";
import { number, spreadText, table } from "../text.ts";

const callerCounts: readonly number[] = [1, 32, 256];

interface Cell {
  readonly result: PairResult;
  readonly cost: Cost;
}

type Cells = Map<Library, Map<number, Cell[]>>;

/** Pairs a second, how long they take, and what they cost both sides. */
export async function pairs(binary: string): Promise<Findings> {
  const server = await startServer(binary);
  const onlooker = new Onlooker(server.port);
  const processes = new Map<Library, PairProcess>();
  for (const library of libraries) {
    processes.set(library, await startPairs(library, "redis", [server.port]));
  }
  await warmUp(processes.values(), [1, 32, 256], Math.min(0.5, seconds));
  const cells: Cells = new Map(
    libraries.map((library) => [library, new Map(callerCounts.map((callers) => [callers, []]))]),
  );
  for (let round = 0; round < rounds; round++) {
    for (const callers of callerCounts) {
      for (const library of turns(libraries, round)) {
        const process = processes.get(library) as PairProcess;
        const before = await onlooker.stats();
        const result = await process.run({ kind: "pairs", callers, seconds });
        const cost = costBetween(before, await onlooker.stats(), library.sends);
        cellsOf(cells, library, callers).push({ result, cost });
      }
    }
  }
  onlooker.close();
  await Promise.all([...processes.values()].map((process) => process.stop()));
  await server.stop();
  return {
    text: textOf(cells),
    targets: targetsOf(cells),
    pictures: {
      "pairs.svg": pairsPicture(
        libraries.map(({ name }) => name),
        callerCounts.map((callers) => ({
          callers,
          ratios: libraries.map((library) => relative(cells, library, callers)),
        })),
      ),
    },
  };
}

function textOf(cells: Cells): string {
  const of = (library: Library, callers: number, pick: (cell: Cell) => number): number =>
    medianOf(cellsOf(cells, library, callers).map(pick));
  const relatives = table(
    ["pairs a second, plain = 1.00", ...callerCounts.map(callersText)],
    libraries.map((library) => [
      library.name,
      ...callerCounts.map((callers) => spreadText(relative(cells, library, callers))),
    ]),
  );
  const details = callerCounts.map((callers) =>
    table(
      [
        callersText(callers),
        "pairs a second",
        "p50 ms",
        "p99 ms",
        "processor µs a pair",
        "Redis: commands a pair",
        "Redis: µs a pair in commands",
        "Redis: processor µs a pair",
      ],
      libraries.map((library) => [
        library.name,
        number(of(library, callers, ({ result }) => result.pairsPerSecond)),
        number(
          of(library, callers, ({ result }) => result.p50Ms),
          3,
        ),
        number(
          of(library, callers, ({ result }) => result.p99Ms),
          3,
        ),
        number(
          of(library, callers, ({ result }) => result.cpuMicrosPerPair),
          1,
        ),
        number(
          of(library, callers, ({ result, cost }) => cost.commands / result.pairs),
          2,
        ),
        number(
          of(library, callers, ({ result, cost }) => cost.commandMicros / result.pairs),
          2,
        ),
        number(
          of(library, callers, ({ result, cost }) => cost.cpuMicros / result.pairs),
          1,
        ),
      ]),
    ),
  );
  const list = libraries.map(({ name, what }) => `- ${name}: ${what}.`).join("\n");
  return `## Pairs

Acquire and release, one process and one connection, each pair for another user. Every library is asked for one try, with a life of 10 s and a random owner id.

${list}

![Pairs a second](pairs.svg)

${[relatives, ...details].join("\n\n")}`;
}

function targetsOf(cells: Cells): Target[] {
  const targets: Target[] = [];
  for (const [callers, least] of [
    [1, 0.97],
    [32, 1.7],
    [256, 4.0],
  ] as const) {
    const ratio = relative(cells, submitLock, callers);
    targets.push(
      atLeast(
        `pairs a second against plain, ${callersText(callers)}`,
        least,
        ratio.median,
        spreadText(ratio),
      ),
    );
  }
  for (const [callers, least] of [
    [1, 0.97],
    [32, 1],
    [256, 1],
  ] as const) {
    const rates = (library: Library): number[] =>
      cellsOf(cells, library, callers).map(({ result }) => result.pairsPerSecond);
    const best = [...neighbours].sort((a, b) => medianOf(rates(b)) - medianOf(rates(a)))[0];
    if (best === undefined) continue;
    const ratio = ratioOf(rates(submitLock), rates(best));
    targets.push(
      atLeast(
        `against the best neighbour (${best.name}), ${callersText(callers)}`,
        least,
        ratio.median,
        spreadText(ratio),
      ),
    );
  }
  const p99 = (library: Library): number[] =>
    cellsOf(cells, library, 256).map(({ result }) => result.p99Ms);
  const ratio = ratioOf(p99(submitLock), p99(plain));
  targets.push(atMost("p99 against plain, 256 callers", 0.5, ratio.median, spreadText(ratio)));
  return targets;
}

function relative(cells: Cells, library: Library, callers: number): Spread {
  const rates = (of: Library): number[] =>
    cellsOf(cells, of, callers).map(({ result }) => result.pairsPerSecond);
  return ratioOf(rates(library), rates(plain));
}

function cellsOf(cells: Cells, library: Library, callers: number): Cell[] {
  return cells.get(library)?.get(callers) ?? [];
}

function callersText(callers: number): string {
  return callers === 1 ? "1 caller" : `${callers} callers`;
}
