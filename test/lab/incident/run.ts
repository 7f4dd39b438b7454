import { writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { serverBinary, serverVersion } from "../../support/server-binary.ts";
import { startServer } from "../../support/server-process.ts";
import { setAndCompare, setAndDelFor } from "../faults/plain.ts";
import { submitLock } from "../faults/submit-lock.ts";
import { blockedOverTime, figuresOf } from "./figures.ts";
import { picture } from "./picture.ts";
import { type Replay, replay } from "./replay.ts";

/**
 * `npm run incident`: a shop at the rate of ten million orders a day, for half a minute, with every
 * hundredth acquire applied by Redis and not answered; once for each kind of lock. Prints a table
 * and writes it beside a picture of the users who could not order.
 */
const twoHoursMs = 30_000;
const seconds = 30;
const loseEvery = 100;
const variants = [
  { name: "SETNX for two hours (30 s here)", library: setAndDelFor(twoHoursMs), tailSeconds: 32 },
  { name: "SET NX EX 5 + compare-and-delete", library: setAndCompare, tailSeconds: 7 },
  { name: "submit-lock, TTL 5 s", library: submitLock, tailSeconds: 7 },
  { name: "submit-lock, an id a wish", library: "once", tailSeconds: 7 },
] as const;

const binary = serverBinary();
const runs: { name: string; run: Replay }[] = [];
for (const { name, library, tailSeconds } of variants) {
  console.log(`${name}: ${seconds} s of orders, then ${tailSeconds} s for those who still wait …`);
  // A server each: what one lock leaves behind must not block the next one's customers.
  const server = await startServer(binary);
  const run = await replay({
    library,
    redisPort: server.port,
    loseEvery,
    tailSeconds,
    seconds,
    wishesPerSecond: 10_000_000 / 86_400,
    users: 1_500,
    doubleClicks: 0.1,
  });
  await server.stop();
  runs.push({ name, run });
}

console.table(Object.fromEntries(runs.map(({ name, run }) => [name, figuresOf(run)])));
const lines = runs.map(({ name, run }) => ({
  name,
  blocked: blockedOverTime(run.blocks, run.lengthMs),
}));
const title = "Users who cannot order while every hundredth lock reply is lost";
writeFileSync(new URL("./incident.svg", import.meta.url), picture(lines, title, seconds));
writeFileSync(new URL("./results.md", import.meta.url), report());
console.log("Written: test/lab/incident/incident.svg and test/lab/incident/results.md");

function report(): string {
  const names = Object.keys(figuresOf(required(runs[0]).run));
  const rows = runs.map(({ name, run }) => [name, ...Object.values(figuresOf(run))]);
  const table = [["lock", ...names], ["---", ...names.map(() => "---:")], ...rows];
  return `# The incident, replayed

Measured by \`npm run incident\` (${cpus().length} CPUs, Node ${process.version}, ${serverVersion(binary)}): ${seconds} s of a shop at the rate of ten million orders a day, 1 500 customers, one click in ten a double click, eight servers with a command timeout of 200 ms. Every ${loseEvery}th customer's acquire is applied by Redis and its reply is lost, with whatever else is under way on that connection until it is reset 0.3 s later. A refused customer tries again each second. The two hours are scaled to ${twoHoursMs / 1_000} s: one second of a block stands for four minutes.

${table.map((row) => `| ${row.join(" | ")} |`).join("\n")}

Blocked: refused, with no order under way, for two seconds or longer. Double orders: a double click that became two orders at the same time. Second orders later: its second click was given the lock when the first order had been finished, because its own lock command was late or had to be repeated; no lock prevents that, an id for the wish does: then its answer is repeated.
`;
}

function required<Value>(value: Value | undefined): Value {
  if (value === undefined) throw new Error("No run was made.");
  return value;
}
