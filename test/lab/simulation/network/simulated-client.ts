import { EventEmitter } from "node:events";
import type { RedisClient } from "../../../../src/stores/redis/ioredis.ts";
import { scriptWith } from "../script-names.ts";
import { longestOverdueMs } from "../server/replication.ts";
import { on } from "../time/event-loop.ts";
import type { Timer } from "../time/machine.ts";
import type { Task } from "../time/task-queue.ts";
import {
  type Pipeline,
  type PipelineCommand,
  replyOf,
  type ServerReply,
  scriptOf,
  settled,
  type Wait,
} from "./calls.ts";
import { Connection } from "./connection.ts";
import type { ClientOptions, ScriptCall, Surroundings } from "./surroundings.ts";

interface Command extends ScriptCall {
  /** WAIT instead of a script. */
  readonly wait: Wait | undefined;
  /** For how long it may be without an answer because of a WAIT. */
  readonly patienceMs: number;
  /** EVALSHA instead of EVAL. */
  readonly byDigest: boolean;
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: Error) => void;
  timer: Timer | undefined;
  /** When it was written, by the clock of its machine. */
  writtenAt: number;
  /** When it was first written, by the right clock. */
  sentAt: number | undefined;
  /** It is in flight for a second time, without the caller's knowledge. */
  isResent: boolean;
  /** How often a Cluster has refused it for a while. */
  redirections: number;
}

/** The defaults of an ioredis Cluster: `retryDelayOnTryAgain`, `maxRedirections`. */
export const tryAgainMs = 100;
const mostRedirections = 16;

/** What a client is duplicated with, and what a Cluster is. */
type DuplicateOptions =
  | [options: Partial<ClientOptions>]
  | [nodes: readonly never[], options: ClusterOptions];

interface ClusterOptions {
  readonly redisOptions: Partial<ClientOptions>;
  readonly clusterRetryStrategy: ClientOptions["retryStrategy"];
}

function asNodeOptions({ redisOptions, clusterRetryStrategy, ...common }: ClusterOptions) {
  return { ...common, ...redisOptions, retryStrategy: clusterRetryStrategy };
}

/**
 * As much of ioredis 6 as a lock meets: its states and events, its queues, the silent re-sending
 * after a reconnect, command time-outs that withdraw nothing. `simulated-client.test.ts` compares
 * the two.
 */
export class SimulatedClient extends EventEmitter implements RedisClient {
  status = "wait";
  readonly options: ClientOptions;
  readonly isSecond: boolean;
  /** One node of it, which has every slot. */
  readonly isCluster: boolean;
  readonly #around: Surroundings;
  /** Written and unanswered, oldest first; another one from each new connection on. */
  #written: Command[] = [];
  /** What was written on the last connection that was ready; may be the same array. */
  #toResend: Command[] = [];
  #offline: Command[] = [];
  /** What a Cluster has answered with TRYAGAIN: all of it is written again together. */
  #toTryAgain: Command[] = [];
  /** Kept when it is lost, until there is another. */
  #connection: Connection | undefined;
  #retries = 0;
  #retry: Task | undefined;
  /** `disconnect` was called: the next close is the end. */
  #isDisconnecting = false;
  #untroubled: (() => void)[] = [];

  constructor(around: Surroundings, options: ClientOptions, isSecond = false) {
    super();
    this.#around = around;
    this.options = options;
    this.isSecond = isSecond;
    this.isCluster = options.isCluster;
    around.clients.add(this);
  }

  /** When the oldest command was written that its caller knows to be unanswered on this connection. */
  get oldestWrittenAt(): number | undefined {
    return this.#written.find((command) => !command.isResent)?.writtenAt;
  }

  /** It was told to end, and does so when the other end has answered, or takes too long. */
  get isDisconnecting(): boolean {
    return this.#isDisconnecting;
  }

  /** The present connection, if there is one. */
  get connection(): Connection | undefined {
    return this.#connection?.isOpen === true ? this.#connection : undefined;
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
    const [first, ofCluster] = given;
    const options = ofCluster === undefined ? first : asNodeOptions(ofCluster);
    const copy = new SimulatedClient(this.#around, { ...this.options, ...options }, true);
    void copy.connect();
    return copy;
  }

  eval(script: string, keyCount: number, ...rest: (string | number)[]): Promise<unknown> {
    return this.#call(scriptOf(script, keyCount, rest), false);
  }

  evalsha(digest: string, keyCount: number, ...rest: (string | number)[]): Promise<unknown> {
    return this.#call(scriptOf(scriptWith(digest), keyCount, rest), true);
  }

  /** Scripts with a `WAIT` behind them, written in one piece. */
  pipeline(given: unknown[][]): Pipeline {
    const commands = given as PipelineCommand[];
    const wait = commands.find(([name]) => name === "wait");
    const patienceMs = wait === undefined ? 0 : Number(wait[2]) + longestOverdueMs;
    const calls = commands.map(([name, first, second, ...rest]) => {
      const [replicas, forMs] = [Number(first), Number(second)];
      return name === "wait"
        ? this.#call(scriptOf("", 0, []), false, patienceMs, { replicas, forMs })
        : this.#call(scriptOf(String(first), Number(second), rest), false, patienceMs);
    });
    return { exec: () => Promise.all(calls.map(settled)) };
  }

  #call(
    call: ScriptCall,
    byDigest: boolean,
    patienceMs = 0,
    wait: Wait | undefined = undefined,
  ): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const command: Command = {
        ...call,
        byDigest,
        wait,
        patienceMs,
        resolve,
        reject,
        timer: undefined,
        writtenAt: 0,
        sentAt: undefined,
        isResent: false,
        redirections: 0,
      };
      if (wait === undefined) this.#around.watcher.writes(this, call.script, call.keys);
      this.#send(command);
    });
  }

  disconnect(): void {
    this.#isDisconnecting = true;
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
      this.#written = [];
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
      this.#flush(() => new Error("Command timed out"));
      this.#endGently(connection);
    };
    // The client reconnects for as long as it lives, also after the lock has been closed: the bound of
    // its own handshake says nothing about what the lock leaves behind.
    const timer =
      commandTimeout === undefined
        ? undefined
        : machine.setUncountedTimer(commandTimeout, timedOut);
    connection.write(
      () => {},
      () => {
        timer?.clear();
        if (connection === this.connection && !connection.isEnding) answered();
      },
    );
  }

  #timer(ms: number | undefined, run: () => void): Timer | undefined {
    return ms === undefined ? undefined : this.#around.machine.setTimer(ms, false, run);
  }

  #ready(): void {
    this.#retries = 0;
    this.#setStatus("ready");
    this.#around.watcher.connected(this);
    const toResend = this.options.autoResendUnfulfilledCommands ? this.#toResend : [];
    this.#toResend = [];
    for (const command of toResend) {
      command.isResent = true;
      this.#send(command);
    }
    const offline = this.#offline;
    this.#offline = [];
    for (const command of offline) this.#send(command);
  }

  /** Writes a command, or queues it, or refuses it. */
  #send(command: Command): void {
    if (this.status === "wait") void this.connect();
    if (this.status === "end") {
      command.reject(new Error("Connection is closed."));
      return;
    }
    const { commandTimeout, enableOfflineQueue } = this.options;
    // Withdraws nothing: the bytes are sent, and the late answer is dropped.
    command.timer ??= this.#timer(commandTimeout, () => {
      command.reject(new Error("Command timed out"));
    });
    const { connection } = this;
    if (this.status === "ready" && connection?.isEnding === false) this.#write(command, connection);
    else if (enableOfflineQueue) this.#offline.push(command);
    else {
      this.#settle(command, () =>
        command.reject(new Error("Stream isn't writeable and enableOfflineQueue options is false")),
      );
    }
  }

  #write(command: Command, connection: Connection): void {
    const { loop, machine, watcher, nextFate } = this.#around;
    const fate = nextFate(this, command);
    const untroubled = fate === undefined ? undefined : this.#trouble();
    command.writtenAt = machine.monotonicMs() + command.patienceMs;
    this.#written.push(command);
    command.sentAt ??= loop.now;
    connection.writeBlocking<ServerReply>(
      (end) => this.#execute(command, connection, end),
      ({ error, value }) => {
        watcher.reads();
        untroubled?.();
        this.#written.splice(0, this.#written.indexOf(command) + 1);
        if (error !== undefined && this.#triesAgain(command, error)) return;
        this.#settle(command, () => {
          if (error !== undefined) command.reject(error);
          else command.resolve(fate?.oddAnswer === true ? "QUEUED" : value);
        });
      },
      fate,
    );
    if (fate?.resetMs !== undefined) {
      machine.after(fate.resetMs, () => this.lose(connection, fate.stillLands));
    }
  }

  #execute(command: Command, connection: Connection, end: (reply: ServerReply) => void): void {
    const { server, watcher, loop } = this.#around;
    const { script, keys, args, byDigest, wait, sentAt = loop.now } = command;
    if (wait !== undefined) {
      const { replicas, forMs } = wait;
      const refused = server.wait(connection.lastWrite, replicas, forMs, (value) => end({ value }));
      if (refused !== undefined) end({ error: refused });
      return;
    }
    const before = server.offset;
    const reply = replyOf(() =>
      watcher.executes({ script, keys, args, sentAt }, () =>
        server.evaluate(script, keys, args, byDigest),
      ),
    );
    if (server.offset !== before) connection.lastWrite = server.offset;
    end(reply);
  }

  /** A Cluster that is moving a slot refuses two keys of it for a while: its client asks again. */
  #triesAgain(command: Command, error: Error): boolean {
    if (!error.message.startsWith("TRYAGAIN") || command.redirections++ >= mostRedirections) {
      return false;
    }
    command.isResent = true;
    this.#toTryAgain.push(command);
    if (this.#toTryAgain.length === 1) {
      this.#around.machine.after(tryAgainMs, () => {
        for (const each of this.#toTryAgain.splice(0)) this.#send(each);
      });
    }
    return true;
  }

  #settle(command: Command, settle: () => void): void {
    command.timer?.clear();
    settle();
  }

  #trouble(): () => void {
    const untroubled = this.#around.watcher.troubled();
    this.#untroubled.push(untroubled);
    return untroubled;
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
    for (const untroubled of this.#untroubled) untroubled();
    this.#untroubled = [];
    this.#setStatus("close");
    this.#around.watcher.closed(this);
    if (wasReady && this.#written.length > 0) this.#toResend = this.#written;
    if (this.#isDisconnecting) {
      this.#isDisconnecting = false;
      this.#around.clients.delete(this);
      this.#setStatus("end");
      this.#flush(() => new Error("Connection is closed."));
      return;
    }
    const { machine } = this.#around;
    const delayMs = this.options.retryStrategy(++this.#retries);
    this.#setStatus("reconnecting");
    this.#retry = machine.after(delayMs, () => void this.connect().catch(() => {}));
    const { maxRetriesPerRequest } = this.options;
    if (this.#retries % (maxRetriesPerRequest + 1) === 0) {
      this.#flush(() => {
        const error = new Error("Reached the max retries per request limit");
        error.name = "MaxRetriesPerRequestError";
        return error;
      });
    }
  }

  /**
   * Gives up what is queued. What waits to be written again is among it only as long as no other
   * connection has come up to its handshake: after that nobody settles it, until it is re-sent.
   */
  #flush(error: () => Error): void {
    const commands = [...this.#offline.splice(0), ...this.#written.splice(0)];
    for (const command of commands) this.#settle(command, () => command.reject(error()));
  }

  #setStatus(status: string): void {
    this.status = status;
    process.nextTick(() => on(this.#around.machine, () => this.emit(status)));
  }
}
