import type { Facts, Info } from "./doctor-facts.ts";
import { generalFindings, serverFindings } from "./doctor-findings.ts";
import type { Finding } from "./finding.ts";

/** What `doctor` found: what `--json` prints. */
export interface Report {
  readonly servers: readonly ServerReport[];
  /** What concerns all servers together. */
  readonly findings: readonly Finding[];
  /** Who asked, where the address says it. */
  readonly user: string | undefined;
  readonly failures: number;
  readonly warnings: number;
}

/** What is `undefined` was not permitted. */
export interface ServerReport {
  readonly address: string;
  readonly version: string | undefined;
  readonly mode: string | undefined;
  readonly role: string | undefined;
  readonly replicas: number | undefined;
  readonly findings: readonly Finding[];
}

export function reportOf(facts: Facts, user: string | undefined): Report {
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

function versionOf(info: Info | undefined): string | undefined {
  if (info === undefined) return undefined;
  const { valkey_version: valkey, redis_version: redis } = info;
  return valkey === undefined ? `Redis ${redis}` : `Valkey ${valkey}`;
}
