import { startServer } from "../../test/support/server-process.ts";
import { type Library, plain, redisSemaphore, submitLock } from "../libraries.ts";
import { type PairProcess, startPairs, warmUp } from "../pair-process.ts";
import type { Findings } from "../part.ts";
import { rounds, seconds } from "../settings.ts";
import { medianOf, ratioOf, turns } from "../statistics.ts";
import { number, spreadText, table } from "../text.ts";

const counts = [1, 2, 4];
const callers = 32;
const compared: readonly Library[] = [plain, submitLock, redisSemaphore];

/** Several processes share one Redis. */
export async function processes(binary: string): Promise<Findings> {
  const server = await startServer(binary);
  const crews = new Map<Library, PairProcess[]>();
  for (const library of compared) {
    const crew = Array.from({ length: Math.max(...counts) }, () =>
      startPairs(library, "redis", [server.port]),
    );
    crews.set(library, await Promise.all(crew));
  }
  for (const crew of crews.values()) await warmUp(crew, [callers], Math.min(0.5, seconds));

  const rates = new Map(counts.map((count) => [count, new Map<Library, number[]>()]));
  for (let round = 0; round < rounds; round++) {
    for (const [count, of] of rates) {
      for (const library of turns(compared, round)) {
        const crew = (crews.get(library) ?? []).slice(0, count);
        const results = await Promise.all(
          crew.map((each) => each.run({ kind: "pairs", callers, seconds })),
        );
        const sum = results.reduce((total, { pairsPerSecond }) => total + pairsPerSecond, 0);
        of.set(library, [...(of.get(library) ?? []), sum]);
      }
    }
  }
  await Promise.all([...crews.values()].flat().map((each) => each.stop()));
  await server.stop();

  const rows = [...rates].flatMap(([count, of]) =>
    compared.map((library) => [
      `${count} × ${library.name}`,
      number(medianOf(of.get(library) ?? [])),
      spreadText(ratioOf(of.get(library) ?? [], of.get(plain) ?? [])),
    ]),
  );
  return {
    text: `## Several processes on one Redis

${callers} callers in each process; the sum of their pairs a second. With more processes than processors they share those with Redis.

${table(["processes", "pairs a second", "plain = 1.00"], rows)}`,
    targets: [],
  };
}
