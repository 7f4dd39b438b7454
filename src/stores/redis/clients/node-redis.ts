import { type EventEmitter, errorMonitor, setMaxListeners } from "node:events";
import { drop, isError } from "../../../validation.ts";
import { type Address, connectTimeoutOf, hostAndPort, pauseBeforeConnect } from "./addresses.ts";
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
  type Words,
} from "./port.ts";

/**
 * The members of a node-redis client that the store needs, of `createClient` and of `createCluster`,
 * from version 6.2 on. No import ties users to the library.
 */
export interface NodeRedisClient {
  readonly isOpen: boolean;
  readonly isReady: boolean;
  connect(): Promise<unknown>;
  destroy(): unknown;
  sendCommand(...args: never[]): Promise<unknown>;
  duplicate(...options: never[]): unknown;
  // biome-ignore lint/suspicious/noExplicitAny: what an event brings differs.
  on(event: string, listener: (...args: any[]) => void): unknown;
}

export interface NodeRedisOptions {
  readonly socket?: SocketOptions | undefined;
  readonly database?: number | undefined;
  readonly username?: string | undefined;
  /** May be a Buffer. */
  readonly keyPrefix?: unknown;
  readonly clientSideCache?: unknown;
}

export interface SocketOptions extends Address {
  readonly path?: string | undefined;
  readonly connectTimeout?: number | undefined;
}

type SentWords = readonly (string | Uint8Array)[];

/** Members that not every version has are optional. */
export interface SingleClient extends Omit<NodeRedisClient, "sendCommand" | "duplicate"> {
  readonly options?: NodeRedisOptions;
  /** A number that counts connections. */
  readonly socketEpoch?: number;
  sendCommand(words: SentWords, options: object): Promise<unknown>;
  duplicate(options: object): SingleClient;
}

/** Options of each call, against the `commandOptions` that the application has given its client. */
export const callOptions: object = {
  // `WAIT` and `ASKING` rely on the order of the calls.
  asap: false,
  chainId: undefined,
  abortSignal: undefined,
  // The lock has time-outs of its own, and each timer of node-redis costs more than the call.
  timeout: undefined,
  // No conversion: replies are as the scripts return them.
  typeMapping: {},
  slotNumber: undefined,
  askRedirect: undefined,
};

type Listener = (error: unknown) => void;

/** Our listeners, by emitter and event, and the one function that calls them. */
const heard = new WeakMap<EventEmitter, Map<string | symbol, [Set<Listener>, Listener]>>();

/**
 * Adds one dispatcher for each event to the emitter of a client's events, and never removes it. The
 * client inherits from that emitter: `off` on the client makes later listeners deaf, and `off` on
 * the emitter may drop listeners of the application. @returns a function that ends the listening.
 */
export function listen(
  client: object,
  listeners: readonly [string | symbol, Listener][],
): () => void {
  const emitter = ((client as { _self?: unknown })._self ?? client) as EventEmitter;
  const events = heard.get(emitter) ?? new Map<string | symbol, [Set<Listener>, Listener]>();
  heard.set(emitter, events);
  for (const [event, listener] of listeners) {
    const [all, dispatch] = events.get(event) ?? dispatcher();
    events.set(event, [all.add(listener), dispatch]);
    if (!emitter.listeners(event).includes(dispatch)) emitter.on(event, dispatch);
  }
  return () => {
    for (const [event, listener] of listeners) events.get(event)?.[0].delete(listener);
  };
}

function dispatcher(): [Set<Listener>, Listener] {
  const all = new Set<Listener>();
  const dispatch = (error: unknown) => {
    for (const each of [...all]) caught(each)(error);
  };
  return [all, dispatch];
}

/** The texts of the server's errors begin so; those of the client's own errors do not. */
const serverError = /^[A-Z][A-Z0-9_]+(?: |$)/;

function named(error: unknown): unknown {
  if (isError(error) && !("code" in error) && serverError.test(error.message)) {
    error.name = "ReplyError";
  }
  return error;
}

function readReply(reply: unknown): unknown {
  if (Array.isArray(reply)) for (const each of reply) if (isError(each)) named(each);
  return reply;
}

export function errorOf(event: unknown): Error {
  return plainError(named(event));
}

function readError(error: unknown): never {
  throw named(error);
}

export class NodeRedisServer implements ServerPort {
  protected readonly client: SingleClient;
  /**
   * The client's prefix. node-redis adds it to the keys of its own methods, not to those of
   * `sendCommand`.
   */
  readonly #prefix: string;
  /**
   * The server has accepted the connection, as far as events show. Used only while connecting.
   */
  protected isGreeting = false;
  #unsent = new AbortController();
  #options: object = {};

  constructor(client: SingleClient, prefix: string) {
    this.client = client;
    this.#prefix = prefix;
    this.withdraw();
  }

  get address(): string {
    const { socket } = this.client.options ?? {};
    return socket?.path ?? hostAndPort({ host: "localhost", ...socket }) ?? "Redis";
  }

  get connection(): unknown {
    return this.client.socketEpoch;
  }

  /** Aborts when the connection is lost: node-redis then drops the calls it has not written. */
  get unsent(): AbortSignal {
    return this.#unsent.signal;
  }

  eval(script: string, call: ScriptCall, digest?: string): Promise<unknown> {
    return this.ask(this.words(script, call, digest), call.asBytes);
  }

  words(script: string, { keys, args }: ScriptCall, digest?: string): SentWords {
    const words: (string | Uint8Array)[] =
      digest === undefined ? ["eval", script] : ["evalsha", digest];
    words.push(`${keys.length}`);
    for (const key of keys) words.push(this.#prefix + key);
    for (const arg of args) words.push(typeof arg === "number" ? `${arg}` : arg);
    return words;
  }

  ask(words: SentWords, asBytes = false): Promise<unknown> {
    // 36 is `$`, the type of a text in RESP.
    const options = asBytes ? { ...this.#options, typeMapping: { 36: Buffer } } : this.#options;
    return this.client.sendCommand(words, options).then(readReply, readError);
  }

  /** Asks the node that a slot moves to: `ASKING`, and right behind it the command. */
  askMoving(words: SentWords, asBytes = false): Promise<unknown> {
    this.ask(["ASKING"]).catch(() => {});
    return this.ask(words, asBytes);
  }

  /** Sends all calls in one turn: node-redis then writes them together, on one connection. */
  async together(
    _slot: number,
    script: string,
    calls: readonly ScriptCall[],
    last?: Words,
  ): Promise<unknown[]> {
    const answers = calls.map((call) => this.eval(script, call));
    if (last !== undefined) answers.push(this.ask(last.map(String)));
    const replies = await Promise.all(answers.map((answer) => answer.catch((error) => error)));
    const failed = replies.find((reply) => isError(reply) && !isServerError(reply));
    if (failed !== undefined) throw failed;
    return replies;
  }

  /** Listens to `errorMonitor`: with a listener to `error`, node-redis would throw no error. */
  watch({ up, lost, ended, failed }: PortWatcher): () => void {
    let wasReady = this.client.isReady;
    // An `error` may also come from the client's own PING, whose connection stays.
    const troubled = () => {
      this.isGreeting = false;
      if (this.client.isReady) return;
      if (lost !== undefined) this.withdraw();
      if (wasReady) lost?.();
      wasReady = false;
      if (!this.client.isOpen) ended?.();
    };
    const connected = () => {
      this.isGreeting = true;
    };
    const readied = () => {
      wasReady = true;
      up?.();
    };
    return listen(this.client, [
      ["connect", connected],
      ["ready", readied],
      [errorMonitor, (error) => failed?.(errorOf(error))],
      [errorMonitor, troubled],
      ["reconnecting", troubled],
      ["end", troubled],
      ["terminated", troubled],
    ]);
  }

  /** Rule 2: calls that are not written yet are never written. node-redis would write them later. */
  withdraw(): void {
    this.#unsent.abort();
    this.#unsent = new AbortController();
    setMaxListeners(0, this.#unsent.signal);
    this.#options = { ...callOptions, abortSignal: this.#unsent.signal };
  }
}

export function statusOf(
  { isOpen, isReady }: Pick<NodeRedisClient, "isOpen" | "isReady">,
  known: { wasOpen: boolean; wasReady: boolean },
): ClientStatus {
  known.wasOpen ||= isOpen;
  known.wasReady ||= isReady;
  // Until its `close()` ends, a client is ready but not open, and takes no command.
  if (!isOpen) return known.wasOpen ? "end" : "wait";
  if (isReady) return "ready";
  return known.wasReady ? "reconnecting" : "connecting";
}

/** The store must not connect the client: the application's own `connect()` would fail. */
export const advice = "call connect() on the node-redis client";

export function ownOptions(options: NodeRedisOptions | undefined): object {
  const { socket } = options ?? {};
  const connectTimeout = connectTimeoutOf(socket?.connectTimeout);
  return {
    socket: { ...socket, connectTimeout, reconnectStrategy: pauseBeforeConnect },
    commandOptions: undefined,
    disableOfflineQueue: true,
    commandsQueueMaxLength: undefined,
    pingInterval: undefined,
    clientSideCache: undefined,
    emitInvalidate: undefined,
    maintNotifications: "disabled",
  };
}

export class NodeRedisPort extends NodeRedisServer implements ClientPort {
  readonly isCluster: boolean = false;
  readonly mayGather: boolean = false;
  readonly writesTogether: boolean = true;
  /** Rule 22: a `select()` of the application is not visible, so each connection is asked. */
  readonly needsProof: boolean = true;
  readonly advice: string = advice;
  readonly keyPrefix: string | undefined;
  /** The database that a second client was opened for. */
  readonly #wanted: number | undefined;
  readonly #known = { wasOpen: false, wasReady: false };
  database: number;

  constructor(client: NodeRedisClient, wanted?: number) {
    const single = client as unknown as SingleClient;
    const keyPrefix = textPrefix(single.options?.keyPrefix);
    super(single, keyPrefix ?? "");
    this.keyPrefix = keyPrefix;
    this.#wanted = wanted;
    this.database = wanted ?? single.options?.database ?? 0;
  }

  get user(): string | undefined {
    return this.client.options?.username || undefined;
  }

  get status(): ClientStatus {
    const status = statusOf(this.client, this.#known);
    return this.isGreeting && /connecting$/.test(status) ? "connect" : status;
  }

  isReady(): boolean {
    return this.client.isReady && this.client.isOpen;
  }

  nodeOf(): string {
    return "";
  }

  master(): undefined {}

  servers(): readonly ServerPort[] {
    return [this];
  }

  ignoreErrors(): void {
    listen(this.client, [["error", () => {}]]);
  }

  async askDatabase(): Promise<number | undefined> {
    const info = String(await this.ask(["CLIENT", "INFO"]));
    const found = /\bdb=(\d+)/.exec(info)?.[1];
    if (found === undefined) {
      const came = info.length > 60 ? `${info.slice(0, 60)}…` : info;
      const message = `CLIENT INFO named no database (db=), but "${came}". Connect without a proxy`;
      throw Object.assign(new Error(message), { name: "ReplyError" });
    }
    if (this.#wanted === undefined) this.database = Number(found);
    return Number(found);
  }

  second(): ClientPort {
    const own = ownOptions(this.client.options);
    // The URL would set its own database again. The options already have the rest of the URL.
    const options = { ...own, url: undefined, database: this.database };
    const client = duplicated(this.client.duplicate(options));
    // A failure is reported by an `error` event.
    client.connect().catch(() => {});
    return new NodeRedisPort(client as unknown as NodeRedisClient, this.database);
  }

  close(): void {
    drop(this.client.destroy());
  }
}
