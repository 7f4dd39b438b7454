import { startServer } from "../../test/support/server-process.ts";
import { bar, line, svg, text } from "../../test/support/svg.ts";
import {
  type Library,
  libraries,
  neighbours,
  plain,
  scriptsAlone,
  submitLock,
} from "../libraries.ts";
import { type PairProcess, startPairs, warmUp } from "../pair-process.ts";
import type { PairResult } from "../pair-worker.ts";
import { atLeast, atMost, type Findings, rounds, seconds, type Target } from "../part.ts";
import { type Cost, costBetween, Observer } from "../server-stats.ts";
import { medianOf, number, ratioOf, type Spread, spreadText, table, turns } from "../statistics.ts";

const callerCounts: readonly number[] = [1, 32, 256];
const measured: readonly Library[] = [...libraries, scriptsAlone];

interface Cell {
  readonly result: PairResult;
  readonly cost: Cost;
}

type Cells = Map<Library, Map<number, Cell[]>>;
type Pick = (cell: Cell) => number;

const bytesOf: Pick = ({ result, cost }) => cost.bytesIn / result.pairs;

/** Pairs a second, how long they take, and what they cost both sides. */
export async function pairs(binary: string): Promise<Findings> {
  const server = await startServer(binary);
  const observer = new Observer(server.port);
  const processes = new Map<Library, PairProcess>();
  for (const library of measured) {
    processes.set(library, await startPairs(library, "redis", [server.port]));
  }
  await warmUp(processes.values(), [1, 32, 256], Math.min(0.5, seconds));
  const cells: Cells = new Map(
    measured.map((library) => [library, new Map(callerCounts.map((callers) => [callers, []]))]),
  );
  for (let round = 0; round < rounds; round++) {
    for (const callers of callerCounts) {
      for (const library of turns(measured, round)) {
        const process = processes.get(library) as PairProcess;
        const before = await observer.stats();
        const result = await process.run({ kind: "pairs", callers, seconds });
        const cost = costBetween(before, await observer.stats(), library.sends);
        cellsOf(cells, library, callers).push({ result, cost });
      }
    }
  }
  observer.close();
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
  const of = (library: Library, callers: number, pick: Pick): number =>
    medianOf(cellsOf(cells, library, callers).map(pick));
  const relatives = table(
    ["pairs a second, plain = 1.00", ...callerCounts.map(callersText)],
    measured.map((library) => [
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
        "bytes to Redis a pair",
      ],
      measured.map((library) => [
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
        number(of(library, callers, bytesOf)),
      ]),
    ),
  );
  const list = measured.map(({ name, what }) => `- ${name}: ${what}.`).join("\n");
  return `## Pairs

Acquire and release, one process and one connection, each pair for another user. Every library is asked for one try, with a life of 10 s and a random owner id.

${list}

![Pairs a second](pairs.svg)

${[relatives, ...details].join("\n\n")}`;
}

function targetsOf(cells: Cells): Target[] {
  const rates = (library: Library, callers: number): number[] =>
    cellsOf(cells, library, callers).map(({ result }) => result.pairsPerSecond);
  const against = (measure: string, least: number, callers: number, other: Library): Target => {
    const ratio = ratioOf(rates(submitLock, callers), rates(other, callers));
    const target = atLeast(
      `${measure}, ${callersText(callers)}`,
      least,
      ratio.median,
      spreadText(ratio),
    );
    if (callers > 1 || other === scriptsAlone) return target;
    // One caller gathers nothing, and so is at best as fast as what it sends.
    const alone = ratioOf(rates(scriptsAlone, callers), rates(other, callers));
    return { ...target, limit: `${scriptsAlone.name}: ${spreadText(alone)}` };
  };
  const best = (callers: number): Library =>
    [...neighbours].sort(
      (a, b) => medianOf(rates(b, callers)) - medianOf(rates(a, callers)),
    )[0] as Library;
  const toBest = (least: number, callers: number): Target => {
    const neighbour = best(callers);
    return against(`against the best neighbour (${neighbour.name})`, least, callers, neighbour);
  };
  const toPlain = (measure: string, most: number, callers: number, pick: Pick): Target => {
    const of = (library: Library) => cellsOf(cells, library, callers).map(pick);
    const ratio = ratioOf(of(submitLock), of(plain));
    const name = `${measure} against plain, ${callersText(callers)}`;
    return atMost(name, most, ratio.median, spreadText(ratio));
  };
  const ofScripts = ratioOf(
    cellsOf(cells, submitLock, 1).map(({ result }) => result.cpuMicrosPerPair),
    cellsOf(cells, scriptsAlone, 1).map(({ result }) => result.cpuMicrosPerPair),
  );
  const scripts = "processor time a pair against its scripts alone, 1 caller";
  const bytes = medianOf(cellsOf(cells, submitLock, 1).map(bytesOf));
  return [
    against("pairs a second against its scripts alone", 0.95, 1, scriptsAlone),
    against("pairs a second against plain", 0.9, 1, plain),
    against("pairs a second against plain", 2.2, 32, plain),
    against("pairs a second against plain", 4.5, 256, plain),
    toBest(0.97, 1),
    toBest(1, 32),
    toBest(1, 256),
    toPlain("processor time a pair", 1.2, 1, ({ result }) => result.cpuMicrosPerPair),
    atMost(scripts, 1.1, ofScripts.median, spreadText(ofScripts)),
    atMost("bytes sent a lone pair", 500, bytes, `${number(bytes)} B`, " B"),
    toPlain("p99", 0.4, 256, ({ result }) => result.p99Ms),
  ];
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

interface Group {
  readonly callers: number;
  /** In the order of the names. */
  readonly ratios: readonly Spread[];
}

const width = 760;
const left = 170;
const right = 110;
const row = 17;
const gap = 34;
const top = 44;

const ours = ["#1a7f37", "#3fb950"] as const;
const plainColour = ["#6e7781", "#8b949e"] as const;
const others = ["#9a6fb8", "#a371f7"] as const;

/** Horizontal bars, a group for each number of callers, with plain ioredis as the mark. */
function pairsPicture(names: readonly string[], groups: readonly Group[]): string {
  const most = Math.max(1, ...groups.flatMap(({ ratios }) => ratios.map(({ most }) => most)));
  const x = (ratio: number): number => left + (ratio / most) * (width - left - right);
  const groupHeight = names.length * row + gap;
  const height = top + groups.length * groupHeight;
  const body = groups.flatMap(({ callers, ratios }, at) => {
    const y = top + at * groupHeight;
    const end = y + 12 + names.length * row;
    return [
      text(16, y + 4, callers === 1 ? "1 caller" : `${callers} callers`, { classes: "head" }),
      ...names.flatMap((name, index) =>
        rowOf(name, ratios[index] as Spread, y + 12 + index * row, x),
      ),
      line("one", [x(1), y + 8], [x(1), end]),
    ];
  });
  const title = "Acquire and release, pairs a second against plain ioredis (= 1)";
  return svg({ width, height, title, colours: [plainColour, ours, others] }, body);
}

function rowOf(name: string, ratio: Spread, y: number, x: (ratio: number) => number): string[] {
  const middle = y + row / 2;
  const isOurs = name === "submit-lock";
  const series = isOurs ? 1 : name.startsWith("plain") ? 0 : 2;
  const classes = isOurs ? "ours" : "";
  return [
    text(left - 8, middle + 4, name, { classes, anchor: "end" }),
    bar(left, y + 2, x(ratio.median) - left, row - 4, series),
    // From the worst round to the best one.
    line("range", [x(ratio.least), middle], [x(ratio.most), middle]),
    text(x(ratio.most) + 8, middle + 4, ratio.median.toFixed(2), { classes }),
  ];
}
