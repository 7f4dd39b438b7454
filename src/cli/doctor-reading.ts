import type { Redis } from "ioredis";
import { addressOf } from "../stores/redis/ioredis.ts";
import { answerOf, type Client, type Connection, once } from "./connect.ts";
import type { PrefixFacts, SentinelFacts, ServerFacts } from "./doctor-facts.ts";
import { toCliError } from "./failure.ts";
import { mastersOf, scan, userOf } from "./scan.ts";

const samples = 50;

/** Everything of every master that may be seen. */
export function readServers(connection: Connection, client: Client): Promise<ServerFacts[]> {
  const { isCluster } = client;
  return Promise.all(
    mastersOf(client).map(async (node) => {
      const reading = readServer(connection, node, isCluster);
      return isCluster ? await reading.catch((error) => unreadable(node, error)) : await reading;
    }),
  );
}

function unreadable(node: Redis, error: unknown): ServerFacts {
  const address = addressOf(node);
  return {
    address,
    failure: toCliError(error, address).message,
    info: undefined,
    secondRunId: undefined,
    isClusterNode: true,
    cluster: undefined,
    nodeTimeoutMs: undefined,
    latency: undefined,
    clock: undefined,
  };
}

async function readServer(
  connection: Connection,
  node: Redis,
  isClusterNode: boolean,
): Promise<ServerFacts> {
  const seen = async <Value>(asked: Promise<Value>): Promise<Value | undefined> => {
    return await ifPermitted(answerOf(connection, asked));
  };
  // First of all: what is not permitted below is counted in it.
  const info = await seen(node.info("everything"));
  const read = await seen(readTimes(connection, node));
  const cluster = isClusterNode ? await seen(node.cluster("INFO")) : undefined;
  const timeout = isClusterNode
    ? await seen(node.config("GET", "cluster-node-timeout"))
    : undefined;
  const nodeTimeoutMs = Number(pairsOf(timeout).get("cluster-node-timeout") ?? Number.NaN);
  return {
    address: addressOf(node),
    info: info === undefined ? undefined : fieldsOf(info),
    secondRunId:
      isClusterNode || info === undefined ? undefined : await secondRunId(connection, node),
    isClusterNode,
    cluster: cluster === undefined ? undefined : fieldsOf(String(cluster)),
    nodeTimeoutMs: Number.isNaN(nodeTimeoutMs) ? undefined : nodeTimeoutMs,
    latency: read?.latency,
    clock: read?.clock,
  };
}

/** `undefined` where Redis says that it is not permitted, or that it has no such command. */
async function ifPermitted<Value>(asked: Promise<Value>): Promise<Value | undefined> {
  try {
    return await asked;
  } catch (error) {
    if (/\bNOPERM\b|unknown command|can't run this command|ACL failure/.test(String(error)))
      return undefined;
    throw error;
  }
}

/** Commands that the lock itself may use: a user who may do what the lock needs may not PING. */
async function readTimes(
  connection: Connection,
  node: Redis,
): Promise<Pick<ServerFacts, "latency" | "clock">> {
  const tookMs: number[] = [];
  let clock = { aheadMs: 0, errorMs: Number.POSITIVE_INFINITY };
  for (let at = 0; at < samples; at++) {
    const sentAt = Date.now();
    const startedAt = performance.now();
    const time = await answerOf(connection, node.eval("return redis.call('TIME')", 0));
    const ms = performance.now() - startedAt;
    tookMs.push(ms);
    // Redis read its clock at some moment of the round trip: the shortest one says most.
    const [seconds = 0, us = 0] = (time as unknown[]).map(Number);
    if (ms / 2 < clock.errorMs) {
      clock = { aheadMs: sentAt + ms / 2 - (seconds * 1_000 + us / 1_000), errorMs: ms / 2 };
    }
  }
  tookMs.sort((one, other) => one - other);
  const medianMs = tookMs[Math.floor(samples / 2)] ?? 0;
  const p99Ms = tookMs[Math.ceil(samples * 0.99) - 1] ?? 0;
  return { latency: { count: samples, medianMs, p99Ms }, clock };
}

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

/** Whether keys of other locks stand where ours belong; `undefined` where SCAN is not permitted. */
export async function readPrefixes(
  connection: Connection,
  client: Client,
  budgetMs: number,
): Promise<PrefixFacts[] | undefined> {
  const all: PrefixFacts[] = [];
  for (const { keyPrefix, lock } of connection.locks) {
    const scanned = await ifPermitted(scan(connection, client, keyPrefix, budgetMs, () => {}));
    if (scanned === undefined) return undefined;
    let foreign = 0;
    let endless = 0;
    let setBack = 0;
    for (const key of scanned.keys) {
      const user = userOf(keyPrefix, key);
      if (user === undefined || lock.keyFor(user) !== key) continue;
      const found = await answerOf(connection, lock.inspect(user));
      if ("clockSetBack" in found) setBack++;
      if (found.state !== "foreign") continue;
      foreign++;
      if (found.expiresInMs === Number.POSITIVE_INFINITY) endless++;
    }
    all.push({ keyPrefix, foreign, endless, setBack, isComplete: scanned.isComplete });
  }
  return all;
}

/** What each Sentinel says of the master. */
export function readSentinels(connection: Connection, client: Client): Promise<SentinelFacts[]> {
  if (client.isCluster) return Promise.resolve([]);
  const { sentinels, name } = (client as Redis).options;
  return Promise.all(
    (sentinels ?? []).map(({ host = "127.0.0.1", port = 26_379 }) =>
      readSentinel(connection, client as Redis, host, Number(port), name ?? ""),
    ),
  );
}

async function readSentinel(
  connection: Connection,
  client: Redis,
  host: string,
  port: number,
  master: string,
): Promise<SentinelFacts> {
  const address = `${host}:${port}`;
  // A Sentinel has no database, and a password of its own or none.
  const plain = { sentinels: null, username: "", password: "", db: 0, tls: undefined };
  const sentinel = client.duplicate({ ...once, ...plain, host, port, keyPrefix: "" } as object);
  sentinel.on("error", () => {});
  try {
    await answerOf(connection, sentinel.connect());
    const told = pairsOf(await answerOf(connection, sentinel.call("SENTINEL", "MASTER", master)));
    const downAfter = told.get("down-after-milliseconds");
    const quorum = await answerOf(connection, sentinel.call("SENTINEL", "CKQUORUM", master)).catch(
      (error: unknown) => (error as Error).message,
    );
    return {
      address,
      downAfterMs: downAfter === undefined ? undefined : Number(downAfter),
      quorum: String(quorum),
      failure: undefined,
    };
  } catch (error) {
    const failure = toCliError(error, address).message;
    return { address, downAfterMs: undefined, quorum: undefined, failure };
  } finally {
    sentinel.disconnect();
  }
}

/** The lines of INFO. */
function fieldsOf(text: string): Record<string, string> {
  const lines = text.split("\r\n").filter((line) => line.includes(":"));
  return Object.fromEntries(
    lines.map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1)]),
  );
}

/** A reply of names and values: a flat list in RESP2, an object in RESP3. */
function pairsOf(reply: unknown): Map<string, string> {
  if (Array.isArray(reply)) {
    const pairs = new Map<string, string>();
    for (let at = 0; at + 1 < reply.length; at += 2)
      pairs.set(String(reply[at]), String(reply[at + 1]));
    return pairs;
  }
  const entries = reply instanceof Map ? [...reply] : Object.entries(reply ?? {});
  return new Map(entries.map(([name, value]) => [String(name), String(value)]));
}
