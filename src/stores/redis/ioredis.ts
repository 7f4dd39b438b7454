import { isUtf8 } from "node:buffer";
import { type EventEmitter, errorMonitor } from "node:events";
import { InvalidOptionError } from "../../errors.ts";
import { describe, hasMembers } from "../../validation.ts";

/**
 * What the store uses of an ioredis client: structurally, so that ioredis 5, ioredis 6, their
 * Cluster classes and compatible forks fit, and no import ties users to one of them.
 */
export interface RedisClient {
  /** `ready` when commands can be sent. */
  readonly status: string;
  eval(script: string, numkeys: number, ...args: (string | number)[]): Promise<unknown>;
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

/** What ioredis has besides. Every member is looked at only where it is there. */
interface Internals {
  readonly isCluster?: boolean;
  /** Of a Cluster: the nodes of each slot, the master first. */
  readonly slots?: readonly (readonly string[] | undefined)[];
  /** Of a Cluster: what it was given to start from. */
  readonly startupNodes?: readonly (Address | string | number)[];
  readonly options?: Address & {
    readonly path?: string;
    readonly name?: string;
    readonly sentinels?: readonly Address[] | null;
    readonly keyPrefix?: string;
  };
}

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
 * Tells every error event of the application's own client, without being a listener for it: ioredis
 * logs an error only while nobody listens, and a listener of ours would silence that log. A monitor
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
 * Rule 9: on a Cluster, the node that has the key, so that one silent node does not put the others
 * under suspicion. Always the same without a Cluster. A wrong answer costs availability, not safety.
 */
export function nodeOf(client: RedisClient, key: string): string {
  if (!isCluster(client)) return "";
  const { slots } = client as Internals;
  return slots?.[slotOfKey(client, key)]?.[0] ?? "";
}

/** The hash slot of a key, the client's prefix in front of it. */
export function slotOfKey(client: RedisClient, key: string): number {
  return slotOf(keyPrefixOf(client) + key);
}

/**
 * The key of a record: in the slot of its lock, whatever prefix the client puts in front of both.
 * The same layout without a Cluster, so that a move to one keeps its records.
 */
export function recordKeyOf(client: RedisClient, key: string, submissionId: string): string {
  const whole = keyPrefixOf(client) + key;
  return hashTag(whole) === undefined ? `{${whole}}:${submissionId}` : `${key}:${submissionId}`;
}

/** Why records cannot be kept on this client; `undefined` where they can. */
export function recordsProblemOf(client: RedisClient): string | undefined {
  if (!isCluster(client)) return undefined;
  const prefix = keyPrefixOf(client);
  const lock = "lock:submit:42";
  const record = recordKeyOf(client, lock, "");
  const isTogether = slotOf(prefix + lock) === slotOf(prefix + record);
  if (isTogether && hasTextPrefix(client)) return undefined;
  return `expected a keyPrefix of the client that leaves a lock and its record in one slot of the Cluster, got ${describe(prefix)}: let it be a text without braces, or with a pair around something, as in "{shop}:"`;
}

/** Of other bytes a record's key, which is a text, could not repeat the prefix. */
function hasTextPrefix(client: RedisClient): boolean {
  const prefix: unknown = (client as Internals).options?.keyPrefix;
  return !Buffer.isBuffer(prefix) || isUtf8(prefix);
}

function keyPrefixOf(client: RedisClient): string {
  const { options } = client as Internals;
  // It may be a Buffer.
  return String(options?.keyPrefix ?? "");
}

/** What of a key decides its slot, if not all of it. */
function hashTag(key: string): string | undefined {
  const open = key.indexOf("{");
  const close = key.indexOf("}", open + 1);
  return open >= 0 && close > open + 1 ? key.slice(open + 1, close) : undefined;
}

/** The hash slot as the Redis Cluster specification defines it: CRC-16/XMODEM of the key or of its hash tag, modulo 16384. */
export function slotOf(key: string): number {
  const hashed = hashTag(key) ?? key;
  let crc = 0;
  for (const byte of Buffer.from(hashed)) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
  }
  return crc & 0x3fff;
}
