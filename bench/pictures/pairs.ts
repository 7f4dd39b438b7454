import { bar, line, svg, text } from "../../test/support/svg.ts";
import type { Spread } from "../statistics.ts";

export interface Group {
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
export function pairsPicture(names: readonly string[], groups: readonly Group[]): string {
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
