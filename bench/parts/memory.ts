import { startServer } from "../../test/support/server-process.ts";
import { libraries, redisSemaphore, submitLock } from "../libraries.ts";
import { startPairs, warmUp } from "../pair-process.ts";
import { atMost, type Findings } from "../part.ts";
import { Observer } from "../server-stats.ts";
import { rounds } from "../settings.ts";
import { medianOf, turns } from "../statistics.ts";
import { number, table } from "../text.ts";

/** What a lock takes in Redis and in the process that holds it. */
export async function memory(binary: string): Promise<Findings> {
  const locks = 10_000;
  const found = new Map<string, { redis: number[]; key: number[]; heap: number[] }>();
  for (let round = 0; round < Math.min(rounds, 3); round++) {
    for (const library of turns(libraries, round)) {
      const server = await startServer(binary);
      const observer = new Observer(server.port);
      const process = await startPairs(library, "redis", [server.port]);
      await warmUp([process], [32], 0.2);
      const before = (await observer.stats()).usedMemory;
      const { heapBytesPerLock } = await process.run({ kind: "hold", locks });
      const after = (await observer.stats()).usedMemory;
      const each = found.get(library.name) ?? { redis: [], key: [], heap: [] };
      each.redis.push((after - before) / locks);
      each.key.push(await bytesOfKeys(observer));
      each.heap.push(heapBytesPerLock);
      found.set(library.name, each);
      observer.close();
      await process.stop();
      await server.stop();
    }
  }
  const of = (name: string, what: "redis" | "key" | "heap"): number =>
    medianOf(found.get(name)?.[what] ?? []);
  const rows = libraries.map(({ name }) => [
    name,
    number(of(name, "key"), 1),
    number(of(name, "redis"), 1),
    number(of(name, "heap")),
  ]);
  const ratio = of(submitLock.name, "key") / of(redisSemaphore.name, "key");
  const heap = of(submitLock.name, "heap");
  return {
    text: `## Memory

${number(locks)} locks that are held, of users such as \`p0-1234\`. The key is \`lock:submit:<user>\`, with redis-semaphore \`mutex:submit:<user>\`. \`MEMORY USAGE\` is that of the key; all of Redis' memory also counts its tables and buffers. The heap is what the process keeps for a lock after a collection: key, owner id, watchdog, lease.

${table(["library", "MEMORY USAGE of a lock", "all of Redis' memory, bytes a lock", "heap bytes a lock"], rows)}`,
    targets: [
      atMost("bytes a lock in Redis against redis-semaphore", 1, ratio, number(ratio, 2)),
      atMost("heap a lease in flight", 1_024, heap, `${number(heap)} B`, " B"),
    ],
  };
}

async function bytesOfKeys({ redis }: Observer): Promise<number> {
  const [, keys] = await redis.scan(0, "COUNT", 500);
  const bytes = await Promise.all(keys.map((key) => redis.memory("USAGE", key)));
  return bytes.reduce<number>((sum, each) => sum + Number(each ?? 0), 0) / keys.length;
}
