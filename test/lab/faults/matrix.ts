import { monitorEventLoopDelay } from "node:perf_hooks";
import { serverBinary, serverVersion } from "../../support/server-binary.ts";
import { startServer } from "../../support/server-process.ts";
import { chosen, rowOf } from "../laboratory.ts";
import { isSound, misses } from "./bounds.ts";
import type { CellResult } from "./cell.ts";
import { labClients } from "./clients.ts";
import { allFaults, faultNamed, libraryFor } from "./faults.ts";
import { recordUncaught, runCells } from "./run-cells.ts";

/**
 * `npm run lab -- faults`: every fault with every client, each cell against its bound. Words on the command
 * line choose among faults and clients: `npm run lab -- faults F2 "ioredis 5"`.
 */
const atOnce = Number(process.env["FAULTS_AT_ONCE"] ?? 10);

const [chosenFaults, chosenClients] = [chosen(allFaults), chosen(labClients)];
const cells = chosenFaults.flatMap((fault) =>
  chosenClients.map((client) => ({ library: libraryFor(fault), client, fault })),
);

const binary = serverBinary();
const server = await startServer(binary);
const uncaught = recordUncaught();
const eventLoop = monitorEventLoopDelay({ resolution: 1 });
eventLoop.enable();
console.log(
  `${cells.length} cells (${chosenFaults.length} faults, ${chosenClients.length} clients), ${atOnce} at a time; ${serverVersion(binary)}, Node ${process.version}\n`,
);
const from = performance.now();
const { results, failures, again } = await runCells({ binary, sharedPort: server.port }, cells, {
  atOnce,
  isSound,
  done: () => process.stderr.write("."),
});
process.stderr.write("\n");
eventLoop.disable();
await server.stop();

for (const fault of chosenFaults) {
  const ofFault = results.filter((one) => one.fault === fault.name);
  console.log(`\n${fault.name}: ${fault.what}`);
  console.table(ofFault.map(({ fault: _, once, ...cell }) => rowOf({ ...cell, ...once })));
  for (const result of ofFault) {
    for (const miss of misses(fault, result)) console.log(`  MISSED: ${result.client}: ${miss}`);
  }
}

const missed = results.filter((result) => misses(faultNamed(result.fault), result).length > 0);
const rejections = uncaught.take();
uncaught.stop();
console.log(`\nSummary, the worst of each fault over ${chosenClients.length} clients:`);
console.table(Object.fromEntries(chosenFaults.map(({ name }) => [name, worst(name)])));
for (const { cell, error } of failures) {
  console.log(`NOT RUN: ${cell.fault.name}, ${cell.client.name}: ${error}`);
}
for (const rejection of rejections) console.log(`UNHANDLED: ${rejection}`);
const seconds = Math.round((performance.now() - from) / 1_000);
console.log(
  `${results.length} cells in ${seconds} s: ${missed.length} missed a bound, ${failures.length} could not be run, ${rejections.length} unhandled rejections, ${again} measured again because the machine was late. Event loop of the lab: p99 ${ms(eventLoop.percentile(99) / 1e6)}, at most ${ms(eventLoop.max / 1e6)} late.`,
);
process.exitCode = missed.length + failures.length + rejections.length === 0 ? 0 : 1;

function ms(value: number): string {
  return `${value.toFixed(0)} ms`;
}

function worst(fault: string) {
  const of = results.filter((result) => result.fault === fault);
  const most = (value: (result: CellResult) => number) => Math.round(Math.max(0, ...of.map(value)));
  return {
    caller: [...new Set(of.map(({ outcome }) => outcome))].join(", "),
    "knows after ms": most(({ answeredMs }) => answeredMs),
    release: [...new Set(of.flatMap(({ release }) => release ?? []))].join(", "),
    "orphan ms": most(({ orphanMs }) => orphanMs),
    "free after ms": most(({ freedAfterMs }) => freedAfterMs),
    "replayed after ms": most(({ once }) => once?.replayedAfterMs ?? 0),
    "lab late ms": most(({ labLateMs }) => labLateMs),
    overlaps: of.reduce((sum, { overlaps }) => sum + overlaps, 0),
    missed: missed.filter((result) => result.fault === fault).length,
  };
}
