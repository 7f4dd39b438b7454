import { startServer } from "../../test/support/server-process.ts";
import { atLeast, type Findings, rounds, seconds } from "../part.ts";
import {
  checkStatus,
  type ServerProcess,
  startLoad,
  startRoute,
  type Variant,
  variantNames,
  warmAgain,
  warmUp,
} from "../route/processes.ts";
import { medianOf, number, ratioOf, spreadText, table, turns } from "../statistics.ts";

const connections = 64;
const variants = ["protect", "measured", "traced"] as const satisfies readonly Variant[];
type Observed = (typeof variants)[number];

/** What `instrument()` costs the order route of Express: the same orders with it and without it, in turns. */
export async function observed(binary: string): Promise<Findings> {
  const redis = await startServer(binary);
  const load = await startLoad();
  const servers = new Map<Observed, ServerProcess>();
  for (const variant of variants) {
    servers.set(
      variant,
      await startRoute({ framework: "Express", variant, sends: [] }, redis.port),
    );
  }
  const jobOf = (variant: Observed) => ({
    port: (servers.get(variant) as ServerProcess).hello.port,
    connections,
  });
  // The SDK's own code takes longer to be optimised than the lock's.
  for (let pass = 0; pass < 3; pass++) {
    for (const variant of variants) await warmUp(load, jobOf(variant));
  }
  const rates = new Map<Observed, number[]>(variants.map((variant) => [variant, []]));
  const cpu = new Map<Observed, number[]>(variants.map((variant) => [variant, []]));
  for (let round = 0; round < rounds; round++) {
    for (const variant of turns(variants, round)) {
      const server = servers.get(variant) as ServerProcess;
      const job = { ...jobOf(variant), seconds };
      await warmAgain(load, job);
      await server.run({ kind: "cpu" });
      const { requests, requestsPerSecond } = checkStatus(await load.run(job), 201);
      rates.get(variant)?.push(requestsPerSecond);
      cpu.get(variant)?.push((await server.run({ kind: "cpu" })) / requests);
    }
  }
  await Promise.all([load.stop(), ...[...servers.values()].map((server) => server.stop())]);
  await redis.stop();

  const rate = (variant: Observed) => rates.get(variant) ?? [];
  const against = (variant: Observed) => ratioOf(rate(variant), rate("protect"));
  const cpuOf = (variant: Observed) => cpu.get(variant) ?? [];
  const rows = variants.map((variant) => [
    variantNames[variant],
    number(medianOf(rate(variant))),
    spreadText(against(variant)),
    number(medianOf(cpuOf(variant)), 1),
    spreadText(ratioOf(cpuOf(variant), cpuOf("protect"))),
  ]);
  const head = [
    "Express, 64 connections",
    "requests a second",
    "against none",
    "processor µs a request",
    "against none",
  ];
  const measured = against("measured");
  return {
    text: `## The order route, observed\n\n\`instrument()\` with OpenTelemetry's SDK, which exports its metrics every 10 s, and with every span recorded and thrown away.\n\n${table(head, rows)}`,
    targets: [
      atLeast(
        "requests a second with instrument() against none",
        0.97,
        measured.median,
        spreadText(measured),
      ),
    ],
  };
}
