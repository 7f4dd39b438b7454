import { isUtf8 } from "node:buffer";
import { drop, isError } from "../../../validation.ts";

/** One server, as one connection of a client reaches it. */
export interface ServerPort {
  /** The address for messages, never with a user name or a password. */
  readonly address: string;
  /** Identity of the current connection; changes on reconnect. */
  readonly connection: unknown;
  /** @param digest of a script that the server has: written instead of its text, where possible. */
  eval(script: string, call: ScriptCall, digest?: string): Promise<unknown>;
  ask(words: readonly string[]): Promise<unknown>;
}

export type Word = string | number | Uint8Array;
export type Words = readonly Word[];

export interface ScriptCall {
  /** The keys, without the client's prefix: it is written in front of each. */
  readonly keys: readonly string[];
  readonly args: Words;
  /** Texts in the reply are returned as Buffers, if the client can do that. */
  readonly asBytes?: boolean | undefined;
}

/**
 * - `wait`: the client has not been asked to connect.
 * - `connecting`: for the first time or again, until the server takes the connection.
 * - `connect`: connected, and the greeting is not over.
 * - `ready`: commands are written.
 * - `close`, `reconnecting`: lost, and it will connect again.
 * - `end`: closed for good, by the application or a retry strategy that gave up.
 */
export type ClientStatus =
  | "wait"
  | "connecting"
  | "connect"
  | "ready"
  | "close"
  | "reconnecting"
  | "end";

export interface PortWatcher {
  /** The client is ready; or a Cluster of node-redis has connected to one more node. */
  up?(): void;
  /**
   * A connection was lost; on a Cluster, one to any node. Called before any call in flight on it
   * settles. node-redis then drops what it has not written; ioredis may write each call again.
   */
  lost?(): void;
  selected?(): void;
  ended?(): void;
  /** An `error` event, observed without suppressing the client's own logging or throwing. */
  failed?(error: Error): void;
}

/** A Redis client. A call resolves with the plain reply; a server's error is a `ReplyError`. */
export interface ClientPort extends ServerPort {
  readonly isCluster: boolean;
  readonly status: ClientStatus;
  /** How the application connects a client, where the store must not. */
  readonly advice?: string;
  /** The client's own prefix of every key; `undefined` if it is not UTF-8. */
  readonly keyPrefix: string | undefined;
  readonly user: string | undefined;
  /** The database that the client has selected, as far as is known; 0 on a Cluster. */
  readonly database: number;
  /** Rule 22: whether a connection has to be proven to be in `database`. */
  readonly needsProof: boolean;
  /** Rule 23: whether calls without declared keys can be sent on the connection of each node. */
  readonly mayGather: boolean;
  /** Whether a call for the slot is written now; a Cluster of ioredis may queue it for the node. */
  isReady(slot: number): boolean;
  /** The name of the master that has the slot, as far as the client knows; "" without a Cluster. */
  nodeOf(slot: number): string;
  /** The connection to the master of that name; `undefined` unless it is ready, and a master. */
  master(name: string): ServerPort | undefined;
  /** The one server, or each master of the Cluster. */
  servers(): readonly ServerPort[];

  watch(watcher: PortWatcher): () => void;
  /** Listens for errors, so that none is logged or thrown. */
  ignoreErrors(): void;

  /** Rule 22: the database that the connection is in; rejects where the question is refused. */
  askDatabase(): Promise<number | undefined>;
  /**
   * Writes calls of a script by its text, and a last command, in one piece on one connection (on a
   * Cluster, to the slot's node). An error of the server is a value; one of the client rejects.
   */
  together(
    slot: number,
    script: string,
    calls: readonly ScriptCall[],
    last?: Words,
  ): Promise<unknown[]>;
  /** Holds writes back; absent where the library does so. @returns a function that writes them. */
  cork?(): () => void;

  /** Pending while the client learns which node has a slot, perhaps until after `close`. */
  readonly learning?: Promise<unknown> | undefined;
  /** Connects a client that waits to be asked, where the store may do that. */
  wake?(): void;
  /**
   * Another client to the same place and database, as the same user. It connects by itself and,
   * except on a Cluster of ioredis, never queues and never sends again. Ignore its errors at once.
   */
  second(): ClientPort;
  /** Closes a `second` client for good. */
  close(): void;
  readonly writesTogether: boolean;
}

/**
 * Wraps a listener to the events of a client. A member of the application's client may throw, as a
 * getter does, and there an error would end the process. The next request meets that error, too.
 */
export function caught<Args extends unknown[]>(listener: (...args: Args) => void) {
  return (...args: Args): void => {
    try {
      listener(...args);
    } catch {}
  };
}

/**
 * Copies message, name and code alone, because a client's error may carry the arguments of its
 * command, and so owner ids, into logs. If all Cluster nodes failed: the last error reply.
 */
export function plainError(error: unknown): Error {
  if (!isError(error)) return new Error(String(error));
  const { code, errors, lastNodeError } = error as Error & { [name: string]: unknown };
  if (isServerError(lastNodeError)) return plainError(lastNodeError);
  // Where all addresses of a host fail, Node's error has no message: join those of its `errors`.
  const within = Array.isArray(errors) ? errors : [];
  const messages = within.map((each) => (isError(each) ? each.message : each));
  const plain = new Error(error.message || messages.join(", "));
  plain.name = error.name;
  return code === undefined ? plain : Object.assign(plain, { code });
}

/**
 * Whether an error is the server's reply, and so a sign of life. A minifier renames the errors of
 * ioredis 5. Then the text decides: only that of the server begins with a word in capitals.
 */
export function isServerError(error: unknown): error is Error {
  if (!isError(error)) return false;
  const isMinified = !error.name.endsWith("Error");
  return error.name === "ReplyError" || (isMinified && /^[A-Z]{2}[A-Z0-9_]*\b/.test(error.message));
}

const unwritten =
  /^(not connected to the master of slot |The client is (closed|offline)$|The queue is full$|Stream isn't writeable and |Connection in subscriber mode, )/;

export function isUnwritten({ message }: Error): boolean {
  return unwritten.test(message);
}

/** Returns a client's `keyPrefix`, maybe a Buffer, as text; `undefined` if it is not UTF-8. */
export function textPrefix(prefix: unknown): string | undefined {
  if (Buffer.isBuffer(prefix) && !isUtf8(prefix)) return undefined;
  return String(prefix ?? "");
}

/** Throws for a `duplicate` that an application has made async: its client would come too late. */
export function duplicated<Client extends object>(client: Client): Client {
  if (!("then" in client)) return client;
  type Late = { disconnect(): unknown; destroy?(): unknown };
  const late = Promise.resolve(client as unknown as Late);
  drop(late.then((each) => each.destroy?.() ?? each.disconnect()));
  throw new Error("duplicate() of the Redis client returned a promise, and not a client");
}
