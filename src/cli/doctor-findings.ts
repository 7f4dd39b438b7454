import { program } from "./commands.ts";
import type { Facts, Info, PrefixFacts, ServerFacts, Times } from "./doctor-facts.ts";
import { clusterFindings, sentinelFindings } from "./doctor-failover.ts";
import { memoryFindings, persistenceFindings } from "./doctor-memory.ts";
import { duration } from "./durations.ts";
import type { Finding } from "./finding.ts";

/** What is wrong with one server, and what is right. */
export function serverFindings(server: ServerFacts, times: Times): Finding[] {
  const { info, failure } = server;
  if (failure !== undefined) {
    const remedy =
      "let a replica take over; without one, start it again. A master without persistence comes back empty: never start it before a replica has taken over";
    return [{ level: "fail", check: "reach", text: failure, remedy }];
  }
  if (info === undefined) {
    return [
      {
        level: "unknown",
        check: "info",
        text: "version, memory, persistence and replication: not permitted (+info)",
      },
      ...latencyFindings(server, times),
    ];
  }
  return [
    ...versionFindings(info),
    ...roleFindings(server, info),
    ...memoryFindings(info),
    ...persistenceFindings(info),
    ...trafficFindings(info),
    ...latencyFindings(server, times),
    ...clusterFindings(server, times),
  ];
}

/** What concerns all servers together. */
export function generalFindings({ check, prefixes, sentinels, times }: Facts): Finding[] {
  return [
    ...(check === undefined ? [] : [checkFinding(check)]),
    ...sentinels.flatMap((sentinel) => sentinelFindings(sentinel, times)),
    ...(prefixes === undefined
      ? [
          {
            level: "unknown" as const,
            check: "keys",
            text: "keys of other locks: not permitted (+scan)",
          },
        ]
      : prefixes.flatMap(keyFindings)),
  ];
}

function checkFinding(check: NonNullable<Facts["check"]>): Finding {
  return check.failure === undefined
    ? {
        level: "ok",
        check: "commands",
        text: `every command of the lock: acquire, extend, release in ${check.tookMs.toFixed(1)} ms`,
      }
    : { level: "fail", check: "commands", text: `the lock cannot work: ${check.failure}` };
}

/** The servers that the package is tested on are Redis 7 and 8, and Valkey 8 and 9. */
function versionFindings(info: Info): Finding[] {
  const version = info["redis_version"] ?? "?";
  const [major = 0, minor = 0] = version.split(".").map(Number);
  const other = ["dragonfly_version", "kvrocks_version", "garnet_version"].find(
    (name) => name in info,
  );
  const check = "version";
  if (other !== undefined) {
    const text = `${other.replace("_version", "")} ${info[other]}: submit-lock is not tested on it`;
    return [{ level: "unknown", check, text }];
  }
  // Valkey says so itself, and that it is as Redis 7.2.
  if ("valkey_version" in info || major >= 7) return [];
  if (major > 6 || (major === 6 && minor >= 2)) {
    return [{ level: "unknown", check, text: `Redis ${version}: submit-lock is not tested on it` }];
  }
  const remedy = "Redis 7 or later, or Valkey 8 or later";
  return [{ level: "fail", check, text: `Redis ${version} is too old for a lock`, remedy }];
}

function roleFindings({ secondRunId, isClusterNode }: ServerFacts, info: Info): Finding[] {
  const findings: Finding[] = [];
  const { role, run_id: runId, connected_slaves: connected = "0" } = info;
  if (role === "slave") {
    findings.push({
      level: "fail",
      check: "role",
      text: "this is a replica: it refuses every lock",
      remedy: `the master's address, ${info["master_host"]}:${info["master_port"]}, or Sentinels that know it`,
    });
  }
  if (secondRunId !== undefined && secondRunId !== runId) {
    findings.push({
      level: "fail",
      check: "one-server",
      text: `two connections to this address reached two servers (run_id ${runId?.slice(0, 4)}… and ${secondRunId.slice(0, 4)}…): a proxy that splits traffic, or two masters`,
      remedy: "an address that always leads to the one master",
    });
  }
  // The field is there exactly where min-replicas-to-write is not 0. A Cluster's masters have quorum.
  if (role === "master" && Number(connected) > 0 && !isClusterNode) {
    if (info["min_slaves_good_slaves"] === undefined) {
      findings.push({
        level: "warn",
        check: "min-replicas",
        text: "min-replicas-to-write 0: a master that is cut off from its replicas goes on granting locks",
        remedy:
          "CONFIG SET min-replicas-to-write 1; all writes are refused while no replica is there",
      });
    } else
      findings.push({ level: "ok", check: "min-replicas", text: "min-replicas-to-write is set" });
  }
  return [...findings, ...lagFindings(info)];
}

/** A replica that is behind by more than this knows none of the locks that are held. */
const mostLagS = 10;

function lagFindings(info: Info): Finding[] {
  const replicas = Object.entries(info).filter(([name]) => /^slave\d+$/.test(name));
  return replicas.flatMap(([, text]) => {
    const { ip, port, state, lag } = Object.fromEntries(
      text.split(",").map((part) => part.split("=") as [string, string]),
    );
    if (state !== "online" || Number(lag) <= mostLagS) return [];
    return [
      {
        level: "warn",
        check: "lag",
        text: `replica ${ip}:${port} has not been heard for ${lag} s: a failover to it lets go of every lock`,
        remedy: "look at the replica, and at the network between the two",
      },
    ];
  });
}

/** Answers that a lock cannot do with; counted since the server was started. */
const refusals: readonly (readonly [name: string, meaning: string])[] = [
  ["OOM", "a full Redis refuses locks"],
  ["MISCONF", "a Redis that cannot save refuses locks"],
  ["NOREPLICAS", "too few replicas were connected"],
  ["BUSY", "somebody's script held up everybody"],
];

function trafficFindings(info: Info): Finding[] {
  const findings: Finding[] = [];
  for (const [name, meaning] of refusals) {
    const [, times = "0"] = /count=(\d+)/.exec(info[`errorstat_${name}`] ?? "") ?? [];
    if (times === "0") continue;
    findings.push({
      level: "warn",
      check: `refusals-${name.toLowerCase()}`,
      text: `${name} was answered ${times} time${times === "1" ? "" : "s"} since the start: ${meaning}`,
      remedy: "look into the server's log; CONFIG RESETSTAT sets the counter back",
    });
  }
  const { maxclients = "0", connected_clients: clients = "0" } = info;
  if (Number(clients) > 0.9 * Number(maxclients) && Number(maxclients) > 0) {
    findings.push({
      level: "warn",
      check: "clients",
      text: `${clients} of at most ${maxclients} clients are connected: the next ones are refused`,
      remedy: "a larger maxclients, or fewer connections",
    });
  }
  return findings;
}

function latencyFindings({ latency, clock }: ServerFacts, times: Times): Finding[] {
  const findings: Finding[] = [];
  if (latency !== undefined) {
    const { medianMs, p99Ms, count } = latency;
    const measured = `latency of ${count} answers: p50 ${medianMs.toFixed(1)} ms, p99 ${p99Ms.toFixed(1)} ms (commandTimeoutMs is ${times.commandTimeoutMs})`;
    findings.push(
      medianMs > times.commandTimeoutMs
        ? {
            level: "warn",
            check: "latency",
            text: `${measured}: most commands are sent twice`,
            remedy: "a larger commandTimeoutMs, or a Redis that is nearer",
          }
        : { level: "ok", check: "latency", text: measured },
    );
  }
  if (clock !== undefined && Math.abs(clock.aheadMs) - clock.errorMs > times.acquireTimeoutMs) {
    const way = clock.aheadMs > 0 ? "ahead of" : "behind";
    findings.push({
      level: "warn",
      check: "clock",
      text: `this host's clock is ${duration(Math.abs(clock.aheadMs))} ${way} that of Redis: each process' first acquire takes two round trips`,
      remedy: "NTP on both",
    });
  }
  return findings;
}

function keyFindings(facts: PrefixFacts): Finding[] {
  const { keyPrefix, foreign, endless, setBack, isComplete } = facts;
  const findings: Finding[] = [];
  if (setBack > 0) {
    findings.push({
      level: "warn",
      check: "clock-set-back",
      text: `Redis' clock was set back: ${setBack} key${setBack === 1 ? "" : "s"} under ${keyPrefix} would live longer than meant, until the user tries again`,
      remedy: "an NTP service on Redis' host that slows the clock down and does not set it back",
    });
  }
  if (foreign > 0) {
    findings.push({
      level: "warn",
      check: "keys",
      text: `${foreign} key${foreign === 1 ? "" : "s"} under ${keyPrefix} ${foreign === 1 ? "is" : "are"} of another lock, ${endless} without an expiry`,
      remedy: `${program} list --state foreign`,
    });
  }
  if (!isComplete) {
    findings.push({
      level: "unknown",
      check: "keys",
      text: `keys under ${keyPrefix}: not all were looked at in the time; --budget 60s gives more`,
    });
  }
  return findings;
}
