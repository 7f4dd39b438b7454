import { EventEmitter } from "node:events";
import type { IoredisClient } from "../../../../src/stores/redis/clients/ioredis.ts";
import { isGathered, scriptWith } from "../scripts.ts";
import { longestOverdueMs } from "../server/replication.ts";
import type { Task } from "../time/event-loop.ts";
import { on } from "../time/event-loop.ts";
import { type Call, CommandQueues, replyOf } from "./command-queues.ts";
import { Connection } from "./connection.ts";
import {
  type ClientOptions,
  type DuplicateOptions,
  nodeOptions,
  type ScriptCall,
  type Surroundings,
} from "./surroundings.ts";

type PipelineCommand = [name: string, ...args: (string | number)[]];

interface Pipeline {
  exec(): Promise<[error: Error | null, value?: unknown][]>;
}

/** The one node of a Cluster has them all. */
const slots: readonly (readonly string[])[] = Array.from({ length: 16_384 }, () => ["the node"]);

/**
 * As much of ioredis 6 as a lock meets: its calls, its states and events, and how it keeps a
 * connection. `simulated-client.test.ts` compares the two.
 */
export class SimulatedClient extends EventEmitter implements IoredisClient {
  status = "wait";
  readonly options: ClientOptions;
  readonly isSecond: boolean;
  /** One node of it, which has every slot. */
  readonly isCluster: boolean;
  readonly slots = slots;
  readonly connectionPool = { getInstanceByKey: () => this.#node };
  /** As in ioredis: begun anew with each connection, while the last one's is kept aside. */
  condition: { select: number };
  prevCondition: { select: number } | null = null;
  /** It was told to end, and does so when the other end has answered, or takes too long. */
  isDisconnecting = false;
  readonly #around: Surroundings;
  readonly #commands: CommandQueues;
  /** Kept when it is lost, until there is another. */
  #connection: Connection | undefined;
  /** The client of the Cluster's one node, on the same connection: one object, as in ioredis. */
  readonly #node = this.#openNode();
  #retries = 0;
  #retry: Task | undefined;

  /** @param selected the database that was selected at run time, before this begins. */
  constructor(around: Surroundings, options: ClientOptions, isSecond = false, selected?: number) {
    super();
    this.#around = around;
    this.options = options;
    this.isSecond = isSecond;
    this.isCluster = options.isCluster;
    this.condition = { select: options.db };
    if (selected !== undefined) this.prevCondition = { select: selected };
    this.#commands = new CommandQueues(around, options, this);
    around.clients.add(this);
  }

  /** When the oldest command was written that its caller knows to be unanswered on this connection. */
  get oldestWrittenAt(): number | undefined {
    return this.#commands.oldestWrittenAt;
  }

  /** The present connection, if there is one. */
  get connection(): Connection | undefined {
    return this.#connection?.isOpen === true ? this.#connection : undefined;
  }

  /** The connection that it has now, or had last. */
  get stream(): object | undefined {
    return this.#connection;
  }

  connect(): Promise<void> {
    if (["connecting", "connect", "ready"].includes(this.status)) {
      return Promise.reject(new Error("Redis is already connecting/connected"));
    }
    this.#around.clients.add(this);
    this.#open();
    return Promise.resolve();
  }

  duplicate(...given: DuplicateOptions): SimulatedClient {
    const copy = new SimulatedClient(
      this.#around,
      { ...this.options, ...nodeOptions(given) },
      true,
    );
    void copy.connect();
    return copy;
  }

  eval(script: string, keyCount: number, ...rest: (string | number)[]): Promise<unknown> {
    return this.#call(scriptOf(script, keyCount, rest));
  }

  evalsha(digest: string, keyCount: number, ...rest: (string | number)[]): Promise<unknown> {
    return this.#call({ ...scriptOf(scriptWith(digest), keyCount, rest), byDigest: true });
  }

  #openNode() {
    const status = () => this.status;
    const stream = () => this.stream;
    return {
      get status() {
        return status();
      },
      get stream() {
        return stream() as never;
      },
      eval: (script: string, count: number, ...rest: (string | number)[]) =>
        this.#call({ ...scriptOf(script, count, rest), isOfNode: true }),
      evalsha: (digest: string, count: number, ...rest: (string | number)[]) =>
        this.#call({
          ...scriptOf(scriptWith(digest), count, rest),
          byDigest: true,
          isOfNode: true,
        }),
      on: () => {},
      off: () => {},
    };
  }

  select(database: number): Promise<unknown> {
    const reply = this.#commands.call({ ...scriptOf("", 0, []), select: database });
    if (this.condition.select !== database) {
      this.condition.select = database;
      this.emit("select", database);
    }
    return reply;
  }

  /** Scripts with a `WAIT` behind them, written in one piece. */
  pipeline(given: unknown[][]): Pipeline {
    const commands = given as PipelineCommand[];
    const wait = commands.find(([name]) => name === "wait");
    const patienceMs = wait === undefined ? 0 : Number(wait[2]) + longestOverdueMs;
    const calls = commands.map(([name, first, second, ...rest]) => {
      const [replicas, forMs] = [Number(first), Number(second)];
      return name === "wait"
        ? this.#call({ ...scriptOf("", 0, []), wait: { replicas, forMs }, patienceMs })
        : this.#call({ ...scriptOf(String(first), Number(second), rest), patienceMs });
    });
    return { exec: () => Promise.all(calls.map(settled)) };
  }

  #call(call: Call): Promise<unknown> {
    if (call.wait === undefined) this.#around.watcher.writes(this, call.script, call.keys);
    return this.#commands.call(call);
  }

  disconnect(): void {
    this.isDisconnecting = true;
    if (this.#retry !== undefined) this.#retry.cancelled = true;
    if (this.status === "wait") {
      this.#closed();
      return;
    }
    const { connection } = this;
    if (connection === undefined) {
      // Nothing closes any more, and so nothing tells of an end.
      this.#around.clients.delete(this);
      return;
    }
    this.#endGently(connection);
  }

  /** The connection is lost, as its client sees it. */
  lose(connection: Connection | undefined, stillLands: boolean): void {
    if (connection === undefined || connection !== this.connection) return;
    connection.closeAtClient(stillLands);
    this.#closed();
  }

  #open(): void {
    const { loop, machine, server, latency, cutOffUntil } = this.#around;
    this.#setStatus("connecting");
    const connection = new Connection(loop, machine, server, latency);
    this.#connection = connection;
    this.condition = { select: this.options.db };
    const established = Math.max(latency() + latency(), cutOffUntil() - loop.now + latency());
    if (established > this.options.connectTimeout) {
      machine.after(this.options.connectTimeout, () => this.lose(connection, false));
      return;
    }
    machine.after(established, () => {
      if (connection !== this.connection) return;
      if (server.isDown) {
        this.lose(connection, false);
        return;
      }
      this.#commands.connected();
      this.#setStatus("connect");
      connection.stall(cutOffUntil());
      this.#ask(connection, () => this.#ask(connection, () => this.#ready()));
    });
  }

  /** One round trip on the way to `ready`: first the handshake, then the question whether it is. */
  #ask(connection: Connection, answered: () => void): void {
    const { commandTimeout } = this.options;
    const { machine } = this.#around;
    const timedOut = () => {
      if (connection !== this.connection) return;
      this.#commands.flush(() => new Error("Command timed out"));
      this.#endGently(connection);
    };
    // The client reconnects for as long as it lives, also after the lock has been closed: the bound of
    // its own handshake says nothing about what the lock leaves behind.
    const timer =
      commandTimeout === undefined
        ? undefined
        : machine.setUncountedTimer(commandTimeout, timedOut);
    connection.write(
      () => {
        const { db } = this.options;
        // Refused, the client goes on in database 0.
        if (db !== 0) replyOf(() => this.#around.server.select(connection, db));
      },
      () => {
        timer?.clear();
        if (connection === this.connection && !connection.isEnding) answered();
      },
    );
  }

  #ready(): void {
    this.#retries = 0;
    this.#setStatus("ready");
    this.#around.watcher.connected(this);
    const { select } = this.prevCondition ?? this.condition;
    this.prevCondition = null;
    // Before what is sent again, which was called in that database.
    if (this.condition.select !== select) this.select(select).catch(() => {});
    this.#commands.ready();
  }

  /**
   * Says goodbye behind everything that was written, and is gone when the server has said so, too:
   * until then answers are read, and nothing more is written.
   */
  #endGently(connection: Connection): void {
    if (connection.isEnding) return;
    connection.isEnding = true;
    const { disconnectTimeout } = this.options;
    // No timer: those that are left at the end are counted as the lock's.
    const bound = this.#around.machine.after(disconnectTimeout, () => this.lose(connection, true));
    connection.write(
      () => {},
      () => {
        bound.cancelled = true;
        this.lose(connection, true);
      },
    );
  }

  #closed(): void {
    const wasReady = this.status === "ready";
    if (wasReady) this.prevCondition ??= this.condition;
    this.#commands.closed(wasReady);
    this.#setStatus("close");
    this.#around.watcher.closed(this);
    if (this.isDisconnecting) {
      this.isDisconnecting = false;
      this.#around.clients.delete(this);
      this.#setStatus("end");
      this.#commands.flush(() => new Error("Connection is closed."));
      return;
    }
    const { machine } = this.#around;
    const delayMs = this.options.retryStrategy(++this.#retries);
    this.#setStatus("reconnecting");
    this.#retry = machine.after(delayMs, () => void this.connect().catch(() => {}));
    const { maxRetriesPerRequest } = this.options;
    if (this.#retries % (maxRetriesPerRequest + 1) === 0) {
      this.#commands.flush(() => {
        const error = new Error("Reached the max retries per request limit");
        error.name = "MaxRetriesPerRequestError";
        return error;
      });
    }
  }

  #setStatus(status: string): void {
    this.status = status;
    process.nextTick(() => on(this.#around.machine, () => this.emit(status)));
  }
}

async function settled(reply: Promise<unknown>): Promise<[error: Error | null, value?: unknown]> {
  try {
    return [null, await reply];
  } catch (error) {
    return [error as Error];
  }
}

function scriptOf(
  script: string,
  keyCount: number,
  rest: readonly (string | number | Uint8Array)[],
): ScriptCall {
  const [declared, args] = [rest.slice(0, keyCount).map(String), rest.slice(keyCount)];
  if (!isGathered(script)) return { script, keys: declared, declared, args };
  const count = Number(args.at(-1));
  return { script, keys: args.slice(-1 - count, -1).map(String), declared, args };
}
