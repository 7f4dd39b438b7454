import { isUtf8 } from "node:buffer";
import { type EventEmitter, errorMonitor } from "node:events";
import { InvalidOptionError } from "../../errors.ts";
import { describe, hasMembers } from "../../validation.ts";

/**
 * The members of an ioredis client that the store needs. Any object with them fits: ioredis 5 and
 * 6, their Cluster classes and compatible forks. No import ties users to one of them.
 */
export interface RedisClient {
  /** `ready` when commands can be sent. */
  readonly status: string;
  eval(script: string, numkeys: number, ...args: (string | number)[]): Promise<unknown>;
  /** Where `evalsha` is missing, every call carries the text of its script. */
  evalsha?(sha1: string, numkeys: number, ...args: (string | number)[]): Promise<unknown>;
  /** Needed for `ackReplicas` alone. */
  pipeline?(commands: unknown[][]): unknown;
  connect(): Promise<void>;
  disconnect(): void;
  duplicate(...options: never[]): unknown;
  // biome-ignore lint/suspicious/noExplicitAny: what an event brings differs between the clients.
  on(event: string, listener: (...args: any[]) => void): unknown;
  // biome-ignore lint/suspicious/noExplicitAny: as for `on`.
  off(event: string, listener: (...args: any[]) => void): unknown;
}

/** One server, or the entry of a list of servers. */
interface Address {
  readonly host?: string;
  readonly port?: number | string;
}

/** Commands that are written together. */
interface Pipeline {
  exec(): Promise<[error: Error | null, value?: unknown][] | null>;
}

/** The members of a socket that hold writes back. */
interface Stream {
  cork(): void;
  uncork(): void;
}

/** Further members of ioredis clients. Every member is read only where it exists. */
interface Internals {
  readonly isCluster?: boolean;
  /** The socket, while there is one. */
  readonly stream?: Stream | null;
  /** The state of the connection; `select` is the database that was last asked for on it. */
  readonly condition?: Condition | null;
  /** The state of the last connection that was ready, until the next one is. */
  readonly prevCondition?: Condition | null;
  select?(database: number): Promise<unknown>;
  /** On a Cluster: the clients of its nodes. */
  nodes?(role: "master" | "all"): readonly ClusterNode[];
  /** On a Cluster: the clients of its nodes, by the names in `slots`. */
  readonly connectionPool?: { getInstanceByKey?(name: string): ClusterNode | undefined };
  /** On a Cluster: the nodes of each slot, the master first. */
  readonly slots?: readonly (readonly string[] | undefined)[];
  /** On a Cluster: the addresses that it started from. */
  readonly startupNodes?: readonly (Address | string | number)[];
  readonly options?: Address & {
    readonly connectTimeout?: number;
    readonly sentinelCommandTimeout?: number;
    readonly slotsRefreshTimeout?: number;
    readonly redisOptions?: { readonly enableAutoPipelining?: boolean };
    readonly readOnly?: boolean;
    readonly path?: string;
    readonly name?: string;
    readonly sentinels?: readonly Address[] | null;
    readonly keyPrefix?: string;
    readonly db?: number;
  };
}

interface Condition {
  readonly select?: number;
}

/** The client of one node of a Cluster. */
export type ClusterNode = Internals & Omit<RedisClient, "connect" | "disconnect" | "duplicate">;

/** @throws InvalidOptionError for a value without the members that tell an ioredis client. */
export function checkClient(client: unknown): void {
  if (hasMembers(client, ["eval", "duplicate", "status", "on"])) return;
  throw new InvalidOptionError(
    `redis: expected an ioredis client (Redis or Cluster of ioredis 5 or 6), got ${whatElse(client)}`,
  );
}

function whatElse(client: unknown): string {
  if (hasMembers(client, ["duplicate", "sendCommand"])) {
    return "a node-redis client: pass one of ioredis instead, such as new Redis(url)";
  }
  // ioredis-mock has `connected` where ioredis has `status`; so has node-redis 3, found above.
  if (hasMembers(client, ["duplicate", "connected"])) {
    return "ioredis-mock, which does not run the scripts of a lock: use new MemoryStore() in tests";
  }
  return describe(client);
}

export function isCluster(client: RedisClient): boolean {
  return (client as Internals).isCluster === true;
}

/**
 * Writes commands to one server, on one connection and in one piece: on a Cluster to the node of
 * the keys, commands without a key included.
 *
 * @returns the server's reply to each command, an error of the server as a value; rejects with an
 *   error of the client itself.
 */
export async function pipelined(
  client: RedisClient,
  commands: readonly (readonly (string | number)[])[],
): Promise<unknown[]> {
  const pipeline = client.pipeline?.(commands as unknown[][]) as Pipeline | undefined;
  const replies = (await pipeline?.exec()) ?? [];
  return commands.map((_, index) => {
    const [error, value] = replies[index] ?? [new Error("the client gave no reply")];
    if (error !== null && !isServerError(error)) throw error;
    return error ?? value;
  });
}

/**
 * Calls `heard` with every `error` event of a client, without a listener for `error`: ioredis logs
 * an error only while there is none, and ours would silence that log. ioredis emits `error` only
 * where it has a listener, so without one of another's nothing is heard.
 *
 * @returns stops it.
 */
export function monitorErrors(client: RedisClient, heard: (error: Error) => void): () => void {
  const emitter = client as unknown as EventEmitter;
  const listener = (error: unknown) => heard(plainError(error));
  emitter.on(errorMonitor, listener);
  return () => emitter.off(errorMonitor, listener);
}

/** Calls `heard` with every `error` event of a client of our own; unheard, ioredis would log it. */
export function onError(client: RedisClient, heard: (error: Error) => void): void {
  client.on("error", (error: unknown) => heard(plainError(error)));
}

/**
 * A copy with message, name and code, for logs: errors of ioredis carry the arguments of their
 * command, and so owner ids. For a Cluster without a node, the last node's error.
 */
export function plainError(error: unknown): Error {
  if (!(error instanceof Error)) return new Error(String(error));
  const { lastNodeError, code } = error as { lastNodeError?: unknown; code?: unknown };
  if (isServerError(lastNodeError)) return plainError(lastNodeError);
  // Node's error for a host whose addresses have all failed has no message: joins those within.
  const within = error instanceof AggregateError ? error.errors : [];
  const messages = within.map((each) => (each instanceof Error ? each.message : each));
  const plain = new Error(error.message || messages.join(", "));
  plain.name = error.name;
  return code === undefined ? plain : Object.assign(plain, { code });
}

/** Whether the error is the server's reply, and so a sign of life, and not one of the client. */
export function isServerError(error: unknown): error is Error {
  return error instanceof Error && error.name === "ReplyError";
}

/** Where a client connects to, for an error message. Never with a user name or a password. */
export function addressOf(client: RedisClient): string {
  const { options, startupNodes } = client as Internals;
  if (isCluster(client)) return `the Cluster${listed(startupNodes)}`;
  if (options?.sentinels != null) {
    return `the master "${options.name}" of the Sentinels${listed(options.sentinels)}`;
  }
  return options?.path ?? hostAndPort(options) ?? "Redis";
}

function listed(nodes: readonly (Address | string | number)[] = []): string {
  const [first, ...others] = nodes.map(hostAndPort).filter((address) => address !== undefined);
  if (first === undefined) return "";
  return ` at ${first}${others.length === 0 ? "" : ` and ${others.length} more`}`;
}

function hostAndPort(node: Address | string | number | undefined): string | undefined {
  if (typeof node === "number") return `127.0.0.1:${node}`;
  if (typeof node === "string")
    return URL.canParse(node) ? new URL(node).host || undefined : undefined;
  if (node?.host === undefined) return undefined;
  const host = node.host.includes(":") ? `[${node.host}]` : node.host;
  return `${host}:${node.port ?? 6379}`;
}

/**
 * The database that the client last asked for; 0 on a Cluster, which has no other. While it
 * connects again, `condition` has the database of the options and `prevCondition` this one.
 */
export function databaseOf(client: RedisClient): number {
  const { prevCondition, condition } = client as Internals;
  if (isCluster(client)) return 0;
  return Number(prevCondition?.select ?? condition?.select ?? firstDatabaseOf(client)) || 0;
}

/** The database of the options, which every new connection starts with. */
export function firstDatabaseOf(client: RedisClient): number {
  return isCluster(client) ? 0 : Number((client as Internals).options?.db) || 0;
}

/** Writes `SELECT`, which ioredis does at once where the client is ready. */
export async function select(client: RedisClient, database: number): Promise<unknown> {
  const internals = client as Internals;
  if (internals.select === undefined) throw new Error("the Redis client has no select()");
  return await internals.select(database);
}

/** The client's socket, as an object to compare: each connection has another. */
export function streamOf(client: RedisClient): unknown {
  return (client as Internals).stream;
}

/** The clients of all nodes of a Cluster; none of any other client. */
export function nodesOf(client: RedisClient): readonly ClusterNode[] {
  return isCluster(client) ? ((client as Internals).nodes?.("all") ?? []) : [];
}

/** The client of a Cluster's node, by the node's name in the table of slots. */
export function nodeNamed(client: RedisClient, name: string): ClusterNode | undefined {
  return (client as Internals).connectionPool?.getInstanceByKey?.(name);
}

/**
 * Rule 23: whether calls without keys can be written on the connections of a Cluster's nodes. Not
 * with automatic pipelining, which may write an `ASKING` of the application right before one.
 */
export function mayGather(client: RedisClient): boolean {
  const { connectionPool, options } = client as Internals;
  if (!isCluster(client) || connectionPool?.getInstanceByKey === undefined) return false;
  return options?.redisOptions?.enableAutoPipelining !== true && hasTextPrefix(client);
}

/** The prefix that the client puts in front of every key. */
export function keyPrefixOf(client: RedisClient): string {
  const { options } = client as Internals;
  // `keyPrefix` may be a Buffer.
  return String(options?.keyPrefix ?? "");
}

/** Whether the prefix is text: other bytes cannot be repeated within a key or argument of ours. */
export function hasTextPrefix(client: RedisClient): boolean {
  const prefix: unknown = (client as Internals).options?.keyPrefix;
  return !Buffer.isBuffer(prefix) || isUtf8(prefix);
}

/** The master of a slot of a Cluster, as far as the client knows. */
export function masterOf(client: RedisClient, slot: number): string | undefined {
  return (client as Internals).slots?.[slot]?.[0];
}

/**
 * Holds back the writes to the masters of a Cluster, so that each socket is written to once: a
 * write to a socket costs this process as much as the call that it carries.
 *
 * @returns writes them.
 */
export function cork(client: RedisClient): () => void {
  const streams = ((client as Internals).nodes?.("master") ?? []).flatMap(({ stream }) =>
    hasMembers(stream, ["cork", "uncork"]) ? [stream as Stream] : [],
  );
  for (const stream of streams) stream.cork();
  return () => {
    for (const stream of streams) stream.uncork();
  };
}

/** The most that `duplicate` leaves of `connectTimeout`: it is called when an answer is overdue. */
const connectTimeoutMs = 1_000;

/** How long a duplicate waits for a Sentinel or node to name the master, before it asks another. */
const askTimeoutMs = 750;

/**
 * How often a duplicate of a Cluster client asks which node serves which slots. It may have been
 * opened before the failover that it is needed for, and the master that is away will never tell.
 */
const slotsRefreshIntervalMs = 500;

/**
 * Another client to the same place and database. It has no offline queue and, outside a Cluster,
 * never re-sends: the lock itself asks again where there was no answer.
 */
export function duplicate(client: RedisClient): RedisClient {
  const { options } = client as Internals;
  const connectTimeout = Math.min(options?.connectTimeout ?? connectTimeoutMs, connectTimeoutMs);
  const shorter = (ms: number | undefined) => Math.min(ms ?? askTimeoutMs, askTimeoutMs);
  const connection = {
    connectTimeout,
    autoResendUnfulfilledCommands: false,
    commandTimeout: undefined,
    // Fails commands in flight as soon as their connection is lost; a Cluster may send them again.
    maxRetriesPerRequest: 0,
  };
  const common = {
    enableOfflineQueue: false,
    enableAutoPipelining: false,
    lazyConnect: false,
  };
  const retry = (times: number) => Math.min(50 * times, 500);
  if (isCluster(client)) {
    const duplicateCluster = client.duplicate as (nodes: [], options: object) => unknown;
    return duplicateCluster.call(client, [], {
      ...common,
      redisOptions: { ...options?.redisOptions, ...connection },
      clusterRetryStrategy: retry,
      // The check would ask one node, any, and wait without end for a silent one.
      enableReadyCheck: false,
      slotsRefreshInterval: slotsRefreshIntervalMs,
      slotsRefreshTimeout: shorter(options?.slotsRefreshTimeout),
    }) as RedisClient;
  }
  const duplicateRedis = client.duplicate as (options: object) => unknown;
  return duplicateRedis.call(client, {
    ...common,
    ...connection,
    retryStrategy: retry,
    // A Sentinel may be silent, too: often it is on the host of a master that is silent.
    sentinelCommandTimeout: shorter(options?.sentinelCommandTimeout),
    // `select` at run time changes the database of the connection, not the options that are copied.
    db: databaseOf(client),
  }) as RedisClient;
}
