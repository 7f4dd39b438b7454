import { bar, svg, text } from "../../support/svg.ts";

/** One lock: how many orders were placed that nobody had wished for. */
export interface Bar {
  readonly name: string;
  readonly atOnce: number;
  readonly later: number;
}

const width = 760;
const left = 290;
const right = 60;
const row = 24;
const top = 66;

const colours = [
  ["#cf222e", "#f85149"],
  ["#bf8700", "#d29922"],
] as const;
const series = ["at the same time", "a moment later"] as const;

/** A bar for each lock, the orders at the same time first. */
export function surplusPicture(bars: readonly Bar[], title: string): string {
  const most = Math.max(1, ...bars.map(({ atOnce, later }) => atOnce + later));
  const length = (orders: number): number => (orders / most) * (width - left - right);
  const legend = series.flatMap((name, at) => {
    const from = left + at * 160;
    return [bar(from, 36, 14, 12, at), text(from + 20, 46, name, { classes: "quiet" })];
  });
  const rows = bars.flatMap(({ name, atOnce, later }, index) => {
    const y = top + index * row;
    const classes = name.startsWith("submit-lock") ? "ours" : "";
    return [
      text(left - 8, y + 13, name, { classes, anchor: "end" }),
      bar(left, y + 2, length(atOnce), row - 8, 0),
      bar(left + length(atOnce), y + 2, length(later), row - 8, 1),
      text(left + length(atOnce + later) + 8, y + 13, `${atOnce + later}`, { classes }),
    ];
  });
  return svg({ width, height: top + bars.length * row + 8, title, colours }, [...legend, ...rows]);
}
