import { writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { serverBinary, serverVersion } from "../../support/server-binary.ts";
import { startServer } from "../../support/server-process.ts";
import { installPeers } from "../install-peers.ts";
import { redlock } from "../service/old-locks.ts";
import {
  type Block,
  type Fault,
  type Replay,
  type ReplayOptions,
  replay,
  type SurplusOrder,
  shopLocks,
} from "../shop/incident.ts";
import { blockedPicture, surplusPicture } from "./pictures.ts";

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
export function blockedOverTime(blocks: readonly Block[], lengthMs: number): number[] {
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
  if (locks.includes(redlock)) installPeers("peers");
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
