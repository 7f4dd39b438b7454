import { startServer } from "../../test/support/server-process.ts";
import { ttlMs } from "../locker.ts";
import { atMost, type Findings } from "../part.ts";
import { Child } from "../process/child.ts";
import { Observer } from "../server-stats.ts";
import { number, table } from "../statistics.ts";
import type { WatchdogJob, WatchdogResult } from "../watchdog-worker.ts";

const leases = 10_000;
const periodSeconds = ttlMs / 3_000;

/** What many leases and their watchdogs do to the event loop of their process. */
export async function watchdogs(binary: string): Promise<Findings> {
  const server = await startServer(binary);
  const observer = new Observer(server.port);
  const process = await Child.start<WatchdogJob, WatchdogResult>(
    new URL("../watchdog-worker.ts", import.meta.url),
    [`${server.port}`],
  );
  const extendsOf = async (): Promise<number> => (await observer.stats()).calls.get("pexpire") ?? 0;
  const found: { name: string; result: WatchdogResult; extended: number }[] = [];
  for (const [name, job] of [
    ["none", { leases: 0, overSeconds: 0, watchSeconds: periodSeconds }],
    [
      `${number(leases)}, acquired over ${periodSeconds.toFixed(1)} s`,
      { leases, overSeconds: periodSeconds, watchSeconds: 2 * periodSeconds },
    ],
    [
      `${number(leases)}, acquired at once`,
      { leases, overSeconds: 0, watchSeconds: 2 * periodSeconds },
    ],
  ] as const) {
    const before = await extendsOf();
    const result = await process.run(job);
    found.push({ name, result, extended: (await extendsOf()) - before });
  }
  observer.close();
  await process.stop();
  await server.stop();
  const rows = found.map(({ name, result, extended }) => [
    name,
    number(result.p50Ms, 2),
    number(result.p99Ms, 2),
    number(result.maxMs, 1),
    number(extended),
    number(result.alive),
  ]);
  const head = [
    "leases in flight",
    "p50 ms",
    "p99 ms",
    "longest ms",
    "extended",
    "valid at the end",
  ];
  return {
    text: `## Watchdogs

How late the event loop of the process is (\`monitorEventLoopDelay\`, a tick of 1 ms, which is taken off), with a TTL of ${ttlMs / 1_000} s: each lease is extended every ${periodSeconds.toFixed(1)} s, in a window of ${(2 * periodSeconds).toFixed(1)} s. Leases that were acquired at once stay in step.

${table(head, rows)}`,
    targets: found
      .slice(1)
      .map(({ name, result }) =>
        atMost(
          `event-loop delay p99, ${name}`,
          5,
          result.p99Ms,
          `${number(result.p99Ms, 2)} ms`,
          " ms",
        ),
      ),
  };
}
