import { EventEmitter } from "node:events";
import type { RedisClient } from "../../../../src/stores/redis/ioredis.ts";
import type { SimulatedRedis } from "../server/simulated-redis.ts";
import type { EventLoop } from "../time/event-loop.ts";
import { on } from "../time/event-loop.ts";
import type { Machine } from "../time/machine.ts";
import type { Task } from "../time/task-queue.ts";
import { Connection, type Delays } from "./connection.ts";

export interface ClientOptions {
  readonly autoResendUnfulfilledCommands: boolean;
  readonly enableOfflineQueue: boolean;
  readonly maxRetriesPerRequest: number;
  readonly commandTimeout: number | undefined;
  readonly connectTimeout: number;
  readonly retryStrategy: (times: number) => number;
}

/** The defaults of ioredis 5, which matter to a lock. */
export const ioredisDefaults: ClientOptions = {
  autoResendUnfulfilledCommands: true,
  enableOfflineQueue: true,
  maxRetriesPerRequest: 20,
  commandTimeout: undefined,
  connectTimeout: 10_000,
  retryStrategy: (times) => Math.min(50 * times, 2_000),
};

/** What becomes of one command, chosen by the schedule. */
export interface CommandFate extends Delays {
  /** The client loses its connection this long after the write. */
  readonly resetMs: number | undefined;
  /** What was written before that lands at the server nevertheless. */
  readonly stillLands: boolean;
  /** The answer is replaced by something that is none. */
  readonly oddAnswer: boolean;
}

/** What the clients of one process share: their network, and who watches it. */
export interface Surroundings {
  readonly loop: EventLoop;
  readonly machine: Machine;
  readonly server: SimulatedRedis;
  readonly latency: () => number;
  /** The network of this process stands still until then. */
  readonly cutOffUntil: () => number;
  readonly nextFate: () => CommandFate | undefined;
  readonly watcher: ClientWatcher;
  /** Every client of this process that is not ended. */
  readonly clients: Set<SimulatedClient>;
}

export interface ClientWatcher {
  /** A script is about to be written. */
  writes(client: SimulatedClient, script: string, keys: readonly string[]): void;
  /** The server executes a script: `run` does it. */
  executes(copy: WrittenCopy, run: () => unknown): unknown;
  /** A command, or the connection, is in trouble from now on; call the result when that is over. */
  troubled(): () => void;
  connected(client: SimulatedClient): void;
  closed(client: SimulatedClient): void;
}

/** One write of a command, as the server gets it. */
export interface WrittenCopy {
  readonly script: string;
  readonly keys: readonly string[];
  readonly args: readonly (string | number)[];
  /** When its command was first written: a copy that is sent again is as old as that. */
  readonly sentAt: number;
}

interface Command {
  readonly script: string;
  readonly keys: readonly string[];
  readonly args: readonly (string | number)[];
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: Error) => void;
  /** When it was written, by the clock of its machine. */
  writtenAt: number;
  /** When it was first written, by the right clock. */
  sentAt: number | undefined;
  /** It is in flight for a second time, without the caller's knowledge. */
  isResent: boolean;
}

/**
 * As much of ioredis as a lock meets: its states and events, the offline queue, the silent
 * re-sending after a reconnect, command time-outs that withdraw nothing. Written after
 * `event_handler.js` and `Redis.js` of ioredis 6.
 */
export class SimulatedClient extends EventEmitter implements RedisClient {
  status = "wait";
  readonly options: ClientOptions;
  readonly isSecond: boolean;
  readonly #around: Surroundings;
  /** Written and unanswered, oldest first. */
  #written: Command[] = [];
  /** Written on a connection that was lost, to be written again. */
  #toResend: Command[] = [];
  #offline: Command[] = [];
  #connection: Connection | undefined;
  #retries = 0;
  #retry: Task | undefined;
  #disconnected = false;
  #untroubled: (() => void)[] = [];

  constructor(around: Surroundings, options: ClientOptions, isSecond = false) {
    super();
    this.#around = around;
    this.options = options;
    this.isSecond = isSecond;
    around.clients.add(this);
  }

  /** When the oldest command was written that its caller knows to be unanswered on this connection. */
  get oldestWrittenAt(): number | undefined {
    return this.#written.find((command) => !command.isResent)?.writtenAt;
  }

  connect(): Promise<void> {
    if (["connecting", "connect", "ready"].includes(this.status)) {
      return Promise.reject(new Error("Redis is already connecting/connected"));
    }
    this.#open();
    return Promise.resolve();
  }

  duplicate(options: Partial<ClientOptions>): SimulatedClient {
    const copy = new SimulatedClient(this.#around, { ...this.options, ...options }, true);
    void copy.connect();
    return copy;
  }

  eval(script: string, keyCount: number, ...rest: (string | number)[]): Promise<unknown> {
    const keys = rest.slice(0, keyCount).map(String);
    const args = rest.slice(keyCount);
    return new Promise((resolve, reject) => {
      const { commandTimeout, enableOfflineQueue } = this.options;
      // Withdraws nothing: the bytes are sent, and the late answer is dropped.
      const timer =
        commandTimeout === undefined
          ? undefined
          : this.#around.machine.setTimer(commandTimeout, false, () => {
              reject(new Error("Command timed out"));
            });
      const settling =
        <Value>(settle: (value: Value) => void) =>
        (value: Value) => {
          timer?.clear();
          settle(value);
        };
      const command: Command = {
        script,
        keys,
        args,
        resolve: settling(resolve),
        reject: settling(reject),
        writtenAt: 0,
        sentAt: undefined,
        isResent: false,
      };
      this.#around.watcher.writes(this, script, keys);
      if (this.status === "ready") this.#write(command);
      else if (this.status === "end") reject(new Error("Connection is closed."));
      else if (enableOfflineQueue) this.#offline.push(command);
      else reject(new Error("Stream isn't writeable and enableOfflineQueue options is false"));
    });
  }

  disconnect(): void {
    this.#disconnected = true;
    if (this.#retry !== undefined) this.#retry.cancelled = true;
    if (this.#connection !== undefined) {
      // The socket says so itself, a little later.
      const connection = this.#connection;
      this.#around.machine.after(0, () => this.lose(connection, true));
    } else if (this.status !== "end") this.#lost();
  }

  /** The connection is lost, as its client sees it. */
  lose(connection: Connection | undefined, stillLands: boolean): void {
    if (connection === undefined || connection !== this.#connection) return;
    connection.closeAtClient(stillLands);
    this.#lost();
  }

  get connection(): Connection | undefined {
    return this.#connection;
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
      if (connection !== this.#connection) return;
      if (server.isDown) {
        this.lose(connection, false);
        return;
      }
      this.#setStatus("connect");
      // The handshake and the ready check.
      connection.stall(cutOffUntil());
      connection.write(
        () => {},
        () => this.#ready(connection),
      );
    });
  }

  #ready(connection: Connection): void {
    if (connection !== this.#connection) return;
    this.#retries = 0;
    this.#setStatus("ready");
    this.#around.watcher.connected(this);
    for (const command of this.#toResend) command.isResent = true;
    const again = [...this.#toResend, ...this.#offline];
    this.#toResend = [];
    this.#offline = [];
    for (const command of again) this.#write(command);
  }

  #write(command: Command): void {
    const { loop, machine, server, watcher, nextFate } = this.#around;
    const connection = this.#connection as Connection;
    const fate = nextFate();
    const untroubled = fate === undefined ? undefined : this.#lastFailure();
    command.writtenAt = machine.monotonicMs();
    this.#written.push(command);
    command.sentAt ??= loop.now;
    const { sentAt } = command;
    connection.write(
      () => {
        const { script, keys, args } = command;
        try {
          return {
            value: watcher.executes({ script, keys, args, sentAt }, () =>
              server.evaluate(script, keys, args),
            ),
          };
        } catch (error) {
          if (!(error instanceof Error) || error.name !== "ReplyError") throw error;
          return { error };
        }
      },
      (answer) => {
        untroubled?.();
        this.#written.splice(0, this.#written.indexOf(command) + 1);
        if (answer.error !== undefined) command.reject(answer.error);
        else command.resolve(fate?.oddAnswer === true ? "QUEUED" : answer.value);
      },
      fate,
    );
    if (fate?.resetMs !== undefined) {
      machine.after(fate.resetMs, () => this.lose(connection, fate.stillLands));
    }
  }

  #lastFailure(): () => void {
    const untroubled = this.#around.watcher.troubled();
    this.#untroubled.push(untroubled);
    return untroubled;
  }

  #lost(): void {
    const wasReady = this.status === "ready";
    this.#connection = undefined;
    for (const untroubled of this.#untroubled) untroubled();
    this.#untroubled = [];
    this.#setStatus("close");
    this.#around.watcher.closed(this);
    // Kept whether it is to be re-sent or not, which is why some promises never settle.
    if (wasReady && this.#written.length > 0) this.#toResend = this.#written;
    this.#written = [];
    if (this.#disconnected) {
      this.#around.clients.delete(this);
      this.#setStatus("end");
      this.#flush(() => new Error("Connection is closed."));
      return;
    }
    const { machine } = this.#around;
    const delayMs = this.options.retryStrategy(++this.#retries);
    this.#setStatus("reconnecting");
    this.#retry = machine.after(delayMs, () => this.#open());
    const { maxRetriesPerRequest, autoResendUnfulfilledCommands } = this.options;
    if (this.#retries % (maxRetriesPerRequest + 1) === 0) {
      this.#flush(() => {
        const error = new Error(`Reached the max retries per request limit`);
        error.name = "MaxRetriesPerRequestError";
        return error;
      });
    }
    if (!autoResendUnfulfilledCommands) this.#toResend = [];
  }

  #flush(error: () => Error): void {
    const commands = [...this.#toResend, ...this.#offline];
    this.#toResend = [];
    this.#offline = [];
    for (const command of commands) command.reject(error());
  }

  #setStatus(status: string): void {
    this.status = status;
    process.nextTick(() => on(this.#around.machine, () => this.emit(status)));
  }
}
