import { isUtf8 } from "node:buffer";
import { type EventEmitter, errorMonitor } from "node:events";
import { InvalidOptionError } from "../../errors.ts";
import { describe, hasMembers } from "../../validation.ts";

/**
 * The members of an ioredis client that the store uses: structurally, so that ioredis 5, ioredis 6, their
 * Cluster classes and compatible forks fit, and no import ties users to one of them.
 */
export interface RedisClient {
  /** `ready` when commands can be sent. */
  readonly status: string;
  eval(script: string, numkeys: number, ...args: (string | number)[]): Promise<unknown>;
  /** Where it is missing, every call carries the text of its script. */
  evalsha?(sha1: string, numkeys: number, ...args: (string | number)[]): Promise<unknown>;
  /** Needed for `ackReplicas` alone. */
  pipeline?(commands: unknown[][]): unknown;
  connect(): Promise<void>;
  disconnect(): void;
  duplicate(...options: never[]): unknown;
  // biome-ignore lint/suspicious/noExplicitAny: what an event brings differs between the clients.
  on(event: string, listener: (...args: any[]) => void): unknown;
  // biome-ignore lint/suspicious/noExplicitAny: the same.
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
  /** The state of the connection; `select` is the database that was last selected on it. */
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

/** @throws InvalidOptionError for anything but an ioredis client. */
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
  // It has `connected` where ioredis has `status`; so has version 3 of node-redis.
  if (hasMembers(client, ["duplicate", "connected"])) {
    return "ioredis-mock, which does not run the scripts of a lock: use new MemoryStore() in tests";
  }
  return describe(client);
}

export function isCluster(client: RedisClient): boolean {
  return (client as Internals).isCluster === true;
}

/**
 * Writes commands to one server, on one connection and in one piece: on a Cluster to that of their
 * keys, along with those that have none.
 *
 * @returns what each was answered, errors of the server among it; rejects where the client itself
 *   failed one of them.
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
 * Tells every error event of the application's own client, without being a listener for it: ioredis
 * logs an error only while there is no listener, and a listener of ours would silence that log. A monitor
 * hears what other listeners hear, so it hears nothing on a client that has none.
 *
 * @returns ends it.
 */
export function monitorErrors(client: RedisClient, heard: (error: Error) => void): () => void {
  const emitter = client as unknown as EventEmitter;
  const listener = (error: unknown) => heard(plainError(error));
  emitter.on(errorMonitor, listener);
  return () => emitter.off(errorMonitor, listener);
}

/** Tells every error event of a client of our own, which would otherwise be logged by ioredis. */
export function onError(client: RedisClient, heard: (error: Error) => void): void {
  client.on("error", (error: unknown) => heard(plainError(error)));
}

/**
 * The error as it may be logged: those of ioredis carry the arguments of their command, among them
 * owner ids. Of a Cluster that reached no node it is the last node's error that says why.
 */
export function plainError(error: unknown): Error {
  if (!(error instanceof Error)) return new Error(String(error));
  const { lastNodeError, code } = error as { lastNodeError?: unknown; code?: unknown };
  if (isServerError(lastNodeError)) return plainError(lastNodeError);
  const plain = new Error(messageOf(error));
  plain.name = error.name;
  return code === undefined ? plain : Object.assign(plain, { code });
}

/** The error of a host with several addresses, of which none answered, has an empty message. */
function messageOf(error: Error): string {
  if (error.message !== "" || !(error instanceof AggregateError)) return error.message;
  return error.errors.map((each) => (each instanceof Error ? each.message : each)).join(", ");
}

/** Whether the server itself said it, and not the client: a sign of life in any case. */
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
 * The database that the client last selected; 0 on a Cluster, which has no other. While a connection
 * is made anew, ioredis starts again from the database of the options and keeps this one aside.
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
  if (internals.select === undefined) throw new Error("the Redis client cannot select a database");
  return await internals.select(database);
}

/** The connection that the client has, as an object to compare; another one after each loss. */
export function streamOf(client: RedisClient): unknown {
  return (client as Internals).stream;
}

/** The clients of all nodes of a Cluster; none of any other client. */
export function nodesOf(client: RedisClient): readonly ClusterNode[] {
  return isCluster(client) ? ((client as Internals).nodes?.("all") ?? []) : [];
}

/** The client of the node with a name of the table of slots. */
export function nodeNamed(client: RedisClient, name: string): ClusterNode | undefined {
  return (client as Internals).connectionPool?.getInstanceByKey?.(name);
}

/**
 * Rule 23: whether calls without keys can be written on the connections of a Cluster's nodes. With
 * automatic pipelining, an `ASKING` of the application may come to stand right before them.
 */
export function mayGather(client: RedisClient): boolean {
  const { connectionPool, options } = client as Internals;
  if (!isCluster(client) || connectionPool?.getInstanceByKey === undefined) return false;
  return options?.redisOptions?.enableAutoPipelining !== true && hasTextPrefix(client);
}

/** The prefix that the client puts in front of every key. */
export function keyPrefixOf(client: RedisClient): string {
  const { options } = client as Internals;
  // It may be a Buffer.
  return String(options?.keyPrefix ?? "");
}

/** A prefix of other bytes cannot be repeated in the middle of a key, which is a text. */
export function hasTextPrefix(client: RedisClient): boolean {
  const prefix: unknown = (client as Internals).options?.keyPrefix;
  return !Buffer.isBuffer(prefix) || isUtf8(prefix);
}

/** The master of a slot of a Cluster, as far as the client knows. */
export function masterOf(client: RedisClient, slot: number): string | undefined {
  return (client as Internals).slots?.[slot]?.[0];
}

/**
 * Holds the writes to the masters of a Cluster back, so that they leave in one piece: a write to the
 * socket costs this process as much as the call that it carries.
 *
 * @returns lets them go.
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

/** How long the second connection may take to come up: it is opened when an answer is overdue. */
const connectTimeoutMs = 1_000;

/** How long a Sentinel, or a node of a Cluster, may take to say who serves, before another is asked. */
const askTimeoutMs = 750;

/**
 * How often the second connection of a Cluster asks who serves which slots. It may have been opened
 * before the failover that it was opened for, and the master that is away will never tell.
 */
const slotsRefreshIntervalMs = 500;

/**
 * Another connection to the same place and the same database, which never queues and never
 * re-sends: the lock itself asks again for what was not answered.
 */
export function duplicate(client: RedisClient): RedisClient {
  const { options } = client as Internals;
  const connectTimeout = Math.min(options?.connectTimeout ?? connectTimeoutMs, connectTimeoutMs);
  const shorter = (ms: number | undefined) => Math.min(ms ?? askTimeoutMs, askTimeoutMs);
  const connection = {
    connectTimeout,
    autoResendUnfulfilledCommands: false,
    commandTimeout: undefined,
    // Fails the commands in flight as soon as the connection is lost.
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
    // A Sentinel may be silent, too: often it is on the host of the master that is.
    sentinelCommandTimeout: shorter(options?.sentinelCommandTimeout),
    // `select` at run time changes the database of the connection, not the options that are copied.
    db: databaseOf(client),
  }) as RedisClient;
}
