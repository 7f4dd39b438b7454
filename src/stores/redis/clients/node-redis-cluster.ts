import { errorMonitor } from "node:events";
import { performance, setTimeout } from "../../../time.ts";
import { drop, isError } from "../../../validation.ts";
import { type Address, listed, pauseBeforeConnect } from "./addresses.ts";
import {
  advice,
  callOptions,
  errorOf,
  listen,
  type NodeRedisClient,
  type NodeRedisOptions,
  NodeRedisServer,
  ownOptions,
  type SingleClient,
  type SocketOptions,
  statusOf,
} from "./node-redis.ts";
import {
  type ClientPort,
  type ClientStatus,
  duplicated,
  type PortWatcher,
  type ScriptCall,
  type ServerPort,
  textPrefix,
  type Words,
} from "./port.ts";
import { slotOf } from "./slots.ts";

interface ClusterNode extends Address {
  readonly address: string;
  readonly readonly?: boolean;
  /** `undefined` after it gave up and, with `minimizeConnections`, before a command needs it. */
  readonly client?: SingleClient | undefined;
}

interface ClusterClient extends Omit<NodeRedisClient, "sendCommand" | "duplicate"> {
  readonly slots: readonly ({ readonly master: ClusterNode } | undefined)[];
  readonly masters: readonly ClusterNode[];
  readonly replicas: readonly ClusterNode[];
  readonly nodeByAddress: ReadonlyMap<string, ClusterNode>;
  readonly _options?: NodeRedisOptions & {
    readonly rootNodes?: readonly { readonly url?: string; readonly socket?: SocketOptions }[];
    readonly defaults?: NodeRedisOptions;
  };
  readonly _slots?: {
    /** Asks known nodes, except those excluded, for the table of slots; then the root nodes. */
    rediscover?(startWith: undefined, excluded: ReadonlySet<string>): Promise<unknown>;
  };
  nodeClient(node: ClusterNode): unknown;
  sendCommand(key: string, isReadonly: boolean, words: string[], options: object): Promise<unknown>;
  duplicate(options: object): ClusterClient;
}

const silence = { socketTimeout: 1_000, pingInterval: 250 };

/** A Cluster of node-redis. Uses the client of each master: the Cluster client may queue calls. */
export class NodeRedisClusterPort implements ClientPort {
  readonly isCluster: boolean = true;
  readonly needsProof: boolean = false;
  readonly writesTogether: boolean = true;
  readonly database: number = 0;
  readonly connection: undefined;
  readonly advice: string = advice;
  readonly keyPrefix: string | undefined;
  readonly #prefix: string;
  readonly #client: ClusterClient;
  readonly #servers = new WeakMap<SingleClient, NodeRedisServer>();
  learning: Promise<unknown> | undefined;
  readonly #known = { wasOpen: false, wasReady: false };
  #isClosed = false;
  readonly #isOwn: boolean;
  #soughtAt: number = performance.now();

  constructor(client: NodeRedisClient, isOwn = false) {
    this.#client = client as unknown as ClusterClient;
    this.#isOwn = isOwn;
    this.keyPrefix = textPrefix(this.#client._options?.keyPrefix);
    this.#prefix = this.keyPrefix ?? "";
  }

  get address(): string {
    const roots = this.#client._options?.rootNodes ?? [];
    return `the Cluster${listed(roots.map(({ url, socket }) => url ?? socket ?? ""))}`;
  }

  get user(): string | undefined {
    return this.#client._options?.defaults?.username || undefined;
  }

  get status(): ClientStatus {
    return statusOf(this.#client, this.#known);
  }

  /** Rule 23: with a cache, an `ASKING` of the application may come right before a call. */
  get mayGather(): boolean {
    return this.keyPrefix !== undefined && this.#client._options?.clientSideCache === undefined;
  }

  isReady(slot: number): boolean {
    const node = this.#client.isReady ? this.#client.slots[slot]?.master : undefined;
    if (node === undefined) return false;
    // `nodeClient()` connects a node whose client was not needed before, or gave up.
    if (node.client === undefined) {
      void (async () => this.#client.nodeClient(node))().catch(() => {});
    }
    const isReady = node.client?.isReady === true;
    if (!isReady && this.#isOwn) this.#seek(node);
    return isReady;
  }

  /** Looks for another master: node-redis does so only for a connection that came up once. */
  #seek({ address }: ClusterNode): void {
    if (performance.now() - this.#soughtAt < silence.socketTimeout) return;
    this.#soughtAt = performance.now();
    this.#client._slots?.rediscover?.(undefined, new Set([address])).catch(() => {});
  }

  nodeOf(slot: number): string {
    return this.#client.slots[slot]?.master.address ?? "";
  }

  master(name: string): ServerPort | undefined {
    const node = this.#client.nodeByAddress.get(name);
    return node?.readonly === true ? undefined : this.#readyServer(node);
  }

  #readyServer(node: ClusterNode | undefined): NodeRedisServer | undefined {
    return node?.client?.isReady ? this.#serverOf(node.client) : undefined;
  }

  #masterOf(slot: number): NodeRedisServer {
    const node = this.#client.slots[slot]?.master;
    const server = this.#readyServer(node);
    if (server !== undefined) return server;
    const where = node === undefined ? "" : ` (${node.address})`;
    throw new Error(`not connected to the master of slot ${slot}${where}`);
  }

  #serverOf(client: SingleClient): NodeRedisServer {
    const server = this.#servers.get(client) ?? new NodeRedisServer(client, this.#prefix);
    this.#servers.set(client, server);
    return server;
  }

  servers(): readonly ServerPort[] {
    return this.#client.masters.map((node) =>
      node.client ? this.#serverOf(node.client) : this.#unopened(node),
    );
  }

  /** With `minimizeConnections`, the first command opens the connection to a master. */
  #unopened(node: ClusterNode): ServerPort {
    const opened = async () =>
      this.#serverOf((await this.#client.nodeClient(node)) as SingleClient);
    return {
      address: node.address,
      connection: undefined,
      eval: async (...call) => (await opened()).eval(...call),
      ask: async (words) => (await opened()).ask(words),
    };
  }

  /** Writes a call again only if a node refers to another node, and so has executed nothing. */
  async eval(script: string, call: ScriptCall, digest?: string): Promise<unknown> {
    const { asBytes } = call;
    const key = this.#prefix + (call.keys[0] ?? "");
    const slot = slotOf(key);
    const server = this.#masterOf(slot);
    const words = server.words(script, call, digest);
    const { unsent } = server;
    try {
      return await server.ask(words, asBytes);
    } catch (error) {
      const referral = /^(MOVED|ASK) \d+ (\S+)/.exec((error as Error).message);
      if (referral === null) throw error;
      const [, kind, address = ""] = referral;
      const node = () =>
        kind === "ASK" ? this.#client.nodeByAddress.get(address) : this.#client.slots[slot]?.master;
      if (kind === "MOVED" || this.#readyServer(node()) === undefined) await this.#learn(key);
      const other = this.#readyServer(node());
      if (other === undefined || unsent.aborted) throw error;
      return await (kind === "ASK" ? other.askMoving(words, asBytes) : other.ask(words, asBytes));
    }
  }

  /** Sends a command for the key: the referral makes the Cluster client ask for the slots again. */
  #learn(key: string): Promise<unknown> {
    const words = ["EVAL", "return 1", "1", key];
    const options = { ...callOptions, timeout: 1_000 };
    const learned = () => {
      this.learning = undefined;
    };
    this.learning ??= this.#client.sendCommand(key, false, words, options).then(learned, learned);
    return this.learning;
  }

  ask(): Promise<unknown> {
    return Promise.reject(new Error("a Cluster has no single server to ask"));
  }

  async together(
    slot: number,
    script: string,
    calls: readonly ScriptCall[],
    last?: Words,
  ): Promise<unknown[]> {
    const replies = await this.#masterOf(slot).together(slot, script, calls, last);
    const hasMoved = (reply: unknown) => isError(reply) && /^MOVED /.test(reply.message);
    if (replies.some(hasMoved)) void this.#learn(this.#prefix + calls[0]?.keys[0]);
    return replies;
  }

  ignoreErrors(): void {
    listen(this.#client, [["error", () => {}]]);
  }

  watch({ up, lost, ended, failed }: PortWatcher): () => void {
    const watches = new Map<NodeRedisServer, () => void>();
    const watchNodes = () => {
      const { masters, replicas } = this.#client;
      const clients = [...masters, ...replicas].flatMap(({ client }) => client ?? []);
      const servers = new Set(clients.map((client) => this.#serverOf(client)));
      for (const server of servers) {
        if (!watches.has(server)) watches.set(server, server.watch({ lost: () => lost?.() }));
      }
      for (const [server, end] of watches) {
        if (servers.has(server)) continue;
        end();
        watches.delete(server);
      }
    };
    const came = () => {
      watchNodes();
      up?.();
    };
    const disconnected = () => {
      lost?.();
      ended?.();
    };
    const endListening = listen(this.#client, [
      ["connect", came],
      ["node-connect", came],
      ["node-ready", came],
      ["disconnect", disconnected],
      [errorMonitor, (error) => failed?.(errorOf(error))],
    ]);
    watchNodes();
    return () => {
      endListening();
      for (const end of watches.values()) end();
    };
  }

  askDatabase(): Promise<number> {
    return Promise.resolve(0);
  }

  second(): ClientPort {
    const { defaults, rootNodes = [] } = this.#client._options ?? {};
    const { socket, ...own } = ownOptions(defaults) as { readonly socket: object };
    const known = this.#client.masters.flatMap(({ client }) => client?.options?.socket ?? []);
    const options = {
      // The master that is away may be the only one that the application named.
      rootNodes: [...known.map(({ host, port }) => ({ socket: { host, port } })), ...rootNodes],
      defaults: {
        ...defaults,
        ...own,
        socket: { ...socket, socketTimeout: silence.socketTimeout },
        pingInterval: silence.pingInterval,
      },
      commandOptions: undefined,
      clientSideCache: undefined,
      // The connection to a master that is away must not hold back the others.
      minimizeConnections: true,
      topologyRefreshOnReconnectionAttemptStrategy: silence.socketTimeout,
    };
    const client = duplicated(this.#client.duplicate(options));
    const port = new NodeRedisClusterPort(client as unknown as NodeRedisClient, true);
    void port.#connectAll();
    return port;
  }

  /** Connects, again and again: a Cluster client gives up where no root node has answered. */
  async #connectAll(): Promise<void> {
    for (let retries = 0; !this.#isClosed && !this.#client.isOpen; retries++) {
      await this.#client.connect().catch(() => {});
      if (this.#client.isOpen) return;
      await new Promise((resolve) => setTimeout(resolve, pauseBeforeConnect(retries)).unref());
    }
  }

  close(): void {
    this.#isClosed = true;
    drop(this.#client.destroy());
  }
}
