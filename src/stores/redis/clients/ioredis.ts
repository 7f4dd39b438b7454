import { type EventEmitter, errorMonitor } from "node:events";
import type { Writable } from "node:stream";
import { drop, hasMembers } from "../../../validation.ts";
import { type Address, hostAndPort, listed } from "./addresses.ts";
import {
  type ClientPort,
  type ClientStatus,
  caught,
  duplicated,
  isServerError,
  type PortWatcher,
  plainError,
  type ScriptCall,
  type ServerPort,
  textPrefix,
  type Word,
  type Words,
} from "./port.ts";
import { openSecond } from "./second-ioredis.ts";

/**
 * The members of an ioredis client that the store needs. Any object with them fits: ioredis 5 and
 * 6, their Cluster classes and compatible forks. No import ties users to one of them.
 */
export interface IoredisClient {
  /** `ready` when commands can be sent. */
  readonly status: string;
  eval(script: string, numkeys: number, ...args: Word[]): Promise<unknown>;
  /** Where `evalsha` is missing, every call carries the text of its script. */
  evalsha?(sha1: string, numkeys: number, ...args: Word[]): Promise<unknown>;
  /** Where these are missing, a kept body that is not UTF-8 cannot be read again. */
  evalBuffer?(script: string, numkeys: number, ...args: Word[]): Promise<unknown>;
  evalshaBuffer?(sha1: string, numkeys: number, ...args: Word[]): Promise<unknown>;
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

interface Pipeline {
  exec(): Promise<[error: Error | null, value?: unknown][] | null>;
}

/** Members that a client may lack: the store uses each only if it exists. */
export interface IoredisInternals extends IoredisClient {
  readonly isCluster?: boolean;
  readonly stream?: Writable | null;
  /** The state of the connection; `select` is the database that was last asked for on it. */
  readonly condition?: { readonly select?: number } | null;
  /** The state of the last connection that was ready, until the next one is. */
  readonly prevCondition?: IoredisInternals["condition"];
  select?(database: number): Promise<unknown>;
  call?(...words: readonly string[]): Promise<unknown>;
  nodes?(role: "master" | "all"): readonly IoredisInternals[];
  refreshSlotsCache?(): void;
  /** With Sentinels: the named Sentinels, and others that the client has learned from them. */
  readonly connector?: { readonly sentinelIterator?: { readonly sentinels?: readonly Address[] } };
  /** On a Cluster: the clients of its nodes, by the names in `slots`. */
  readonly connectionPool?: { getInstanceByKey?(name: string): IoredisInternals | undefined };
  /** On a Cluster: the nodes of each slot, the master first. */
  readonly slots?: readonly (readonly string[] | undefined)[];
  readonly startupNodes?: readonly (Address | string | number)[];
  readonly options?: Address & {
    readonly connectTimeout?: number;
    readonly sentinelCommandTimeout?: number;
    readonly slotsRefreshTimeout?: number;
    readonly redisOptions?: {
      readonly enableAutoPipelining?: boolean;
      readonly username?: string;
    };
    readonly username?: string;
    readonly readOnly?: boolean;
    readonly path?: string;
    readonly name?: string;
    readonly sentinels?: readonly Address[] | null;
    readonly keyPrefix?: string;
    readonly db?: number;
  };
}

export function isIoredis(client: unknown): client is IoredisClient {
  return hasMembers(client, ["eval", "duplicate", "status", "on"]);
}

class IoredisServer implements ServerPort {
  protected readonly client: IoredisInternals;

  constructor(client: IoredisInternals) {
    this.client = client;
  }

  get address(): string {
    const { options } = this.client;
    if (options?.sentinels != null) {
      return `the master "${options.name}" of the Sentinels${listed(options.sentinels)}`;
    }
    return options?.path ?? hostAndPort(options) ?? "Redis";
  }

  get connection(): unknown {
    return this.client.stream;
  }

  eval(script: string, { keys, args, asBytes }: ScriptCall, digest?: string): Promise<unknown> {
    const client = this.client;
    if (asBytes && client.evalBuffer !== undefined && client.evalshaBuffer !== undefined) {
      return digest === undefined
        ? client.evalBuffer(script, keys.length, ...keys, ...args)
        : client.evalshaBuffer(digest, keys.length, ...keys, ...args);
    }
    return digest === undefined || client.evalsha === undefined
      ? client.eval(script, keys.length, ...keys, ...args)
      : client.evalsha(digest, keys.length, ...keys, ...args);
  }

  async ask(words: readonly string[]): Promise<unknown> {
    return await (this.client as Required<IoredisInternals>).call(...words);
  }
}

const none = (): void => {};

export class IoredisPort extends IoredisServer implements ClientPort {
  readonly isCluster: boolean;
  readonly mayGather: boolean;
  readonly #servers = new WeakMap<IoredisInternals, ServerPort>();

  constructor(client: IoredisClient) {
    super(client);
    this.isCluster = this.client.isCluster === true;
    const { connectionPool, options } = this.client;
    const hasNodes = this.isCluster && connectionPool?.getInstanceByKey !== undefined;
    // Rule 23: automatic pipelining may write an application's `ASKING` just before our call. The
    // node would then execute our call for a slot that it does not have yet.
    const mayBeOpened = options?.redisOptions?.enableAutoPipelining === true;
    this.mayGather = hasNodes && !mayBeOpened && this.keyPrefix !== undefined;
  }

  override get address(): string {
    return this.isCluster ? `the Cluster${listed(this.client.startupNodes)}` : super.address;
  }

  get writesTogether(): boolean {
    return this.client.pipeline !== undefined;
  }

  get status(): ClientStatus {
    return this.client.status as ClientStatus;
  }

  get keyPrefix(): string | undefined {
    return textPrefix(this.client.options?.keyPrefix);
  }

  get user(): string | undefined {
    const { username, redisOptions } = this.client.options ?? {};
    return username || redisOptions?.username || undefined;
  }

  /**
   * `prevCondition` first: while the client reconnects, `condition` has the database of the
   * options.
   */
  get database(): number {
    const { prevCondition, condition, options } = this.client;
    if (this.isCluster) return 0;
    return Number(prevCondition?.select ?? condition?.select ?? options?.db) || 0;
  }

  get needsProof(): boolean {
    return this.database !== 0 || (!this.isCluster && Boolean(Number(this.client.options?.db)));
  }

  isReady(): boolean {
    return this.client.status === "ready";
  }

  nodeOf(slot: number): string {
    return (this.isCluster ? this.client.slots?.[slot]?.[0] : undefined) ?? "";
  }

  master(name: string): ServerPort | undefined {
    const node = this.client.connectionPool?.getInstanceByKey?.(name);
    const isMaster = node?.status === "ready" && node.options?.readOnly !== true;
    return isMaster ? this.#serverOf(node) : undefined;
  }

  servers(): readonly ServerPort[] {
    if (!this.isCluster) return [this];
    return (this.client.nodes?.("master") ?? []).map((node) => this.#serverOf(node));
  }

  #serverOf(node: IoredisInternals): ServerPort {
    const server = this.#servers.get(node) ?? new IoredisServer(node);
    this.#servers.set(node, server);
    return server;
  }

  /** Listens to `errorMonitor`: with a listener to `error`, ioredis would no longer log errors. */
  watch(watcher: PortWatcher): () => void {
    const { up = none, selected = none, ended = none, failed = none } = watcher;
    const lost = caught(watcher.lost ?? none);
    const client = this.client;
    const emitter = client as unknown as EventEmitter;
    const listeners = [
      ["ready", caught(up)],
      ["close", lost],
      ["end", lost],
      ["end", caught(ended)],
      ["select", caught(selected)],
      [errorMonitor, (error: unknown) => failed(plainError(error))],
      // A Cluster that loses a node stays open, and writes the calls in flight again.
      ["-node", lost],
    ] as const;
    for (const [event, listener] of listeners) emitter.on(event, listener);
    // Watch nodes: with `clusterNodeRetryStrategy` a node reconnects and the Cluster emits nothing.
    // The client drops a node that is lost for good, and this listener with it.
    const watchNode = (node: IoredisInternals) => node.on("close", lost);
    const nodes = () => (this.isCluster ? (client.nodes?.("all") ?? []) : []);
    client.on("+node", watchNode);
    for (const node of nodes()) watchNode(node);
    return () => {
      for (const [event, listener] of listeners) emitter.off(event, listener);
      client.off("+node", watchNode);
      for (const node of nodes()) node.off("close", lost);
    };
  }

  ignoreErrors(): void {
    this.client.on("error", none);
  }

  /** Sends `SELECT` again: if Redis refused it, ioredis silently stays in database 0. */
  async askDatabase(): Promise<number | undefined> {
    const { client, database } = this;
    return (await client.select?.(database)) === "OK" ? database : undefined;
  }

  /** A Cluster sends a pipeline, its `WAIT` included, to the node of its keys. */
  async together(
    _slot: number,
    script: string,
    calls: readonly ScriptCall[],
    last?: Words,
  ): Promise<unknown[]> {
    const commands: Word[][] = calls.map(({ keys, args }) => [
      ...["eval", script, keys.length],
      ...[...keys, ...args],
    ]);
    if (last !== undefined) commands.push([...last]);
    const pipeline = this.client.pipeline?.(commands) as Pipeline | undefined;
    const replies = (await pipeline?.exec()) ?? [];
    return commands.map((_, index) => {
      const [error, value] = replies[index] ?? [new Error("the client gave no reply")];
      if (error !== null && !isServerError(error)) throw error;
      return error ?? value;
    });
  }

  /** Joins writes, because a write to a socket costs this process as much as the call in it. */
  cork(): () => void {
    const streams = (this.client.nodes?.("master") ?? []).flatMap(({ stream }) =>
      hasMembers(stream, ["cork", "uncork"]) ? [stream as Writable] : [],
    );
    for (const stream of streams) stream.cork();
    return () => {
      for (const stream of streams) stream.uncork();
    };
  }

  wake(): void {
    // A failure is reported by an `error` event.
    if (this.client.status === "wait") this.client.connect().catch(() => {});
  }

  second(): ClientPort {
    return new IoredisPort(duplicated(openSecond(this.client, this.database)));
  }

  close(): void {
    drop(this.client.disconnect());
    // A Cluster that is closed while it asks for its slots would ask again and again.
    if (this.isCluster) this.client.refreshSlotsCache = () => {};
  }
}
