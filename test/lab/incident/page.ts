import { writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { serverBinary, serverVersion } from "../../support/server-binary.ts";
import { startServer } from "../../support/server-process.ts";
import {
  type Block,
  type Fault,
  type Replay,
  type ReplayOptions,
  replay,
  type SurplusOrder,
  shopLocks,
} from "../shop/incident.ts";

export interface Frame {
  readonly width: number;
  readonly height: number;
  readonly title: string;
  /** Colours of the series: on a light page, and on a dark one. */
  readonly colours: readonly (readonly [light: string, dark: string])[];
  /** Where the title begins. */
  readonly left?: number;
  /** Rules for marks of this picture alone. */
  readonly style?: string;
}

/** A picture that can be read on a light page and on a dark one. */
export function svg(frame: Frame, body: readonly string[]): string {
  const { width, height, title, colours, left = 16, style = "" } = frame;
  const series = (theme: 0 | 1): string =>
    colours
      .flatMap(({ [theme]: colour }, at) => [
        `.fill-${at} { fill: ${colour}; }`,
        `.stroke-${at} { stroke: ${colour}; }`,
      ])
      .join("\n");
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img" aria-label="${escaped(title)}">
<style>
text { font: 12px system-ui, sans-serif; fill: #1f2328; }
.title { font-weight: 600; font-size: 14px; }
.head { font-weight: 600; }
.quiet { fill: #59636e; }
.ours { font-weight: 600; }
.grid { stroke: #d1d9e0; stroke-width: 1; }
.one { stroke: #59636e; stroke-width: 1; stroke-dasharray: 3 3; }
.range { stroke: #1f2328; stroke-width: 1; stroke-opacity: 0.55; }
${series(0)}
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc; }
.quiet { fill: #9198a1; }
.grid { stroke: #3d444d; }
.one { stroke: #9198a1; }
.range { stroke: #f0f6fc; }
${series(1)}
}
${style}</style>
<text class="title" x="${left}" y="22">${escaped(title)}</text>
${body.join("\n")}
</svg>
`;
}

export function text(
  x: number,
  y: number,
  content: string,
  options: { classes?: string; anchor?: "start" | "middle" | "end" } = {},
): string {
  const { classes = "", anchor = "start" } = options;
  return `<text class="${classes}" x="${round(x)}" y="${round(y)}" text-anchor="${anchor}">${escaped(content)}</text>`;
}

export function bar(x: number, y: number, width: number, height: number, series: number): string {
  return `<rect class="fill-${series}" x="${round(x)}" y="${round(y)}" width="${round(Math.max(0, width))}" height="${round(height)}" rx="2"/>`;
}

export function line(
  classes: string,
  [x1, y1]: readonly [number, number],
  [x2, y2]: readonly [number, number],
): string {
  return `<line class="${classes}" x1="${round(x1)}" y1="${round(y1)}" x2="${round(x2)}" y2="${round(y2)}"/>`;
}

/** One line through all the points. */
export function curve(classes: string, points: readonly (readonly [number, number])[]): string {
  const path = points.map(([x, y]) => `${round(x)},${round(y)}`).join(" ");
  return `<polyline class="${classes}" points="${path}"/>`;
}

/** A coordinate, to a tenth of a pixel. */
export function round(value: number): number {
  return Math.round(value * 10) / 10;
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");
}

/** A block shorter than this is a customer who clicked again and ordered. */
const noticeableMs = 2_000;

/** The row of one kind of lock. */
export function figuresOf(run: Replay) {
  const noticed = noticedIn(run.blocks);
  const lengths = noticed.map(lengthOf);
  const atOnce = run.surplus.filter(({ isAtOnce }) => isAtOnce);
  return {
    "orders placed": run.orders,
    "users blocked": usersOf(noticed),
    "blocked time (s)": seconds(lengths.reduce((sum, length) => sum + length, 0)),
    "longest block (s)": seconds(Math.max(0, ...lengths)),
    "double orders at the same time": atOnce.length,
    "second orders later": run.surplus.length - atOnce.length,
    "orders lost": run.ordersLost,
  };
}

/** What each kind of failure followed from, in one sentence: the faults of the wishes that failed. */
export function reasonOf(run: Replay): string {
  const noticed = noticedIn(run.blocks);
  const ofFault = (fault: Fault | undefined) => noticed.filter((block) => block.fault === fault);
  const atOnce = run.surplus.filter(({ isAtOnce }) => isAtOnce);
  const later = run.surplus.filter(({ isAtOnce }) => !isAtOnce);
  const parts = [
    count(usersOf(ofFault("lost reply")), "user", "locked out by an own lock whose reply was lost"),
    count(usersOf(ofFault("killed process")), "user", "locked out by a process that was killed"),
    count(usersOf(ofFault("slow holder")), "user", "locked out after a slow order"),
    count(usersOf(ofFault(undefined)), "user", "locked out beside a fault of another's"),
    count(of(atOnce, isSlow), "order", "placed beside a holder slower than its lease"),
    count(of(atOnce, isOfClock), "order", "placed at once by a server whose clock is ahead"),
    count(of(atOnce, isOther), "order", "placed at once otherwise"),
    count(later.length, "click", "of an order that was finished, taken for a new one"),
  ].filter((part) => part !== undefined);
  return parts.length === 0 ? "nothing failed" : parts.join("; ");
}

/** How many users were blocked at each tenth of a second of the run. */
function blockedOverTime(blocks: readonly Block[], lengthMs: number): number[] {
  const steps = Math.ceil(lengthMs / 100);
  return Array.from({ length: steps }, (_, step) => {
    const atMs = step * 100;
    return blocks.filter(({ fromMs, untilMs }) => fromMs <= atMs && atMs < untilMs).length;
  });
}

function noticedIn(blocks: readonly Block[]): Block[] {
  return blocks.filter((block) => lengthOf(block) >= noticeableMs);
}

function usersOf(blocks: readonly Block[]): number {
  return new Set(blocks.map(({ user }) => user)).size;
}

const isSlow = ({ fault }: SurplusOrder): boolean => fault === "slow holder";
const isOfClock = (order: SurplusOrder): boolean => !isSlow(order) && order.isByClock;
const isOther = (order: SurplusOrder): boolean => !isSlow(order) && !order.isByClock;

function of(orders: readonly SurplusOrder[], which: (order: SurplusOrder) => boolean): number {
  return orders.filter(which).length;
}

function count(number: number, noun: string, what: string): string | undefined {
  if (number === 0) return undefined;
  return `${number} ${noun}${number === 1 ? "" : "s"} ${what}`;
}

function lengthOf({ fromMs, untilMs }: Block): number {
  return untilMs - fromMs;
}

function seconds(ms: number): number {
  return Math.round(ms / 100) / 10;
}

interface Run {
  readonly name: string;
  readonly run: Replay;
}

const settings = {
  seconds: 30,
  tailSeconds: 32,
  servers: 8,
  wishesPerSecond: 10_000_000 / 86_400,
  users: 1_500,
  doubleClicks: 0.1,
  lateClicks: 0.05,
  every: { "lost reply": 100, "slow holder": 150, "killed process": 800 },
} satisfies Omit<ReplayOptions, "lock" | "redisPort">;

/**
 * `npm run lab -- incident`: a shop at the rate of ten million orders a day, for half a minute, once for
 * each kind of lock; the same customers and the same faults for all. Prints a table and writes it
 * beside two pictures. With words on the command line, such as `npm run lab -- incident EXPIRE`, only the
 * locks with one of them in their names run, and nothing is written.
 */
export async function run(): Promise<void> {
  const words = process.argv.slice(2);
  const isChosen = (name: string) =>
    words.length === 0 || words.some((word) => name.includes(word));
  const locks = shopLocks.filter(isChosen);
  if (locks.length === 0) throw new Error(`expected a part of one of: ${shopLocks.join("; ")}`);
  const binary = serverBinary();
  const runs: Run[] = [];
  for (const name of locks) {
    console.log(`${name} …`);
    // A server each: what one lock leaves behind must not block the next one's customers.
    const server = await startServer(binary);
    const run = await replay({ ...settings, lock: name, redisPort: server.port });
    await server.stop();
    runs.push({ name, run });
    console.log(`  ${reasonOf(run)}`);
  }
  console.table(Object.fromEntries(runs.map(({ name, run }) => [name, figuresOf(run)])));
  if (words.length > 0) return;
  const files = { ...picturesOf(runs), "results.md": report(runs, `${serverVersion(binary)}`) };
  for (const [name, content] of Object.entries(files)) {
    writeFileSync(new URL(name, import.meta.url), content);
    console.log(`Written: test/lab/incident/${name}`);
  }
}

function picturesOf(runs: readonly Run[]): Record<string, string> {
  const lines = runs
    .filter((_, index) => [0, 1, 4, 6].includes(index))
    .map(({ name, run }) => ({ name, blocked: blockedOverTime(run.blocks, run.lengthMs) }));
  const bars = runs.map(({ name, run }) => {
    const atOnce = run.surplus.filter((order) => order.isAtOnce).length;
    return { name, atOnce, later: run.surplus.length - atOnce };
  });
  const blocked = "Users who cannot order, by the lock of the shop";
  return {
    "incident.svg": blockedPicture(lines, blocked, settings.seconds),
    "orders.svg": surplusPicture(bars, "Orders too many, by the lock of the shop"),
  };
}

function report(runs: readonly Run[], server: string): string {
  const names = Object.keys(figuresOf((runs[0] as Run).run));
  const rows = runs.map(({ name, run }) => [name, ...Object.values(figuresOf(run))]);
  const table = [["lock", ...names], ["---", ...names.map(() => "---:")], ...rows];
  const { seconds, users, servers, every } = settings;
  const faults = (runs.at(-1) as Run).run.faults;
  return `# The incident, replayed

Measured by \`npm run lab -- incident\` (${cpus().length} CPUs, Node ${process.version}, ${server}): ${seconds} s of a shop at the rate of ten million orders a day, ${users.toLocaleString("en")} customers, ${servers} server processes with a command timeout of 200 ms, an order in 120 ms, a life of 5 s for every lock but the first; its two hours are scaled to 30 s: one second of a block stands for four minutes. A refused customer tries again each second. One customer in ten clicks twice within 90 ms, one in twenty clicks again after 200 to 500 ms. For every lock:

- every ${every["lost reply"]}th wish (${faults["lost reply"]} in all): its acquire is applied by Redis and the reply is lost, with whatever else is under way on that connection until it is reset 0.3 s later;
- every ${every["killed process"]}th (${faults["killed process"]}): its server is killed by SIGKILL when Redis has executed its first command, and started again;
- every ${every["slow holder"]}th (${faults["slow holder"]}): the order takes 7 s, and the customer clicks on each second for 9 s;
- one server's clock is 8 s ahead.

${table.map((row) => `| ${row.join(" | ")} |`).join("\n")}

Blocked: refused, with no order under way, for two seconds or longer. Double orders at the same time: placed while another one of the same wish was under way. Second orders later: placed after it. Orders lost: wishes that had not become an order after ${settings.tailSeconds} s more.

What each failure followed from, as the run found it:

${runs.map(({ name, run }) => `- **${name}**: ${reasonOf(run)}.`).join("\n")}
`;
}

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
function blockedPicture(lines: readonly Line[], title: string, closesAt: number): string {
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
function surplusPicture(bars: readonly Bar[], title: string): string {
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
