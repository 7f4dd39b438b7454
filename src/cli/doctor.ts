import { answerOf, type Connection } from "./connect.ts";
import type { Context } from "./context.ts";
import type { Facts, Times } from "./doctor-facts.ts";
import { generalFindings, serverFindings } from "./doctor-findings.ts";
import { readPrefixes, readSentinels, readServers } from "./doctor-reading.ts";
import { doctorText, type Report } from "./doctor-text.ts";
import { parseDuration } from "./durations.ts";
import { exitCode, toCliError } from "./failure.ts";
import { clientOf } from "./scan.ts";

/** `submit-lock doctor` */
export async function doctor({ args, terminal, open }: Context): Promise<number> {
  const budgetMs = parseDuration("budget", args.text("budget") ?? "2s");
  // The defaults of a lock.
  const ttlMs = parseDuration("ttl", args.text("ttl") ?? "10s");
  const times = { ttlMs, acquireTimeoutMs: 1_000, commandTimeoutMs: 200 };
  const connection = await open();
  const report = reportOf(await read(connection, times, budgetMs), connection.user);
  if (args.has("json")) terminal.print([JSON.stringify(report)]);
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

function reportOf(facts: Facts, user: string | undefined): Report {
  const servers = facts.servers.map((server) => ({
    address: server.address,
    version: versionOf(server.info),
    mode: server.info?.["redis_mode"],
    role: server.info?.["role"] === "slave" ? "replica" : server.info?.["role"],
    replicas: server.info === undefined ? undefined : Number(server.info["connected_slaves"] ?? 0),
    findings: serverFindings(server, facts.times),
  }));
  const findings = generalFindings(facts);
  const all = [...findings, ...servers.flatMap((server) => server.findings)];
  const levels = (level: string) => all.filter((finding) => finding.level === level).length;
  return { servers, findings, user, failures: levels("fail"), warnings: levels("warn") };
}

function versionOf(info: Facts["servers"][number]["info"]): string | undefined {
  if (info === undefined) return undefined;
  const { valkey_version: valkey, redis_version: redis } = info;
  return valkey === undefined ? `Redis ${redis}` : `Valkey ${valkey}`;
}
