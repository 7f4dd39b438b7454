import { spawnSync } from "node:child_process";
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";

interface Laboratory {
  /** What it proves, or measures. */
  readonly shows: string;
  /** About how long it takes, on two processors. */
  readonly minutes: number;
  /** The file that it writes, if it writes one. */
  readonly writes?: string;
  /** It uses the built package. */
  readonly needsBuild?: true;
  run(): Promise<unknown>;
}

const net = async (name: "linear-cost" | "fail-anywhere" | "same-answer") =>
  (await import("./nets/nets.ts")).run(name, 20_000);

export const laboratories: Readonly<Record<string, Laboratory>> = {
  faults: {
    shows: "P1 to P9 under every fault of Redis and the network, with every client",
    minutes: 20,
    run: () => import("./faults/matrix.ts"),
  },
  topologies: {
    shows: "Sentinel and Cluster under every fault",
    minutes: 10,
    run: () => import("./topologies/run.ts").then((lab) => lab.run()),
  },
  resharding: {
    shows: "rule 23 and P9 while slots move and masters are replaced",
    minutes: 6,
    run: () => import("./topologies/resharding.ts").then((lab) => lab.run()),
  },
  simulation: {
    shows: "rules 1 to 23 under random schedules of the real code in virtual time",
    minutes: 6,
    run: () => import("./simulation/hunt.ts").then((hunt) => hunt.runLaboratory()),
  },
  mutants: {
    shows: "that the simulation notices each broken rule",
    minutes: 2,
    run: () => import("./simulation/mutants/cli.ts"),
  },
  model: {
    shows: "every state of the protocol, with spin",
    minutes: 10,
    run: () => import("./model/run.ts"),
  },
  outage: {
    shows: "P6 and P7 while Redis is away or silent",
    minutes: 4,
    run: () => import("./shop/outage.ts").then((shop) => shop.run()),
  },
  soak: {
    shows: "P7 under mixed traffic and random faults: no leak",
    minutes: 10,
    run: () => import("./shop/soak.ts").then((shop) => shop.run()),
  },
  freed: {
    shows: "P10: a freed lock never makes two orders",
    minutes: 3,
    run: () => import("./shop/freed.ts").then((shop) => shop.run()),
  },
  moving: {
    shows: "that an old lock is replaced without an overlap, and each mistake makes some",
    minutes: 6,
    run: () => import("./moving/run.ts").then((lab) => lab.run()),
  },
  "two-doors": {
    shows: "that return page and webhooks of one payment are one order, whatever is killed",
    minutes: 8,
    run: () => import("./two-doors/run.ts").then((lab) => lab.run()),
  },
  transaction: {
    shows: "that an order and its answer commit together, whatever dies; the snippet of before",
    minutes: 20,
    run: () => import("./transaction/run.ts").then((lab) => lab.run()),
  },
  dashboards: {
    shows: "alerts and board on a real Prometheus",
    minutes: 3,
    run: () => import("./dashboards/run.ts"),
  },
  screenshots: {
    shows: "the README's picture of the three outcomes, light and dark",
    minutes: 1,
    writes: "docs/evidence/outcomes-*.svg",
    needsBuild: true,
    run: () => import("./browser/screenshots.ts"),
  },
  capacity: {
    shows:
      "P1 to P9 over each of 100,000 orders, on a Redis with a file, whatever dies; --part: costs",
    minutes: 2,
    run: () => import("./capacity/run.ts").then((lab) => lab.run()),
  },
  neighbour: {
    shows: "P6 and P7: one customer, whatever he does, and twenty others who order",
    minutes: 6,
    run: () => import("./neighbour/run.ts").then((lab) => lab.run()),
  },
  "linear-cost": {
    shows: "that twice the input costs at most 2.5 times the time",
    minutes: 5,
    run: () => net("linear-cost"),
  },
  "fail-anywhere": {
    shows: "that each foreign call may fail in each way",
    minutes: 2,
    run: () => net("fail-anywhere"),
  },
  "browser-sequences": {
    shows: "P9 whatever happens to a page; --table: what a key for each click does",
    minutes: 2,
    run: () => import("./sequences/run.ts").then((sequences) => sequences.run()),
  },
  "same-answer": {
    shows: "that a guard changes no answer, and repeats it",
    minutes: 20,
    run: () => net("same-answer"),
  },
  "net-mutants": {
    shows:
      "that nets and tests notice flaws that were there once; sql: each rule of submit-lock/sql",
    minutes: 20,
    run: () => import("./nets/mutants.ts").then((mutants) => mutants.run()),
  },
};

/** `npm run lab -- <name> [arguments]` runs a laboratory; without a name it prints the table. */
async function main(): Promise<void> {
  const [node = "", self = "", name = "", ...args] = process.argv;
  const laboratory = Object.hasOwn(laboratories, name) ? laboratories[name] : undefined;
  if (laboratory === undefined) {
    console.log("npm run lab -- <name> [arguments]\n");
    for (const [name, { minutes, shows, writes }] of Object.entries(laboratories)) {
      const page = writes === undefined ? "" : `; writes ${writes}`;
      console.log(`${name.padEnd(18)}${`${minutes}`.padStart(3)} min  ${shows}${page}`);
    }
    if (name === "") return;
    console.error(`\nThere is no laboratory "${name}".`);
    process.exitCode = 1;
    return;
  }
  if (laboratory.needsBuild) {
    const { status } = spawnSync("npm", ["run", "build"], { stdio: "inherit" });
    if (status !== 0) process.exit(1);
  }
  // A laboratory reads its arguments as if it had been started itself.
  process.argv = [node, self, ...args];
  try {
    await laboratory.run();
  } catch (error) {
    if (!String(Object(error).code).startsWith("ERR_PARSE_ARGS")) throw error;
    console.error(`npm run lab -- ${name}: ${(error as Error).message}`);
    process.exitCode = 1;
  }
}

if (process.argv[1] !== undefined && resolve(process.argv[1]) === fileURLToPath(import.meta.url)) {
  await main();
}
