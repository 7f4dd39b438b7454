import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { serverBinary, serverVersion } from "../../support/server-binary.ts";

/**
 * `npm run lab -- clients`: every net with every client that `new RedisStore` takes, as one table. Words on
 * the command line choose among clients and nets: `npm run lab -- clients "node-redis 6" rules`.
 */
const words = process.argv.slice(2);

interface Client {
  readonly name: string;
  /** The name that the labs know it by. */
  readonly lab: string;
  readonly onCluster: boolean;
}

const clients: readonly Client[] = ["ioredis 5", "ioredis 6", "node-redis 6"].flatMap((lab) => [
  { name: lab, lab, onCluster: false },
  { name: `${lab} Cluster`, lab, onCluster: true },
]);

interface Outcome {
  readonly isPassed: boolean;
  /** What the net says at its end. */
  readonly summary: string;
}

/** The members that are read of the report of vitest. */
interface Report {
  readonly numPassedTests: number;
  readonly testResults: readonly {
    readonly assertionResults: readonly {
      readonly status: string;
      readonly fullName: string;
      readonly failureMessages: readonly string[];
    }[];
  }[];
}

interface Net {
  readonly name: string;
  /** `undefined` where the net has nothing for the client. */
  run(client: Client): Promise<Outcome> | undefined;
}

const nets: readonly Net[] = [
  tests("contracts", ["store-contract", "lock-contract"]),
  tests("rules", ["rule-", "redis-", "slot-move"]),
  tests("once", ["once-"]),
  tests("on call", ["on-call"]),
  {
    name: "faults",
    run: ({ lab, onCluster }) => (onCluster ? undefined : labOf(lab, "faults/matrix.ts", [lab])),
  },
  {
    name: "topologies",
    run: ({ lab, onCluster }) =>
      onCluster ? labOf(lab, "topologies/run.ts", ["Cluster"]) : undefined,
  },
  {
    name: "resharding",
    run: ({ lab, onCluster }) =>
      onCluster
        ? labOf(lab, "topologies/run-resharding.ts", [], { RESHARDING_SECONDS: "60" })
        : undefined,
  },
  {
    name: "soak",
    run: ({ lab, onCluster }) =>
      labOf(lab, "run.ts", ["soak", ...(onCluster ? ["--cluster"] : [])], { SOAK_MINUTES: "2" }),
  },
  {
    name: "outage",
    run: ({ lab, onCluster }) =>
      onCluster ? undefined : labOf(lab, "run.ts", ["outage"], { OUTAGE_SECONDS: "20" }),
  },
  {
    name: "customers",
    run: ({ lab, onCluster }) =>
      onCluster ? undefined : labOf(lab, "run.ts", ["customers"], { CUSTOMERS: "300" }),
  },
];

const chosenClients = clients.filter(({ name }) => isChosen(name, clients));
const chosenNets = nets.filter(({ name }) => isChosen(name, nets));
console.log(`${serverVersion(serverBinary())}, Node ${process.version}\n`);
const table: Record<string, Record<string, string>> = {};
let failed = 0;
for (const { name, run } of chosenNets) {
  const row: Record<string, string> = {};
  table[name] = row;
  for (const client of chosenClients) {
    const from = performance.now();
    const running = run(client);
    row[client.name] = "-";
    if (running === undefined) continue;
    const { isPassed, summary } = await running;
    const seconds = Math.round((performance.now() - from) / 1_000);
    if (!isPassed) failed++;
    row[client.name] = isPassed ? `passed in ${seconds} s` : "FAILED";
    console.log(`${name}, ${client.name}: ${row[client.name]}. ${summary}`);
  }
}
console.log();
console.table(table);
console.log(`${failed} failed.`);
process.exitCode = failed === 0 ? 0 : 1;

/** The tests of some files of `test/redis` that have the client's name in their title. */
function tests(name: string, files: readonly string[]): Net {
  return {
    name,
    async run({ name: client, onCluster }) {
      const folder = mkdtempSync(join(tmpdir(), "submit-lock-clients-"));
      const file = join(folder, "report.json");
      const titles = `(?<![\\w-])${client}${onCluster ? "" : "(?! Cluster)"}`;
      try {
        const { status, end } = await node([
          ...["node_modules/vitest/vitest.mjs", "run", "--project", "server", "-t", titles],
          ...["--reporter=dot", "--reporter=json", `--outputFile.json=${file}`],
          ...files.map((each) => `test/redis/${each}`),
        ]);
        const report = existsSync(file) && (JSON.parse(readFileSync(file, "utf8")) as Report);
        if (!report) return { isPassed: false, summary: end };
        const { numPassedTests, testResults } = report;
        const failed = testResults
          .flatMap(({ assertionResults }) => assertionResults)
          .filter((each) => each.status === "failed")
          .map(({ failureMessages, fullName }) => `\n  ${fullName}\n    ${failureMessages[0]}`);
        const isPassed = status === 0 && numPassedTests > 0;
        return { isPassed, summary: `${numPassedTests} tests passed.${failed.join("")}` };
      } finally {
        rmSync(folder, { recursive: true });
      }
    },
  };
}

async function labOf(
  lab: string,
  file: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv = {},
): Promise<Outcome> {
  const command = ["--import", "tsx", `test/lab/${file}`, ...args];
  const { status, end } = await node(command, { LAB_CLIENT: lab, ...env });
  const [summary = ""] = end.split("\n").slice(-1);
  return status === 0 ? { isPassed: true, summary } : { isPassed: false, summary: end };
}

/** @returns the exit code, and the end of the standard output. */
async function node(
  args: readonly string[],
  env: NodeJS.ProcessEnv = {},
): Promise<{ status: number | null; end: string }> {
  const child = spawn(process.execPath, args, {
    env: { ...process.env, TEST_CLIENTS: "all", ...env, NO_COLOR: "1" },
    stdio: ["ignore", "pipe", "inherit"],
  });
  let said = "";
  child.stdout.on("data", (chunk: Buffer) => {
    said = (said + chunk).slice(-20_000);
  });
  const status = await new Promise<number | null>((resolve) => child.once("close", resolve));
  return { status, end: said.trim() };
}

/** A word chooses by a part of a name; a table that no word speaks of is whole. */
function isChosen(name: string, table: readonly { name: string }[]): boolean {
  const about = words.filter((word) => table.some((row) => row.name.includes(word)));
  return about.length === 0 || about.some((word) => name.includes(word));
}
