import { startMasters } from "../../test/support/masters.ts";
import type { RedisServer } from "../../test/support/server-process.ts";
import { type Library, plain, redisSemaphore, submitLock } from "../libraries.ts";
import { type PairProcess, startPairs, warmUp } from "../pair-process.ts";
import type { Findings } from "../part.ts";
import { rounds, seconds } from "../settings.ts";
import { medianOf, ratioOf, turns } from "../statistics.ts";
import { number, spreadText, table } from "../text.ts";

const masterCounts = [1, 2, 3];
const callers = 32;
const compared: readonly Library[] = [plain, submitLock, redisSemaphore];

interface Site {
  readonly masters: number;
  readonly nodes: readonly RedisServer[];
  readonly processes: ReadonlyMap<Library, PairProcess>;
  readonly rates: Map<Library, number[]>;
}

/** One process on a Cluster, where the keys of one call would have to be in one slot. */
export async function cluster(binary: string): Promise<Findings> {
  const sites: Site[] = [];
  for (const masters of masterCounts) sites.push(await siteOf(binary, masters));
  for (const { processes } of sites) {
    await warmUp(processes.values(), [callers], Math.min(0.5, seconds));
  }
  for (let round = 0; round < rounds; round++) {
    for (const { processes, rates } of turns(sites, round)) {
      for (const library of turns(compared, round)) {
        const process = processes.get(library) as PairProcess;
        const { pairsPerSecond } = await process.run({ kind: "pairs", callers, seconds });
        rates.set(library, [...(rates.get(library) ?? []), pairsPerSecond]);
      }
    }
  }
  for (const { nodes, processes } of sites) {
    await Promise.all([...processes.values()].map((process) => process.stop()));
    await Promise.all(nodes.map((node) => node.stop()));
  }

  const rows = sites.flatMap(({ masters, rates }) =>
    compared.map((library) => [
      `${masters === 1 ? "1 master" : `${masters} masters`}, ${library.name}`,
      number(medianOf(rates.get(library) ?? [])),
      spreadText(ratioOf(rates.get(library) ?? [], rates.get(plain) ?? [])),
    ]),
  );
  return {
    text: `## A Cluster

One process with ${callers} callers. On a Cluster submit-lock sends one key a call.

${table(["cluster", "pairs a second", "plain = 1.00"], rows)}`,
    targets: [],
  };
}

async function siteOf(binary: string, masters: number): Promise<Site> {
  // A node that has met no other does not know its own address, and clients are told none.
  const announced = ["--cluster-announce-ip", "127.0.0.1"];
  const nodes = await startMasters(binary, masters, announced);
  const ports = nodes.map(({ port }) => port);
  const processes = new Map<Library, PairProcess>();
  for (const library of compared) {
    processes.set(library, await startPairs(library, "cluster", ports));
  }
  return { masters, nodes, processes, rates: new Map() };
}
