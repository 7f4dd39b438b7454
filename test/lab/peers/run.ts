import { readFileSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { serverBinary, serverVersion } from "../../support/server-binary.ts";
import { startServer } from "../../support/server-process.ts";
import { isSound, mostLateMs } from "../faults/bounds.ts";
import type { Cell, CellResult } from "../faults/cell.ts";
import { labClient } from "../faults/clients.ts";
import { faults } from "../faults/faults.ts";
import type { Library } from "../faults/library.ts";
import { recordUncaught, runCells } from "../faults/run-cells.ts";
import { installPeers, peerVersions } from "../install-peers.ts";
import { summaryOf, wordsFor } from "./comparison.ts";

/**
 * `npm run lab -- peers`: the rows of `npm run lab -- faults` for the package and for the libraries that
 * people use today, in the same lab, and a client that gives wrong replies. Writes
 * test/lab/faults/results.md. With words on the command line, such as `npm run lab -- peers F2`, only
 * those faults run and nothing is written; with the word `clients` the part about clients alone is
 * measured, and written.
 */
installPeers();
const { neighbours } = await import("./neighbours.ts");
const { clientReplies } = await import("./wrong-reply.ts");

const words = process.argv.slice(2);
const trials = Number(process.env["FAULT_TRIALS"] ?? 2);
const atOnce = Number(process.env["FAULTS_AT_ONCE"] ?? 12);
const clients = ["ioredis 6, defaults", "ioredis 6, commandTimeout 200"].map(labClient);
const rows = faults.filter(
  ({ name }) => words.length === 0 || words.some((word) => name.includes(word)),
);

const binary = serverBinary();
const server = await startServer(binary);
const uncaught = recordUncaught();
const results: CellResult[] = [];
const rejections = new Map<Library, string[]>();
const notRun: string[] = [];
let again = 0;
for (const library of neighbours) {
  process.stderr.write(`${library.name} `);
  const run = await runCells({ binary, sharedPort: server.port }, cellsOf(library), {
    atOnce,
    done: () => process.stderr.write("."),
    isSound,
  });
  process.stderr.write("\n");
  results.push(...run.results);
  again += run.again;
  rejections.set(library, uncaught.take());
  for (const { cell, error } of run.failures) {
    notRun.push(`${cell.library.name}, ${cell.fault.name}, ${cell.client.name}: ${error}`);
  }
}
uncaught.stop();
const isOfClients = words.includes("clients");
const ofClients = words.length === 0 || isOfClients ? await clientReplies(server.port) : undefined;
await server.stop();

const published = new URL("../faults/results.md", import.meta.url);
const tables = isOfClients
  ? []
  : [heading(), summary(), ...clients.map(tableFor), unhandledKinds()];
const report = [...tables, ...(ofClients === undefined ? [] : [ofClients])].join("\n\n");
console.log(report);
for (const failure of notRun) console.log(`NOT RUN: ${failure}`);
if (words.length === 0 && notRun.length === 0) writeFileSync(published, `${report}\n`);
if (isOfClients) {
  const [others] = readFileSync(published, "utf8").split(
    "\n## A client that gives wrong replies\n",
  );
  writeFileSync(published, `${others?.trimEnd()}\n\n${report}\n`);
}
process.exitCode = notRun.length === 0 ? 0 : 1;

function cellsOf(library: Library): Cell[] {
  const possible = rows.filter(({ on }) => on !== "extend" || library.extends);
  return Array.from({ length: trials }, () =>
    possible.flatMap((fault) => clients.map((client) => ({ library, client, fault }))),
  ).flat();
}

function heading(): string {
  const locks = Object.entries(peerVersions()).filter(([name]) => name !== "redis5");
  const peers = locks.map(([name, version]) => `${name} ${version}`);
  return `# The fault lab's results

Measured by \`npm run lab -- peers\`: ${trials} trials a cell, TTL 5 s, on ${cpus().length} CPUs, Node ${process.version}, ${serverVersion(binary)}, ${peers.join(", ")}. Loopback, one server. A trial in which the machine was more than ${mostLateMs} ms late was made again (${again} of ${results.length}).

The time is how long the caller waited for its answer; "key left" is how long in sum the key held the owner id of an attempt that was over, while the same user was kept out. "Two holders": somebody else got the lock while the caller believed to hold it. Rivals of the same user try all the time from the moment the caller's key is seen or the caller has its answer. In the rows of the extend the order takes 6.5 s, longer than the TTL; "kept" means that the holder was not told otherwise, and "–" that the lock cannot be extended.

The caller goes by the promises alone. The handles of redlock and @verrou/core also carry a time of expiry, which would have told of a late answer. "One try" is what a click needs, "defaults" are the library's own; @verrou/core asks for ioredis 5 and is run on ioredis 6 here, redlock-universal asks for Node 22. redis-semaphore extends by itself at four fifths of the TTL; the lab extends redlock, @verrou/core and redlock-universal at each third, as submit-lock does by itself.`;
}

function tableFor(client: { name: string }): string {
  const head = ["fault", ...neighbours.map(({ name }) => name)];
  const lines = rows.map((fault) => [
    `**${fault.name}** ${fault.what}`,
    ...neighbours.map((library) => wordsFor(fault, trialsOf(library, fault.name, client.name))),
  ]);
  return `## ${client.name}\n\n${markdown([head, head.map(() => "---"), ...lines])}`;
}

function trialsOf(library: Library, fault: string, client: string): CellResult[] {
  return results.filter(
    (one) => one.library === library.name && one.fault === fault && one.client === client,
  );
}

function summary(): string {
  const rows = neighbours.map((library) => ({
    name: library.name,
    ...summaryOf(results.filter((one) => one.library === library.name)),
    unhandled: rejections.get(library)?.length ?? 0,
  }));
  const head = ["library", ...Object.keys(rows[0] ?? {}).slice(1, -1), "unhandled rejections"];
  const lines = rows.map((row) => Object.values(row).map(String));
  return `## All faults, both clients\n\nIn trials. An unhandled rejection ends a Node process.\n\n${markdown([head, head.map(() => "---"), ...lines])}`;
}

function unhandledKinds(): string {
  const lines = neighbours.flatMap((library) => {
    const kinds = new Set(rejections.get(library));
    return kinds.size === 0 ? [] : [`- ${library.name}: ${[...kinds].join(", ")}`];
  });
  return `## What was not handled\n\n${lines.length === 0 ? "Nothing." : lines.join("\n")}`;
}

function markdown(lines: readonly (readonly string[])[]): string {
  return lines.map((line) => `| ${line.join(" | ")} |`).join("\n");
}
