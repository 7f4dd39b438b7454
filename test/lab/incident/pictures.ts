import { bar, curve, line, svg, text } from "../../support/svg.ts";

/** One line of the picture: how many users were blocked, at each tenth of a second. */
interface Line {
  readonly name: string;
  readonly blocked: readonly number[];
}

const width = 760;
const height = 360;
const [left, right, top, bottom] = [56, 16, 84, 48];
const perSecond = 10;

const colours = [
  ["#cf222e", "#f85149"],
  ["#bf8700", "#d29922"],
  ["#1a7f37", "#3fb950"],
  ["#0969da", "#4493f8"],
] as const;

const style = `.line { fill: none; stroke-width: 2.5; stroke-linejoin: round; }
.stroke-1 { stroke-dasharray: 7 4; }
.stroke-3 { stroke-dasharray: 1 4; }
`;

/**
 * A picture of blocked users over the run, that can be read on a light page and on a dark one.
 *
 * @param closesAt the second of the last new order; later ones are those of blocked users.
 */
export function blockedPicture(lines: readonly Line[], title: string, closesAt: number): string {
  const seconds = Math.ceil(Math.max(...lines.map(({ blocked }) => blocked.length)) / perSecond);
  const most = Math.max(1, ...lines.flatMap(({ blocked }) => blocked));
  const step = tickStep(most);
  const highest = Math.ceil(most / step) * step;
  const x = (second: number): number => left + (second / seconds) * (width - left - right);
  const y = (users: number): number =>
    height - bottom - (users / highest) * (height - top - bottom);
  const quiet = (at: [x: number, y: number], content: string, anchor: "start" | "middle" | "end") =>
    text(...at, content, { classes: "quiet", anchor });

  const rows = ticks(highest, step).flatMap((users) => [
    line("grid", [left, y(users)], [width - right, y(users)]),
    quiet([left - 8, y(users) + 4], `${users}`, "end"),
  ]);
  const columns = ticks(seconds, 10).map((second) =>
    quiet([x(second), height - bottom + 18], `${second}`, "middle"),
  );
  const curves = lines.map(({ blocked }, at) =>
    curve(
      `line stroke-${at}`,
      blocked.map((users, index) => [x(index / perSecond), y(users)] as const),
    ),
  );
  const legend = lines.flatMap(({ name }, at) => {
    const from = left + (at % 2) * 340;
    const height = 44 + Math.floor(at / 2) * 20;
    const mark = line(`line stroke-${at}`, [from, height], [from + 22, height]);
    return [mark, text(from + 30, height + 4, name)];
  });
  const middle = (top + height - bottom) / 2;
  const body = [
    ...legend,
    ...rows,
    line("one", [x(closesAt), top], [x(closesAt), height - bottom]),
    quiet([x(closesAt) + 6, top + 14], "no new customers", "start"),
    ...columns,
    quiet([(left + width - right) / 2, height - 8], "seconds since the shop opened", "middle"),
    `<g transform="rotate(-90 14 ${middle})">${quiet([14, middle], "users who cannot order", "middle")}</g>`,
    ...curves,
  ];
  return svg({ width, height, title, colours, left, style }, body);
}

/** About five ticks, at round numbers. */
function tickStep(most: number): number {
  const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000];
  return steps.find((step) => most / step <= 5) ?? 2_000;
}

function ticks(end: number, step: number): number[] {
  return Array.from({ length: Math.floor(end / step) + 1 }, (_, index) => index * step);
}

/** One lock: how many orders were placed that nobody had wished for. */
interface Bar {
  readonly name: string;
  readonly atOnce: number;
  readonly later: number;
}

const series = ["at the same time", "a moment later"] as const;

/** A bar for each lock, the orders at the same time first. */
export function surplusPicture(bars: readonly Bar[], title: string): string {
  const [left, right, row, top] = [290, 60, 24, 66];
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
  return svg({ width, height: top + bars.length * row + 8, title, colours: colours.slice(0, 2) }, [
    ...legend,
    ...rows,
  ]);
}
