import { readFileSync, writeFileSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import { resolve } from "node:path";
import { serverBinary, serverVersion } from "../test/support/server-binary.ts";
import {
  type Cell,
  measured,
  onCluster,
  onServer,
  type Shop,
  seconds,
  shopCells,
  stopAll,
  tableOf,
  withReplica,
} from "./cells.ts";

/**
 * `npm run bench`: this package beside what one writes by hand, in turns, and the tables into
 * bench/results.md. With words, such as `npm run bench -- shop`, only those parts, and nothing is
 * written. `BENCH_SECONDS` (0.6) is how long one measurement lasts, `BENCH_ROUNDS` (15) how often
 * everything is measured.
 */
const tree = resolve(".");
const rounds = Number(process.env["BENCH_ROUNDS"] ?? 15);
const plain = { client: "ioredis" } as const;
const ours = { client: "ioredis", tree } as const;

interface Part {
  readonly title: string;
  readonly text: string;
  cells(): Promise<Cell[]>;
}

const handWritten = "`SET NX PX` with a UUID, and a compare-and-delete script";
const parts: Readonly<Record<string, Part>> = {
  pairs: {
    title: "Pairs",
    text: `Acquire and release, with 1, 32 and 256 callers of one process, each pair for another user. Plain: ${handWritten}. "Again" is the same as the first row: what it differs by means nothing.`,
    cells: () =>
      onServer({
        "plain ioredis": plain,
        "plain ioredis again": plain,
        "submit-lock": ours,
        "plain node-redis": { client: "node-redis" },
        "submit-lock on node-redis": { client: "node-redis", tree },
      }),
  },
  cluster: {
    title: "A Cluster of three masters",
    text: "The same pairs.",
    cells: () =>
      onCluster({
        "plain ioredis": { client: "ioredis Cluster" },
        "plain ioredis again": { client: "ioredis Cluster" },
        "submit-lock": { client: "ioredis Cluster", tree },
      }),
  },
  replica: {
    title: "Confirmed by a replica",
    text: "The same pairs on a master with one replica, without and with `ackReplicas: 1`.",
    cells: () =>
      withReplica({
        "submit-lock": ours,
        "with ackReplicas": { ...ours, options: { ackReplicas: 1 } },
      }),
  },
  shop: {
    title: "The order route",
    text: `\`POST /orders\`, answered 201 at once, over 64 connections; then 500 requests a second at random times. "One PING" is one round trip to Redis; the hand-written lock is ${handWritten} on \`finish\`.`,
    cells: () => {
      const frameworks = ["Express", "Koa", "Fastify", "fetch"] as const;
      return shopCells(Object.assign({}, ...frameworks.map(shopsOf)));
    },
  },
};

function shopsOf(framework: Shop["framework"]): Record<string, Shop> {
  const shop = { tree, framework } as const;
  const [byHand, guard] = [`${framework}, hand-written`, `${framework}, submit-lock`];
  const isExpress = framework === "Express";
  const lockAlone = isExpress ? `${framework}, submit-lock, protect` : guard;
  return {
    [`${framework}, bare`]: { ...shop, variant: "bare", base: byHand },
    [`${framework}, one PING`]: { ...shop, variant: "one PING", base: byHand },
    [byHand]: { ...shop, variant: "hand-written", base: byHand },
    [guard]: { ...shop, variant: "guard", base: byHand },
    ...(isExpress && { [lockAlone]: { ...shop, variant: "protect", base: byHand } as const }),
    [`${framework}, a new order with an id`]: {
      ...shop,
      variant: "once",
      key: "new",
      base: lockAlone,
    },
    [`${framework}, a replay`]: { ...shop, variant: "once", key: "same", base: lockAlone },
  };
}

const words = process.argv.slice(2);
const unknown = words.filter((word) => !Object.hasOwn(parts, word));
if (unknown.length > 0) throw new Error(`no part ${unknown}: ${Object.keys(parts).join(", ")}`);
const { version } = JSON.parse(readFileSync("package.json", "utf8"));
const versions = `Node ${process.version}, ${serverVersion(serverBinary())}, submit-lock ${version}`;
const report = [
  "# The bench's results",
  `Measured by \`npm run bench\` on ${cpus().length} CPUs, ${versions}; client and server on a core each. ${rounds} rounds of ${seconds} s, in which all take turns: medians, and in brackets the ratios within each round to the plain or hand-written lock (of orders with an id: to the lock alone), median and quartiles. Processor time holds better than rates.`,
];
for (const [name, { cells, text, title }] of Object.entries(parts)) {
  if (words.length > 0 && !words.includes(name)) continue;
  console.error(`${name}, load ${loadavg()[0]?.toFixed(1)}`);
  const all = await cells();
  const results = await measured(all, rounds);
  await stopAll();
  report.push(`## ${title}`, text, tableOf(all, results));
}
console.log(report.join("\n\n"));
if (words.length === 0) writeFileSync("bench/results.md", `${report.join("\n\n")}\n`);
