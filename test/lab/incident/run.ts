import { writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { serverBinary, serverVersion } from "../../support/server-binary.ts";
import { startServer } from "../../support/server-process.ts";
import { installPeers } from "../peers/install.ts";
import { blockedOverTime, figuresOf, reasonOf } from "./figures.ts";
import { picture } from "./picture.ts";
import { type Replay, type ReplayOptions, replay } from "./replay.ts";
import { shopLocks } from "./shop-lock.ts";
import { surplusPicture } from "./surplus-picture.ts";

/**
 * `npm run lab -- incident`: a shop at the rate of ten million orders a day, for half a minute, once for
 * each kind of lock; the same customers and the same faults for all. Prints a table and writes it
 * beside two pictures. With words on the command line, such as `npm run lab -- incident EXPIRE`, only the
 * locks with one of them in their names run, and nothing is written.
 */
const words = process.argv.slice(2);
const locks = shopLocks.filter(
  (name) => words.length === 0 || words.some((word) => name.includes(word)),
);
if (locks.length === 0) throw new Error(`expected a part of one of: ${shopLocks.join("; ")}`);
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

installPeers();
const binary = serverBinary();
const runs: { name: string; run: Replay }[] = [];
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
if (words.length === 0) write();

function write(): void {
  const drawn = [0, 1, 4, 6].map((index) => required(runs[index]));
  const lines = drawn.map(({ name, run }) => ({
    name,
    blocked: blockedOverTime(run.blocks, run.lengthMs),
  }));
  const bars = runs.map(({ name, run }) => {
    const atOnce = run.surplus.filter((order) => order.isAtOnce).length;
    return { name, atOnce, later: run.surplus.length - atOnce };
  });
  const files = {
    "incident.svg": picture(
      lines,
      "Users who cannot order, by the lock of the shop",
      settings.seconds,
    ),
    "orders.svg": surplusPicture(bars, "Orders too many, by the lock of the shop"),
    "results.md": report(),
  };
  for (const [name, content] of Object.entries(files)) {
    writeFileSync(new URL(name, import.meta.url), content);
    console.log(`Written: test/lab/incident/${name}`);
  }
}

function report(): string {
  const names = Object.keys(figuresOf(required(runs[0]).run));
  const rows = runs.map(({ name, run }) => [name, ...Object.values(figuresOf(run))]);
  const table = [["lock", ...names], ["---", ...names.map(() => "---:")], ...rows];
  const { seconds, users, servers, every } = settings;
  const faults = required(runs.at(-1)).run.faults;
  return `# The incident, replayed

Measured by \`npm run lab -- incident\` (${cpus().length} CPUs, Node ${process.version}, ${serverVersion(binary)}): ${seconds} s of a shop at the rate of ten million orders a day, ${users.toLocaleString("en")} customers, ${servers} server processes with a command timeout of 200 ms, an order in 120 ms, a life of 5 s for every lock but the first; its two hours are scaled to 30 s: one second of a block stands for four minutes. A refused customer tries again each second. One customer in ten clicks twice within 90 ms, one in twenty clicks again after 200 to 500 ms. For every lock:

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

function required<Value>(value: Value | undefined): Value {
  if (value === undefined) throw new Error("No run was made.");
  return value;
}
