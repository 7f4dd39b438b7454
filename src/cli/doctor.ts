import type { Redis } from "ioredis";
import { addressOf } from "../stores/redis/ioredis.ts";
import { refusals } from "../stores/redis/no-answers.ts";
import { answerOf, type Client, type Connection, once } from "./connect.ts";
import {
  type Facts,
  type Finding,
  generalFindings,
  type Info,
  type Level,
  type PrefixFacts,
  type SentinelFacts,
  type ServerFacts,
  serverFindings,
} from "./doctor-findings.ts";
import { exitCode, toCliError } from "./failure.ts";
import { clientOf, findLocks, mastersOf } from "./list.ts";
import type { Context } from "./main.ts";
import { json, type Paint, plural, type Tone, visible, wrapped } from "./terminal.ts";

/** `submit-lock doctor` */
export async function doctor({ args, terminal, open }: Context): Promise<number> {
  const budgetMs = args.duration("budget", 2_000);
  // The defaults of a lock.
  const times = { ttlMs: args.duration("ttl", 10_000), commandTimeoutMs: 200 };
  const connection = await open();
  const client = clientOf(connection, "doctor");
  const servers = await readServers(connection, client);
  // A replica refuses every lock, which the finding about its role explains.
  const isReplica = servers.some(({ info }) => info?.["role"] === "slave");
  const facts: Facts = {
    times,
    servers,
    check: isReplica ? undefined : await tryLocks(connection),
    sentinels: await readSentinels(connection, client),
    prefixes: await readPrefixes(connection, client, budgetMs).catch(() => undefined),
  };
  const report = reportOf(facts, connection.user);
  if (args.has("json")) terminal.print([json(report)]);
  else terminal.print(doctorText(report, terminal.paint));
  return report.failures === 0 ? exitCode.done : exitCode.found;
}

async function readServers(connection: Connection, client: Client): Promise<ServerFacts[]> {
  const readings = mastersOf(client).map(async (node) => {
    const reading = readServer(connection, node, client.isCluster);
    if (!client.isCluster) return await reading;
    // The other nodes of a Cluster may be well.
    return await reading.catch((error: unknown) => {
      const address = addressOf(node);
      return { address, isClusterNode: true, failure: toCliError(error, address).message };
    });
  });
  return await Promise.all(readings);
}

async function readServer(
  connection: Connection,
  node: Redis,
  isClusterNode: boolean,
): Promise<ServerFacts> {
  const seen = <Value>(asked: Promise<Value>) => ifPermitted(answerOf(connection, asked));
  const info = await seen(node.info("everything").then(fieldsOf));
  const latency = await ifPermitted(measured(connection, node));
  const reached = { address: addressOf(node), isClusterNode, info, latency };
  if (!isClusterNode) {
    return { ...reached, secondRunId: info && (await secondRunId(connection, node)) };
  }
  const cluster = await seen(node.cluster("INFO"));
  const timeout = await seen(node.config("GET", "cluster-node-timeout"));
  const nodeTimeout = pairsOf(timeout).get("cluster-node-timeout");
  return {
    ...reached,
    cluster: cluster === undefined ? undefined : fieldsOf(String(cluster)),
    nodeTimeoutMs: nodeTimeout === undefined ? undefined : Number(nodeTimeout),
  };
}

/** Resolves to `undefined` if Redis does not permit it, or does not have the command. */
async function ifPermitted<Value>(asked: Promise<Value>): Promise<Value | undefined> {
  try {
    return await asked;
  } catch (error) {
    if (error instanceof Error && refusals.command.test(error.message)) return undefined;
    throw error;
  }
}

/** Uses EVAL, as the lock does: a user with the lock's permissions may not PING. */
async function measured(connection: Connection, node: Redis): Promise<ServerFacts["latency"]> {
  const tookMs: number[] = [];
  // 50 answers, or those of 2 s.
  for (const endsAt = performance.now() + 2_000; tookMs.length < 50; ) {
    const startedAt = performance.now();
    await answerOf(connection, node.eval("return 1", 0));
    tookMs.push(performance.now() - startedAt);
    if (performance.now() > endsAt) break;
  }
  tookMs.sort((one, other) => one - other);
  const count = tookMs.length;
  const medianMs = tookMs[Math.floor(count / 2)] ?? 0;
  const p99Ms = tookMs[Math.ceil(count * 0.99) - 1] ?? 0;
  return { count, medianMs, p99Ms };
}

/** The run id at another connection to the same address. */
async function secondRunId(connection: Connection, node: Redis): Promise<string | undefined> {
  const second = node.duplicate(once);
  second.on("error", () => {});
  try {
    await answerOf(connection, second.connect());
    return fieldsOf(await answerOf(connection, second.info("server")))["run_id"];
  } finally {
    second.disconnect();
  }
}

/** Tries a throwaway lock of each prefix. */
async function tryLocks(connection: Connection): Promise<NonNullable<Facts["check"]>> {
  const startedAt = performance.now();
  try {
    for (const { lock } of connection.locks) await answerOf(connection, lock.check());
    const tookMs = (performance.now() - startedAt) / connection.locks.length;
    return { tookMs, failure: undefined };
  } catch (error) {
    return { tookMs: 0, failure: toCliError(error, connection.address).message };
  }
}

async function readSentinels(connection: Connection, client: Client): Promise<SentinelFacts[]> {
  if (client.isCluster) return [];
  const redis = client as Redis;
  const { sentinels, name = "" } = redis.options;
  const readings = (sentinels ?? []).map(async ({ host = "127.0.0.1", port = 26_379 }) => {
    const address = `${host}:${port}`;
    // A Sentinel has no database, and a password of its own or none.
    const plain = { sentinels: null, username: "", password: "", db: 0, tls: undefined };
    const sentinel = redis.duplicate({ ...once, ...plain, host, port, keyPrefix: "" } as object);
    sentinel.on("error", () => {});
    const ask = (command: string) => answerOf(connection, sentinel.call("SENTINEL", command, name));
    try {
      await answerOf(connection, sentinel.connect());
      const downAfter = pairsOf(await ask("MASTER")).get("down-after-milliseconds");
      const quorum = await ask("CKQUORUM").catch((error: Error) => error.message);
      const downAfterMs = downAfter === undefined ? undefined : Number(downAfter);
      return { address, downAfterMs, quorum: String(quorum) };
    } catch (error) {
      return { address, failure: toCliError(error, address).message };
    } finally {
      sentinel.disconnect();
    }
  });
  return await Promise.all(readings);
}

async function readPrefixes(
  connection: Connection,
  client: Client,
  budgetMs: number,
): Promise<PrefixFacts[]> {
  const all: PrefixFacts[] = [];
  for (const prefixed of connection.locks) {
    const listed = await findLocks(connection, client, prefixed, budgetMs);
    const { keyPrefix, locks, isComplete } = listed;
    const foreign = locks.filter(({ found }) => found.state === "foreign");
    const endless = foreign.filter(({ found }) => found.expiresInMs === Number.POSITIVE_INFINITY);
    const setBack = locks.filter(({ found }) => "clockSetBack" in found).length;
    all.push({ keyPrefix, foreign: foreign.length, endless: endless.length, setBack, isComplete });
  }
  return all;
}

/** Reads the lines of INFO. */
function fieldsOf(text: string): Info {
  const lines = text.split("\r\n").filter((line) => line.includes(":"));
  return Object.fromEntries(
    lines.map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1)]),
  );
}

/** Reads a reply of names and values: a flat list in RESP2, an object or a Map in RESP3. */
function pairsOf(reply: unknown): Map<string, string> {
  const isFlat = Array.isArray(reply);
  const pairs = isFlat
    ? reply.flatMap((name, at) => (at % 2 === 0 ? [[name, reply[at + 1]]] : []))
    : reply instanceof Map
      ? [...reply]
      : Object.entries(reply ?? {});
  return new Map(pairs.map(([name, value]) => [String(name), String(value)]));
}

/** The findings of `doctor`, as `--json` prints them. */
export interface Report {
  readonly servers: readonly ServerReport[];
  /** About all servers together. */
  readonly findings: readonly Finding[];
  /** The name that the URL logs in with. */
  readonly user: string | undefined;
  readonly failures: number;
  readonly warnings: number;
}

/** A member is `undefined` where Redis does not permit INFO. */
interface ServerReport {
  readonly address: string;
  readonly version: string | undefined;
  readonly mode: string | undefined;
  readonly role: string | undefined;
  readonly replicas: number | undefined;
  readonly findings: readonly Finding[];
}

export function reportOf(facts: Facts, user: string | undefined): Report {
  const servers = facts.servers.map((server) => {
    const { address, info } = server;
    const { valkey_version: valkey, redis_version: redis, redis_mode: mode, role } = info ?? {};
    return {
      address,
      version: info && (valkey === undefined ? `Redis ${redis}` : `Valkey ${valkey}`),
      mode,
      role: role === "slave" ? "replica" : role,
      replicas: info && Number(info["connected_slaves"] ?? 0),
      findings: [...serverFindings(server, facts.times)],
    };
  });
  const findings = [...generalFindings(facts)];
  const all = [...findings, ...servers.flatMap((server) => server.findings)];
  const number = (level: Level) => all.filter((finding) => finding.level === level).length;
  return { servers, findings, user, failures: number("fail"), warnings: number("warn") };
}

const labels: Readonly<Record<Level, readonly [label: string, tone: Tone]>> = {
  ok: ["ok", "green"],
  warn: ["warn", "yellow"],
  fail: ["FAIL", "red"],
  unknown: ["?", "dim"],
};

const width = 100;
const indent = 8;

/** Printed once, above the remedies. */
const sharedServer = wrapped(
  "CONFIG SET changes the server for all its users, and is lost at a restart unless CONFIG REWRITE follows.",
  width,
);

export function doctorText(report: Report, paint: Paint): string[] {
  const { servers, findings, user, failures, warnings } = report;
  const all = [...findings, ...servers.flatMap((server) => server.findings)];
  return [
    ...(all.some(({ remedy = "" }) => remedy.includes("CONFIG SET")) ? sharedServer : []),
    ...servers.flatMap((server) => [
      paint("bold", headingOf(server, user)),
      ...server.findings.flatMap((finding) => findingText(finding, paint)),
    ]),
    // With a single server, all findings are about it.
    ...(servers.length > 1 ? [paint("bold", "all together")] : []),
    ...findings.flatMap((finding) => findingText(finding, paint)),
    `${plural(failures, "failure")}, ${plural(warnings, "warning")}`,
  ];
}

function headingOf(server: ServerReport, user: string | undefined): string {
  const { address, version, mode, role, replicas } = server;
  const count = replicas === undefined || role !== "master" ? "" : plural(replicas, "replica");
  const parts = [address, version, mode, role, count, user === undefined ? "" : `as user ${user}`];
  return visible(parts.filter(Boolean).join(", "));
}

function findingText({ level, text, remedy }: Finding, paint: Paint): string[] {
  const [label, tone] = labels[level];
  const [first = "", ...others] = wrapped(visible(text), width - indent);
  // On lines of its own, so that it can be copied.
  const cure = remedy === undefined ? [] : wrapped(`→ ${visible(remedy)}`, width - indent);
  return [
    `  ${paint(tone, label.padEnd(indent - 2))}${first}`,
    ...[...others, ...cure].map((line) => `${" ".repeat(indent)}${line}`),
  ];
}
