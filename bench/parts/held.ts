import { startServer } from "../../test/support/server-process.ts";
import { libraries, redisSemaphore, scriptCalls, submitLock } from "../libraries.ts";
import { startPairs, warmUp } from "../pair-process.ts";
import { atMost, type Findings, rounds, seconds } from "../part.ts";
import { costBetween, Observer } from "../server-stats.ts";
import { medianOf, number, ratioOf, spreadText, table, turns } from "../statistics.ts";

const heldCounts = [1_000, 100_000, 1_000_000];

/** Whether an acquire takes longer where many locks are held. */
export async function scale(binary: string): Promise<Findings> {
  const sites = [];
  for (const held of heldCounts) {
    const server = await startServer(binary);
    const observer = new Observer(server.port);
    await fill(observer, held);
    const process = await startPairs(submitLock, "redis", [server.port]);
    sites.push({ held, server, observer, process, p50s: [] as number[], micros: [] as number[] });
  }
  await warmUp(
    sites.map(({ process }) => process),
    [32, 1],
    Math.min(0.5, seconds),
  );
  for (let round = 0; round < rounds; round++) {
    for (const { process, observer, p50s, micros } of turns(sites, round)) {
      const before = await observer.stats();
      const result = await process.run({ kind: "pairs", callers: 1, seconds });
      p50s.push(result.acquireP50Ms);
      micros.push(
        costBetween(before, await observer.stats(), scriptCalls).commandMicros / result.pairs,
      );
    }
  }
  for (const { server, observer, process } of sites) {
    observer.close();
    await process.stop();
    await server.stop();
  }
  const [few] = sites;
  const many = sites.at(-1);
  if (few === undefined || many === undefined) throw new Error("No site was made.");
  const ratio = ratioOf(many.p50s, few.p50s);
  const rows = sites.map(({ held, p50s, micros }) => [
    number(held),
    number(medianOf(p50s), 4),
    spreadText(ratioOf(p50s, few.p50s)),
    number(medianOf(micros), 2),
  ]);
  return {
    text: `## Many locks held

One caller, with locks of other users in Redis.

${table(["locks held", "acquire p50 ms", "1 000 = 1.00", "Redis: µs a pair in commands"], rows)}`,
    targets: [
      atMost(
        `latency of acquire with ${number(many.held)} locks held against ${number(few.held)}`,
        1.1,
        ratio.median,
        spreadText(ratio),
      ),
    ],
  };
}

/** Locks such as submit-lock makes them, with an owner id of the same length. */
async function fill({ redis }: Observer, count: number): Promise<void> {
  const script = `
    for i = tonumber(ARGV[1]), tonumber(ARGV[2]) do
      redis.call('SET', 'lock:submit:held' .. i, string.format('00000000-0000-4000-8000-%012d', i), 'PX', 3600000)
    end`;
  const step = 10_000;
  for (let from = 0; from < count; from += step) {
    await redis.eval(script, 0, from, Math.min(from + step, count) - 1);
  }
}

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
