import { answerOf, type Connection } from "./connect.ts";
import type { Context } from "./context.ts";
import type { Facts, Times } from "./doctor-facts.ts";
import { readPrefixes, readSentinels, readServers } from "./doctor-reading.ts";
import { reportOf } from "./doctor-report.ts";
import { doctorText } from "./doctor-text.ts";
import { parseDuration } from "./durations.ts";
import { exitCode, toCliError } from "./failure.ts";
import { clientOf } from "./scan.ts";
import { json } from "./visible.ts";

/** `submit-lock doctor` */
export async function doctor({ args, terminal, open }: Context): Promise<number> {
  const budgetMs = parseDuration("budget", args.text("budget") ?? "2s");
  // The defaults of a lock.
  const ttlMs = parseDuration("ttl", args.text("ttl") ?? "10s");
  const times = { ttlMs, acquireTimeoutMs: 1_000, commandTimeoutMs: 200 };
  const connection = await open();
  const report = reportOf(await read(connection, times, budgetMs), connection.user);
  if (args.has("json")) terminal.print([json(report)]);
  else terminal.print(doctorText(report, terminal.paint));
  return report.failures === 0 ? exitCode.done : exitCode.found;
}

async function read(connection: Connection, times: Times, budgetMs: number): Promise<Facts> {
  const client = clientOf(connection, "doctor");
  const servers = await readServers(connection, client);
  // Its role says why it refuses, and that once.
  const isReplica = servers.some(({ info }) => info?.["role"] === "slave");
  return {
    times,
    servers,
    check: isReplica ? undefined : await tried(connection),
    sentinels: await readSentinels(connection, client),
    prefixes: await readPrefixes(connection, client, budgetMs).catch(() => undefined),
  };
}

/** A throwaway lock of each prefix. */
async function tried(connection: Connection): Promise<NonNullable<Facts["check"]>> {
  const startedAt = performance.now();
  try {
    for (const { lock } of connection.locks) await answerOf(connection, lock.check());
    const tookMs = (performance.now() - startedAt) / connection.locks.length;
    return { tookMs, failure: undefined };
  } catch (error) {
    return { tookMs: 0, failure: toCliError(error, connection.address).message };
  }
}
