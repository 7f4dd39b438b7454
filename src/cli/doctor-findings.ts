import { duration, plural, program } from "./terminal.ts";

/** A server's INFO, or a section of it: field and value. */
export type Info = Readonly<Record<string, string | undefined>>;

/** The times of the lock. */
interface Times {
  readonly ttlMs: number;
  readonly commandTimeoutMs: number;
}

/** Read from one server. A member is `undefined` where Redis does not permit it. */
export interface ServerFacts {
  readonly address: string;
  readonly isClusterNode: boolean;
  /** The reason why nothing was read. */
  readonly failure?: string;
  readonly info?: Info | undefined;
  /** The run id at another connection to the same address; not on a Cluster. */
  readonly secondRunId?: string | undefined;
  /** CLUSTER INFO. */
  readonly cluster?: Info | undefined;
  readonly nodeTimeoutMs?: number | undefined;
  readonly latency?:
    | { readonly count: number; readonly medianMs: number; readonly p99Ms: number }
    | undefined;
}

/** Read from one Sentinel. */
export interface SentinelFacts {
  readonly address: string;
  readonly downAfterMs?: number | undefined;
  /** The answer to SENTINEL CKQUORUM. */
  readonly quorum?: string | undefined;
  /** The reason why nothing was read. */
  readonly failure?: string | undefined;
}

/** Counted from the keys of one prefix. */
export interface PrefixFacts {
  readonly keyPrefix: string;
  readonly foreign: number;
  /** Foreign keys without an expiry. */
  readonly endless: number;
  /** Keys of this package that have more life than they can have been given. */
  readonly setBack: number;
  readonly isComplete: boolean;
}

/** All that the findings are based on. */
export interface Facts {
  readonly times: Times;
  readonly servers: readonly ServerFacts[];
  readonly sentinels: readonly SentinelFacts[];
  /** The trial of a throwaway lock; `undefined` on a replica. */
  readonly check: { readonly tookMs: number; readonly failure: string | undefined } | undefined;
  /** `undefined` where SCAN is not permitted. */
  readonly prefixes: readonly PrefixFacts[] | undefined;
}

/**
 * - `ok`: looked at, and right.
 * - `warn`: locks are lost or refused when something else fails.
 * - `fail`: locks are lost or refused already.
 * - `unknown`: it could not be looked at.
 */
export type Level = "ok" | "warn" | "fail" | "unknown";

export interface Finding {
  readonly level: Level;
  /** A stable name of the check. */
  readonly check: string;
  readonly text: string;
  readonly remedy?: string;
}

const ok = (check: string, text: string): Finding => ({ level: "ok", check, text });
const unknown = (check: string, text: string): Finding => ({ level: "unknown", check, text });
const warn = (check: string, text: string, remedy: string): Finding => {
  return { level: "warn", check, text, remedy };
};
const fail = (check: string, text: string, remedy: string): Finding => {
  return { level: "fail", check, text, remedy };
};

/** Findings about one server. */
export function* serverFindings(server: ServerFacts, times: Times): Generator<Finding> {
  const { info, failure } = server;
  if (failure !== undefined) {
    const remedy =
      "let a replica take over; without a replica, start the server again. Never start a master without persistence before a replica has taken over: it starts empty";
    yield fail("reach", failure, remedy);
  } else if (info === undefined) {
    yield unknown("info", "version, role, memory and persistence: not permitted (+info)");
    yield* latencyFindings(server, times);
  } else {
    yield* versionFindings(info);
    yield* roleFindings(server, info);
    yield* memoryFindings(info);
    yield* persistenceFindings(info);
    yield* latencyFindings(server, times);
    if (server.isClusterNode) yield* clusterFindings(server, times);
  }
}

/** The package is tested on Redis 7 and 8, and on Valkey 8 and 9, which reports to be like Redis 7.2. */
function* versionFindings({ redis_version: version = "?" }: Info): Generator<Finding> {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  if (major >= 7) return;
  const remedy = "use Redis 7 or later, or Valkey 8 or later";
  yield major === 6 && minor >= 2
    ? unknown("version", `Redis ${version}: submit-lock is not tested on it`)
    : fail("version", `Redis ${version} is too old for a lock`, remedy);
}

function* roleFindings(
  { secondRunId, isClusterNode }: ServerFacts,
  info: Info,
): Generator<Finding> {
  const { role, run_id: runId, connected_slaves: replicas = "0" } = info;
  if (role === "slave") {
    const remedy = `use the master's address, ${info["master_host"]}:${info["master_port"]}, or Sentinels that know it`;
    yield fail("role", "this is a replica: it refuses every lock", remedy);
  }
  if (secondRunId !== undefined && secondRunId !== runId) {
    const ids = `${runId?.slice(0, 4)}… and ${secondRunId.slice(0, 4)}…`;
    const text = `two connections to this address reached two servers (run_id ${ids}): a proxy that splits traffic, or two masters`;
    yield fail("one-server", text, "use an address that always leads to the one master");
  }
  // A Cluster's masters have a quorum instead.
  if (role !== "master" || replicas === "0" || isClusterNode) return;
  const text =
    "min-replicas-to-write 0: a master that is cut off from its replicas continues to grant locks";
  const remedy =
    "CONFIG SET min-replicas-to-write 1; Redis then refuses all writes while no replica is connected";
  // INFO has this field unless min-replicas-to-write is 0.
  yield info["min_slaves_good_slaves"] === undefined
    ? warn("min-replicas", text, remedy)
    : ok("min-replicas", "min-replicas-to-write is set");
}

/** Whether Redis may evict a lock, or refuse one because its memory is full. */
function* memoryFindings(info: Info): Generator<Finding> {
  const { maxmemory = "0", maxmemory_policy: policy = "?", used_memory: used = "0" } = info;
  const limit = Number(maxmemory);
  if (policy !== "noeviction" && limit > 0) {
    const { evicted_keys: keys = "0" } = info;
    const evicted = keys === "0" ? "" : `. ${keys} keys were evicted since the start`;
    const text = `maxmemory-policy is ${policy}: under memory pressure it evicts ${victims(policy)}${evicted}`;
    const remedy =
      "give the lock a Redis of its own; or CONFIG SET maxmemory-policy noeviction, with which a shared cache that is full refuses all writes";
    yield fail("eviction", text, remedy);
    return;
  }
  const isUnlimited = policy === "noeviction" ? "" : ", and no maxmemory: nothing is evicted";
  yield ok("eviction", `maxmemory-policy ${policy}${isUnlimited}`);
  if (limit > 0 && Number(used) > 0.9 * limit) {
    const percent = Math.round((100 * Number(used)) / limit);
    const text = `${percent} % of maxmemory is in use: a full Redis refuses every lock`;
    yield warn("memory", text, "raise maxmemory");
  }
}

function victims(policy: string): string {
  if (policy === "volatile-ttl") return "the keys that expire soonest, and those are the locks";
  if (policy.startsWith("volatile-")) return "keys that have an expiry, and every lock has one";
  return "any key, locks among them";
}

/** Whether a restart loses locks, or a failed write to the disk refuses them. */
function* persistenceFindings(info: Info): Generator<Finding> {
  const hasLog = info["aof_enabled"] === "1";
  const lost = "appendonly no: a restart loses all locks and records";
  yield hasLog
    ? ok("persistence", "appendonly yes")
    : warn("persistence", lost, "CONFIG SET appendonly yes, and the same in redis.conf");
  const refusal = (file: string) => {
    const text = `the last write of the ${file} failed: Redis refuses every lock until one succeeds`;
    const remedy =
      "make room on the disk, or correct the folder's rights; the server's log says which";
    return fail("disk", text, remedy);
  };
  if (hasLog && info["aof_last_write_status"] === "err") yield refusal("append-only file");
  if (info["rdb_last_bgsave_status"] === "err") yield refusal("snapshot");
}

function* latencyFindings({ latency }: ServerFacts, times: Times): Generator<Finding> {
  if (latency === undefined) return;
  const { medianMs, p99Ms, count } = latency;
  const { commandTimeoutMs } = times;
  const text = `latency of ${count} answers: p50 ${medianMs.toFixed(1)} ms, p99 ${p99Ms.toFixed(1)} ms (commandTimeoutMs is ${commandTimeoutMs})`;
  const remedy = "raise commandTimeoutMs, or use a Redis that is nearer";
  yield medianMs <= commandTimeoutMs
    ? ok("latency", text)
    : warn("latency", `${text}: most commands are sent twice`, remedy);
}

/** Whether a Cluster serves every user, and how long a failover takes. */
function* clusterFindings(server: ServerFacts, { ttlMs }: Times): Generator<Finding> {
  const { cluster, nodeTimeoutMs } = server;
  if (cluster === undefined) {
    yield unknown("cluster", "state of the Cluster: not permitted (+cluster|info)");
  } else if (cluster["cluster_state"] !== "ok") {
    const text = `cluster_state is ${cluster["cluster_state"]}: ${cluster["cluster_slots_ok"]} of 16384 slots are served, and the users of the others cannot order`;
    const remedy =
      "find the master that is gone with CLUSTER NODES. Do not start one without persistence before a replica has taken over: it starts empty";
    yield fail("cluster", text, remedy);
  }
  if (nodeTimeoutMs === undefined) {
    yield unknown("node-timeout", "cluster-node-timeout: not permitted (+config|get)");
  } else if (nodeTimeoutMs > ttlMs) {
    const text = `cluster-node-timeout ${slow(nodeTimeoutMs, ttlMs)}`;
    yield warn("node-timeout", text, "CONFIG SET cluster-node-timeout 5000");
  }
}

function slow(ms: number, ttlMs: number): string {
  return `${duration(ms)} is longer than ttlMs, ${duration(ttlMs)}: every order that is under way at a failover loses its lease`;
}

/** Findings about all servers together. */
export function* generalFindings(facts: Facts): Generator<Finding> {
  const { check, prefixes, sentinels, times } = facts;
  if (check?.failure !== undefined) {
    yield { level: "fail", check: "commands", text: `the lock cannot work: ${check.failure}` };
  } else if (check !== undefined) {
    const time = `acquire, extend, release in ${check.tookMs.toFixed(1)} ms`;
    yield ok("commands", `every command of the lock: ${time}`);
  }
  for (const sentinel of sentinels) yield* sentinelFindings(sentinel, times);
  if (prefixes === undefined) yield unknown("keys", "keys of other locks: not permitted (+scan)");
  for (const prefix of prefixes ?? []) yield* keyFindings(prefix);
}

function* sentinelFindings(facts: SentinelFacts, { ttlMs }: Times): Generator<Finding> {
  const { address, downAfterMs, quorum, failure } = facts;
  const name = `Sentinel ${address}`;
  if (failure !== undefined) yield unknown("sentinel", `${name}: ${failure}`);
  else if (quorum !== undefined && !quorum.startsWith("OK")) {
    const text = `${name}: ${quorum}. No replica takes over when the master is gone`;
    yield fail("quorum", text, "start the Sentinels that are missing");
  }
  if (downAfterMs !== undefined && downAfterMs > ttlMs) {
    const text = `${name}: down-after-milliseconds ${slow(downAfterMs, ttlMs)}`;
    yield warn("down-after", text, "SENTINEL SET <master> down-after-milliseconds 5000");
  }
}

function* keyFindings(facts: PrefixFacts): Generator<Finding> {
  const { keyPrefix, foreign, endless, setBack, isComplete } = facts;
  if (setBack > 0) {
    const text = `Redis' clock was set back: ${plural(setBack, "key")} under ${keyPrefix} would live longer than meant, until the user tries again`;
    const remedy =
      "use an NTP service on Redis' host that slows the clock and does not set it back";
    yield warn("clock-set-back", text, remedy);
  }
  if (foreign > 0) {
    const text = `${plural(foreign, "key")} under ${keyPrefix} ${foreign === 1 ? "is" : "are"} of another lock, ${endless} without an expiry`;
    yield warn("keys", text, `${program} list --state foreign`);
  }
  if (!isComplete) {
    const text = `keys under ${keyPrefix}: not all were looked at in time; --budget 60s allows more`;
    yield unknown("keys", text);
  }
}
