import type { ServerPort } from "../stores/redis/clients/port.ts";
import { hashTag, slotOf } from "../stores/redis/clients/slots.ts";
import { askNode, askSharing } from "../stores/redis/gathering.ts";
import { refusals } from "../stores/redis/redis-errors.ts";
import { performance } from "../time.ts";
import { isError } from "../validation.ts";
import { answerOf } from "./connect.ts";
import type { Arguments, CliTarget, Context } from "./context.ts";
import { exitCode, toCliError } from "./failure.ts";
import { findLocks } from "./list.ts";
import { clientOf, scanKeys } from "./scan.ts";
import { duration, firstOf, json, type Paint, plural, visible } from "./terminal.ts";

export interface Report {
  readonly servers: readonly ServerReport[];
  readonly findings: readonly Finding[];
  readonly user: string | undefined;
  readonly failures: number;
  readonly warnings: number;
}

/** About one server. If it does not permit or answer INFO, only address and findings are set. */
interface ServerReport {
  readonly address: string;
  readonly version?: string | undefined;
  readonly mode?: string | undefined;
  readonly role?: string | undefined;
  readonly replicas?: number | undefined;
  readonly findings: readonly Finding[];
}

interface Finding {
  /** `fail`: urgent, and the exit code is 1. `warn`: less urgent. `unknown`: not checked. */
  readonly level: "ok" | "warn" | "fail" | "unknown";
  readonly check: string;
  readonly text: string;
  readonly remedy?: string | undefined;
}

type Add = (level: Finding["level"], check: string, text: string, remedy?: string) => void;

function adding(findings: Finding[]): Add {
  return (level, check, text, remedy) => findings.push({ level, check, text, remedy });
}

export async function doctor({ args, terminal, open }: Context): Promise<number> {
  const budgetMs = args.duration("budget", 2_000);
  const ttlMs = args.duration("ttl", 10_000);
  const connection = await open();
  // List the masters before the first question: the client forgets a master that is silent.
  const masters = clientOf(connection).servers();
  const hasRecords = await holdsRecords(connection, budgetMs);
  const looks = masters.map((node) => examine(connection, node, ttlMs, hasRecords));
  const servers = await Promise.all(looks);
  const findings: Finding[] = [];
  const add = adding(findings);
  // A replica refuses every lock, which the finding about its role explains.
  if (!servers.some(({ role }) => role === "replica")) {
    const { address, locks } = connection;
    const startedAt = performance.now();
    try {
      for (const lock of locks) await answerOf(address, lock.check());
      const ms = ((performance.now() - startedAt) / locks.length).toFixed(1);
      add("ok", "commands", `acquire, extend and release of a lock work (${ms} ms together)`);
    } catch (error) {
      add("fail", "commands", `the lock cannot work: ${toCliError(error, address).message}`);
    }
  }
  await lookAtKeys(connection, args, budgetMs, add);
  const all = [...findings, ...servers.flatMap((server) => server.findings)];
  const failures = all.filter(({ level }) => level === "fail").length;
  const warnings = all.filter(({ level }) => level === "warn").length;
  const report = { servers, findings, user: connection.user, failures, warnings };
  terminal.print(args.has("json") ? [json(report)] : doctorText(report, terminal.paint));
  return failures === 0 ? exitCode.done : exitCode.found;
}

async function examine(
  target: CliTarget,
  node: ServerPort,
  ttlMs: number,
  hasRecords: boolean,
): Promise<ServerReport> {
  const isClusterNode = target.client?.isCluster === true;
  const { address } = node;
  const findings: Finding[] = [];
  const add = adding(findings);
  try {
    const text = await ifPermitted(node, ["info", "everything"]);
    const info = infoOf(text);
    if (text === undefined) {
      add("unknown", "info", "version, role, memory and persistence: not permitted (+info)");
    } else {
      const setting = await ifPermitted(node, ["config", "GET", "save"]);
      const save = settingIn(setting, "save");
      lookAtInfo(info, isClusterNode, save, add);
      lookAtPersistence(info, save, hasRecords, add);
    }
    if (isClusterNode) await lookAtCluster(node, ttlMs, add);
    await lookAtCalls(target, node, info, add);
    const { valkey_version: valkey, redis_version: redis, role } = info;
    return {
      address,
      version: valkey === undefined ? redis && `Redis ${redis}` : `Valkey ${valkey}`,
      mode: modeOf(info),
      role: role === "slave" ? "replica" : role,
      replicas: text === undefined ? undefined : Number(info["connected_slaves"] ?? 0),
      findings,
    };
  } catch (error) {
    if (!isClusterNode) throw error;
    const { message: text } = toCliError(error, address);
    return { address, findings: [{ level: "fail", check: "reach", text, remedy: dead }] };
  }
}

const dead =
  "let a replica take over; without one, start the server again. Never start a master without persistence before a replica has taken over: it starts empty";

/** Valkey also calls the mode `server_mode`, and from 9.1 on has only this name. */
function modeOf(info: Info): string | undefined {
  return info["redis_mode"] ?? info["server_mode"];
}

/** Resolves to `undefined` if Redis does not permit the command, or does not have it. */
function ifPermitted(node: ServerPort, words: readonly string[]) {
  return answerOf(node.address, node.ask(words)).catch((error: Error): undefined => {
    if (!refusals.command.test(error.message)) throw error;
  });
}

type Info = Readonly<Record<string, string | undefined>>;

function infoOf(text: unknown): Info {
  const lines = [...String(text).matchAll(/^(\w+):(.*?)\r?$/gm)];
  return Object.fromEntries(lines.map(([, field, value]) => [field, value]));
}

/** A value in a reply of names and values: a flat list in RESP2, an object or a Map in RESP3. */
function settingIn(reply: unknown, name: string): unknown {
  if (Array.isArray(reply)) return reply[reply.indexOf(name) + 1];
  return reply instanceof Map ? reply.get(name) : Object(reply)[name];
}

/** @param save the save points; `""` for none, and `undefined` where they must not be read. */
function lookAtInfo(info: Info, isClusterNode: boolean, save: unknown, add: Add): void {
  const { role, connected_slaves: replicas = "0" } = info;
  if (role === "slave") {
    const remedy = `use the master's address, ${info["master_host"]}:${info["master_port"]}, or Sentinels that know it`;
    add("fail", "role", "this is a replica: it refuses every lock", remedy);
  }
  // A Cluster is safe: its master that is cut off from the majority refuses writes by itself.
  if (role === "master" && replicas !== "0" && !isClusterNode) {
    const text =
      "min-replicas-to-write or min-replicas-max-lag is 0: a master that is cut off continues to grant locks";
    const remedy =
      "CONFIG SET min-replicas-to-write 1, and min-replicas-max-lag above 0. A master without replicas then refuses all writes";
    // INFO has this field unless one of the two settings is 0.
    if (info["min_slaves_good_slaves"] === undefined) add("warn", "min-replicas", text, remedy);
    else add("ok", "min-replicas", "min-replicas-to-write is set");
  }

  const { maxmemory_policy: policy = "?", evicted_keys: evicted = "0" } = info;
  if (policy !== "noeviction" && Number(info["maxmemory"] ?? 0) > 0) {
    const victims = policy.startsWith("allkeys-")
      ? "any key, locks among them"
      : "keys that have an expiry, which all locks and answers have";
    const text = `maxmemory-policy is ${policy}: under memory pressure it evicts ${victims}`;
    const remedy =
      "give the lock a Redis of its own; or CONFIG SET maxmemory-policy noeviction, with which a shared cache that is full refuses writes that need memory";
    add("fail", "eviction", `${text} (${evicted} keys so far)`, remedy);
  } else if (policy === "noeviction") add("ok", "eviction", "maxmemory-policy noeviction");
  else {
    const text = `maxmemory-policy is ${policy}: it evicts locks as soon as there is a maxmemory`;
    add("warn", "eviction", text, "CONFIG SET maxmemory-policy noeviction");
  }

  const isLogBroken = info["aof_enabled"] === "1" && info["aof_last_write_status"] === "err";
  // Without save points, Redis ignores a snapshot that failed.
  if (isLogBroken || (info["rdb_last_bgsave_status"] === "err" && save !== "")) {
    const text = `Redis could not save its ${isLogBroken ? "append-only file" : "snapshot"}: by default, it refuses every lock until it can save again`;
    const remedy =
      "free some disk space, or let Redis write to its directory: the log of Redis names the error";
    add("fail", "disk", text, remedy);
  }
}

function lookAtPersistence(info: Info, save: unknown, hasRecords: boolean, add: Add): void {
  if (info["aof_enabled"] === "1") {
    add("ok", "persistence", "appendonly yes");
    return;
  }
  const isLost = save === "";
  const settings = isLost ? 'appendonly no and save ""' : "appendonly no";
  const snapshot = `since the last snapshot${save === undefined ? ", if there are any (to know, +config|get)" : ""}`;
  const lost = isLost ? "every lock and record" : `the locks and records ${snapshot}`;
  const text = `${settings}: a restart loses ${lost}. An order that a customer repeats afterwards runs again`;
  const remedy =
    "CONFIG SET appendonly yes; it keeps the writes of all users of this Redis on its disk. To keep it, CONFIG REWRITE, or without a configuration file --appendonly yes where the server is started";
  add(isLost && hasRecords ? "fail" : "warn", "persistence", text, remedy);
}

/** Whether a scan finds a record by its name; `false` also where it was refused or ran out of time. */
async function holdsRecords(connection: CliTarget, budgetMs: number): Promise<boolean> {
  let found = false;
  const look = async (keys: readonly string[]) => {
    found ||= keys.some((key) => /:[\w-]{22}$/.test(key));
    return found ? "Found" : undefined;
  };
  for (const { keyPrefix } of connection.locks) {
    const whole = connection.clientPrefix + keyPrefix;
    // The beginning of the keys that `recordKeyOf` makes, without the client's prefix in front.
    const start = hashTag(whole) === undefined ? `{${whole}` : keyPrefix;
    await scanKeys(connection, start, budgetMs, look).catch(() => undefined);
  }
  return found;
}

async function lookAtCluster(node: ServerPort, ttlMs: number, add: Add): Promise<void> {
  const info = await ifPermitted(node, ["cluster", "INFO"]);
  const { cluster_state: state, cluster_slots_ok: slots } = infoOf(info);
  if (info === undefined) {
    add("unknown", "cluster", "state of the Cluster: not permitted (+cluster|info)");
  } else if (state !== "ok" || Number(slots) < 16_384) {
    // The text names this node: a node that is cut off from the majority sees another state.
    const text =
      state === "ok"
        ? `this node sees ${slots} of 16384 slots served: the users of the others cannot order`
        : `cluster_state of this node is ${state} (${slots} of 16384 slots are served): it refuses every lock`;
    add("fail", "cluster", text, `find the master that is gone with CLUSTER NODES; ${dead}`);
  }
  const nodes = await ifPermitted(node, ["cluster", "NODES"]);
  const [line = ""] = /^.*\bmyself\b.*$/m.exec(String(nodes)) ?? [];
  const open = [...line.matchAll(/\[(\d+)-[<>]-/g)].map(([, slot = ""]) => slot);
  if (nodes === undefined) {
    add("unknown", "moving", "slots that are being moved: not permitted (+cluster|nodes)");
  } else if (open.length > 0) {
    const text = `a move of ${plural(open.length, "slot")} (${firstOf(open)}) from or to this node has not ended: until then, requests with idempotency of their users are 503`;
    const remedy =
      "if nothing moves slots now, that was interrupted: redis-cli --cluster fix ends it";
    add("warn", "moving", text, remedy);
  }
  const setting = "cluster-node-timeout";
  const timeout = await ifPermitted(node, ["config", "GET", setting]);
  const timeoutMs = Number(settingIn(timeout, setting));
  if (Number.isNaN(timeoutMs)) {
    add("unknown", "node-timeout", "cluster-node-timeout: not permitted (+config|get)");
  } else if (timeoutMs > ttlMs) {
    const text = `cluster-node-timeout ${duration(timeoutMs)} is longer than ttlMs, ${duration(ttlMs)}: orders that outlast their lease on a failed master lose it before the failover`;
    add("warn", "node-timeout", text, "CONFIG SET cluster-node-timeout 5000");
  }
}

/** Rules 23 and 24: reports whether locks share calls. If not, orders cost more; no lock is lost. */
async function lookAtCalls(target: CliTarget, node: ServerPort, info: Info, add: Add) {
  const { client, clientPrefix, locks } = target;
  const shared = "the locks of many users share a call";
  const isAlone = "each lock is a call of its own";
  if (client?.isCluster === true) {
    const keyOf = (_: unknown, user: number) => clientPrefix + locks[0].keyFor(`${user}`);
    const keys = Array.from({ length: 1_000 }, keyOf);
    const key = keys.find((each) => client.master(client.nodeOf(slotOf(each))) === node);
    if (key === undefined) return;
    const answer = await answerOf(node.address, askNode(node, key));
    const why = "the server is below 7.0, or refuses undeclared keys";
    add("ok", "gathering", answer === "yes" ? shared : `${isAlone}: ${why}`);
  } else if (modeOf(info) === "cluster") {
    const remedy = "use the Cluster client of ioredis or node-redis, and --cluster here";
    add("warn", "sharing", `cluster mode, but a plain client: ${isAlone}`, remedy);
  } else {
    const answer = await answerOf(node.address, askSharing(node, locks[0].keyFor("doctor")));
    const why = "the address leads to more than one server, or Redis refused the question";
    add("ok", "sharing", answer === "yes" ? shared : `${isAlone}: ${why}`);
  }
}

async function lookAtKeys(connection: CliTarget, args: Arguments, budgetMs: number, add: Add) {
  for (const lock of connection.locks) {
    const listed = await findLocks(connection, lock, budgetMs).catch((error) => error as Error);
    const under = `under ${lock.keyPrefix}`;
    if (isError(listed)) {
      add("unknown", "keys", `the keys ${under} were not looked at: ${listed.message}`);
      continue;
    }
    const all = listed.locks.map(({ found }) => found);
    const setBack = all.filter((found) => "clockSetBack" in found).length;
    const foreign = all.filter(({ state }) => state === "foreign");
    const endless = foreign.filter(({ expiresInMs }) => expiresInMs === Number.POSITIVE_INFINITY);
    if (setBack > 0) {
      const text = `Redis' clock was set back: ${plural(setBack, "key")} ${under} would live longer than meant, until the user tries again`;
      const remedy = "use an NTP service on Redis' host that never sets the clock back";
      add("warn", "clock-set-back", text, remedy);
    }
    if (foreign.length > 0) {
      const text = `${plural(foreign.length, "key")} ${under} ${foreign.length === 1 ? "is" : "are"} of another lock, ${endless.length} without an expiry`;
      add("warn", "keys", text, args.suggest("list --state foreign", "", lock.keyPrefix));
    }
    const { partial, strange } = listed;
    if (strange.length > 0) {
      const text = `${plural(strange.length, "key")} ${under} of no user id: perhaps locks of another program, or of another prefix`;
      add("warn", "other-keys", text, args.suggest("list", "", lock.keyPrefix));
    }
    if (partial) add("unknown", "keys", `keys ${under}: not all were looked at. ${partial}.`);
  }
}

function doctorText(report: Report, paint: Paint): string[] {
  const { servers, findings, user, failures, warnings } = report;
  const tones = { ok: "green", warn: "yellow", fail: "red", unknown: "dim" } as const;
  const labels = { ok: "ok", warn: "warn", fail: "FAIL", unknown: "?" };
  const print = (all: readonly Finding[]) =>
    all.flatMap(({ level, text, remedy }) => [
      `  ${paint(tones[level], labels[level].padEnd(6))}${visible(text)}`,
      // The remedy has a line of its own, so that it can be copied.
      ...(remedy === undefined ? [] : [`        → ${visible(remedy)}`]),
    ]);
  const lines = servers.flatMap(({ address, version, mode, role, replicas = 0, findings }) => {
    const count = role === "master" && plural(replicas, "replica");
    const parts = [address, version, mode, role, count, user && `as user ${user}`];
    return [paint("bold", visible(parts.filter(Boolean).join(", "))), ...print(findings)];
  });
  // With a single server, all findings are about it.
  if (servers.length > 1) lines.push(paint("bold", "all together"));
  lines.push(...print(findings));
  if (lines.some((line) => line.includes("CONFIG SET"))) {
    lines.push(
      "CONFIG SET affects all users of the server. CONFIG REWRITE keeps it in the configuration file, if there is one.",
    );
  }
  return [...lines, `${plural(failures, "failure")}, ${plural(warnings, "warning")}`];
}
