import { writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { serverBinary, serverVersion } from "../../support/server-binary.ts";
import { startServer } from "../../support/server-process.ts";
import { chosen } from "../laboratory.ts";
import {
  type Block,
  type Fault,
  type Replay,
  type ReplayOptions,
  replay,
  type SurplusOrder,
  shopLocks,
} from "../shop/incident.ts";

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
  const binary = serverBinary();
  const runs: Run[] = [];
  for (const { name } of chosen(shopLocks.map((name) => ({ name })))) {
    console.log(`${name} …`);
    // A server each: what one lock leaves behind must not block the next one's customers.
    const server = await startServer(binary);
    const run = await replay({ ...settings, lock: name, redisPort: server.port });
    await server.stop();
    runs.push({ name, run });
    console.log(`  ${reasonOf(run)}`);
  }
  console.table(Object.fromEntries(runs.map(({ name, run }) => [name, figuresOf(run)])));
  if (runs.length < shopLocks.length) return;
  const files = {
    "incident.svg": blockedPicture(runs.filter((_, index) => [0, 1, 4, 6].includes(index))),
    "orders.svg": surplusPicture(runs),
    "results.md": report(runs, `${serverVersion(binary)}`),
  };
  for (const [name, content] of Object.entries(files)) {
    writeFileSync(new URL(name, import.meta.url), content);
    console.log(`Written: test/lab/incident/${name}`);
  }
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

const [width, height] = [760, 360];

/** Of the series: on a light page, and on a dark one. */
const colours = [
  ["#cf222e", "#f85149"],
  ["#bf8700", "#d29922"],
  ["#1a7f37", "#3fb950"],
  ["#0969da", "#4493f8"],
] as const;

/** A picture that can be read on a light page and on a dark one. */
function svg(title: string, height: number, left: number, body: readonly string[]): string {
  const series = (theme: 0 | 1) =>
    colours.map(({ [theme]: colour }, at) => {
      return `.fill-${at} { fill: ${colour}; } .stroke-${at} { stroke: ${colour}; }`;
    });
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img" aria-label="${title}">
<style>
text { font: 12px system-ui, sans-serif; fill: #1f2328; }
.title { font-weight: 600; font-size: 14px; }
.quiet { fill: #59636e; }
.ours { font-weight: 600; }
.grid { stroke: #d1d9e0; stroke-width: 1; }
.one { stroke: #59636e; stroke-width: 1; stroke-dasharray: 3 3; }
${series(0).join("\n")}
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc; }
.quiet { fill: #9198a1; }
.grid { stroke: #3d444d; }
.one { stroke: #9198a1; }
${series(1).join("\n")}
}
.line { fill: none; stroke-width: 2.5; stroke-linejoin: round; }
.stroke-1 { stroke-dasharray: 7 4; }
.stroke-3 { stroke-dasharray: 1 4; }
</style>
${text(left, 22, title, "title")}
${body.join("\n")}
</svg>
`;
}

/** Coordinates are written to a tenth of a pixel. */
function element(name: string, given: Readonly<Record<string, string | number>>, inner = "") {
  const attributes = Object.entries(given).map(([key, value]) => {
    return ` ${key}="${typeof value === "number" ? Math.round(value * 10) / 10 : value}"`;
  });
  return `<${name}${attributes.join("")}>${inner}</${name}>`;
}

function text(x: number, y: number, content: string, classes: string, anchor = "start"): string {
  return element("text", { class: classes, x, y, "text-anchor": anchor }, content);
}

function bar(x: number, y: number, width: number, series: number, height = 16): string {
  return element("rect", { class: `fill-${series}`, x, y, width, height, rx: "2" });
}

type Point = readonly [x: number, y: number];

function line(classes: string, [x1, y1]: Point, [x2, y2]: Point): string {
  return element("line", { class: classes, x1, y1, x2, y2 });
}

/** Blocked users over the run, counted ten times a second. */
function blockedPicture(runs: readonly Run[]): string {
  const [left, right, top, bottom] = [56, width - 16, 84, height - 48];
  const lines = runs.map(({ run: { blocks, lengthMs } }) =>
    Array.from({ length: Math.ceil(lengthMs / 100) }, (_, step) => {
      return blocks.filter(({ fromMs, untilMs }) => fromMs <= step * 100 && step * 100 < untilMs);
    }).map(({ length }) => length),
  );
  const seconds = Math.ceil(Math.max(...lines.map(({ length }) => length)) / 10);
  const most = Math.max(1, ...lines.flat());
  // About five ticks, at round numbers.
  const step =
    [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000].find((each) => most / each <= 5) ?? 2_000;
  const highest = Math.ceil(most / step) * step;
  const x = (second: number) => left + (second / seconds) * (right - left);
  const y = (users: number) => bottom - (users / highest) * (bottom - top);
  const ticks = (end: number, step: number) =>
    Array.from({ length: Math.floor(end / step) + 1 }, (_, index) => index * step);
  // Later orders are those of blocked users.
  const closed = x(settings.seconds);
  const middle = (top + bottom) / 2;
  return svg("Users who cannot order, by the lock of the shop", height, left, [
    ...runs.flatMap(({ name }, at) => {
      const [from, height] = [left + (at % 2) * 340, 44 + Math.floor(at / 2) * 20];
      const mark = line(`line stroke-${at}`, [from, height], [from + 22, height]);
      return [mark, text(from + 30, height + 4, name, "")];
    }),
    ...ticks(highest, step).flatMap((users) => [
      line("grid", [left, y(users)], [right, y(users)]),
      text(left - 8, y(users) + 4, `${users}`, "quiet", "end"),
    ]),
    line("one", [closed, top], [closed, bottom]),
    text(closed + 6, top + 14, "no new customers", "quiet"),
    ...ticks(seconds, 10).map((second) =>
      text(x(second), bottom + 18, `${second}`, "quiet", "middle"),
    ),
    text((left + right) / 2, height - 8, "seconds since the shop opened", "quiet", "middle"),
    `<g transform="rotate(-90 14 ${middle})">${text(14, middle, "users who cannot order", "quiet", "middle")}</g>`,
    ...lines.map((blocked, at) => {
      const points = blocked.map((users, index) => {
        return `${Math.round(10 * x(index / 10)) / 10},${Math.round(10 * y(users)) / 10}`;
      });
      return element("polyline", { class: `line stroke-${at}`, points: points.join(" ") });
    }),
  ]);
}

/** A bar for each lock: the orders that nobody had wished for, those at the same time first. */
function surplusPicture(runs: readonly Run[]): string {
  const [left, right, row, top] = [290, 60, 24, 66];
  const most = Math.max(1, ...runs.map(({ run }) => run.surplus.length));
  const length = (orders: number) => (orders / most) * (width - left - right);
  const legend = ["at the same time", "a moment later"].flatMap((name, at) => {
    const from = left + at * 160;
    return [bar(from, 36, 14, at, 12), text(from + 20, 46, name, "quiet")];
  });
  const rows = runs.flatMap(({ name, run: { surplus } }, index) => {
    const y = top + index * row;
    const classes = name.startsWith("submit-lock") ? "ours" : "";
    const atOnce = surplus.filter(({ isAtOnce }) => isAtOnce).length;
    return [
      text(left - 8, y + 13, name, classes, "end"),
      bar(left, y + 2, length(atOnce), 0),
      bar(left + length(atOnce), y + 2, length(surplus.length - atOnce), 1),
      text(left + length(surplus.length) + 8, y + 13, `${surplus.length}`, classes),
    ];
  });
  const title = "Orders too many, by the lock of the shop";
  return svg(title, top + runs.length * row + 8, 16, [...legend, ...rows]);
}
