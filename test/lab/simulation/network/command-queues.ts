import type { Timer } from "../time/event-loop.ts";
import type { Connection } from "./connection.ts";
import type { SimulatedClient } from "./simulated-client.ts";
import type { ClientOptions, ScriptCall, Surroundings } from "./surroundings.ts";

interface ServerReply {
  readonly error?: Error;
  readonly value?: unknown;
}

export function replyOf(execute: () => unknown): ServerReply {
  try {
    return { value: execute() };
  } catch (error) {
    if (!(error instanceof Error) || error.name !== "ReplyError") throw error;
    return { error };
  }
}

/** What a client is asked for. */
export interface Call extends ScriptCall {
  readonly wait?: { readonly replicas: number; readonly forMs: number };
  /** SELECT instead of a script: the database. */
  readonly select?: number;
  /** For how long it may be without an answer because of a WAIT. */
  readonly patienceMs?: number;
  /** Written on the connection of a Cluster's node, which writes nothing twice. */
  readonly isOfNode?: boolean;
  /** EVALSHA instead of EVAL. */
  readonly byDigest?: boolean;
}

interface Command extends Call {
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: Error) => void;
  timer?: Timer;
  /** When it was written, by the clock of its machine. */
  writtenAt: number;
  /** When it was first written, by the right clock. */
  sentAt?: number;
  /** It is in flight for a second time, without the caller's knowledge. */
  isResent: boolean;
  /** How often a Cluster has refused it for a while. */
  redirections: number;
}

/** The defaults of an ioredis Cluster: `retryDelayOnTryAgain`, `maxRedirections`. */
export const tryAgainMs = 100;
const mostRedirections = 16;

/**
 * The commands of one client from their call to their answer: ioredis' queues, its silent re-sending
 * after a reconnect, command time-outs that withdraw nothing.
 */
export class CommandQueues {
  readonly #around: Surroundings;
  readonly #options: ClientOptions;
  /** Whatever connection it has, the commands are written on it. */
  readonly #client: SimulatedClient;
  /** Written and unanswered, oldest first; another one from each new connection on. */
  #written: Command[] = [];
  /** What was written on the last connection that was ready; may be the same array. */
  #toResend: Command[] = [];
  #offline: Command[] = [];
  /** What a Cluster has answered with TRYAGAIN: all of it is written again together. */
  #toTryAgain: Command[] = [];
  #untroubled: (() => void)[] = [];

  constructor(around: Surroundings, options: ClientOptions, client: SimulatedClient) {
    this.#around = around;
    this.#options = options;
    this.#client = client;
  }

  /** When the oldest command was written that its caller knows to be unanswered on this connection. */
  get oldestWrittenAt(): number | undefined {
    return this.#written.find((command) => !command.isResent)?.writtenAt;
  }

  /** Settles as ioredis settles it: without a time-out perhaps never. */
  call(call: Call): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const unsent = { writtenAt: 0, isResent: false, redirections: 0 };
      this.#send({ ...call, ...unsent, resolve, reject });
    });
  }

  /** There is another connection, which is not ready yet. */
  connected(): void {
    this.#written = [];
  }

  ready(): void {
    const toResend = this.#options.autoResendUnfulfilledCommands ? this.#toResend : [];
    this.#toResend = [];
    for (const command of toResend) {
      command.isResent = true;
      this.#send(command);
    }
    const offline = this.#offline;
    this.#offline = [];
    for (const command of offline) this.#send(command);
  }

  closed(wasReady: boolean): void {
    for (const untroubled of this.#untroubled) untroubled();
    this.#untroubled = [];
    const ofNode = this.#written.filter(({ isOfNode }) => isOfNode);
    for (const command of ofNode) reject(command, new Error("Connection is closed."));
    // Otherwise it stays the same array as `#toResend`, which `flush` gives up with it.
    if (ofNode.length > 0) this.#written = this.#written.filter(({ isOfNode }) => !isOfNode);
    if (wasReady && this.#written.length > 0) this.#toResend = this.#written;
  }

  /**
   * Gives up what is queued. What waits to be written again is among it only as long as no other
   * connection has come up to its handshake: after that nobody settles it, until it is re-sent.
   */
  flush(error: () => Error): void {
    const commands = [...this.#offline.splice(0), ...this.#written.splice(0)];
    for (const command of commands) reject(command, error());
  }

  /** Writes a command, or queues it, or refuses it. */
  #send(command: Command): void {
    const client = this.#client;
    if (client.status === "wait") void client.connect();
    if (client.status === "end") {
      command.reject(new Error("Connection is closed."));
      return;
    }
    const { commandTimeout, enableOfflineQueue } = this.#options;
    // Withdraws nothing: the bytes are sent, and the late answer is dropped.
    if (commandTimeout !== undefined) {
      command.timer ??= this.#around.machine.setTimer(commandTimeout, () => {
        command.reject(new Error("Command timed out"));
      });
    }
    const { connection } = client;
    if (client.status === "ready" && connection?.isEnding === false)
      this.#write(command, connection);
    else if (enableOfflineQueue) this.#offline.push(command);
    else {
      const why = "Stream isn't writeable and enableOfflineQueue options is false";
      reject(command, new Error(why));
    }
  }

  #write(command: Command, connection: Connection): void {
    const { loop, machine, nextFate, watcher } = this.#around;
    const fate = nextFate(this.#client, command);
    // Until its database is proved, a connection is of no use.
    const isTroubled = fate !== undefined || command.select !== undefined;
    const untroubled = isTroubled ? this.#trouble() : undefined;
    command.writtenAt = machine.monotonicMs() + (command.patienceMs ?? 0);
    this.#written.push(command);
    command.sentAt ??= loop.now;
    connection.writeBlocking<ServerReply>(
      (end) => this.#execute(command, connection, end),
      ({ error, value }) => {
        watcher.reads();
        untroubled?.();
        this.#written.splice(0, this.#written.indexOf(command) + 1);
        if (error !== undefined && this.#triesAgain(command, error)) return;
        command.timer?.clear();
        if (error !== undefined) command.reject(error);
        else command.resolve(fate?.oddAnswer === true ? "QUEUED" : value);
      },
      fate,
    );
    if (fate?.resetMs !== undefined) {
      machine.after(fate.resetMs, () => this.#client.lose(connection, fate.stillLands));
    }
  }

  #execute(command: Command, connection: Connection, end: (reply: ServerReply) => void): void {
    const { server, watcher, loop } = this.#around;
    const { script, keys, declared, args, byDigest, wait, select, sentAt = loop.now } = command;
    if (select !== undefined) {
      end(replyOf(() => server.select(connection, select)));
      return;
    }
    if (server.isElsewhere(connection)) {
      end(replyOf(() => server.evaluateElsewhere(script, declared, args)));
      return;
    }
    if (wait !== undefined) {
      const { replicas, forMs } = wait;
      const refused = server.wait(connection.lastWrite, replicas, forMs, (value) => end({ value }));
      if (refused !== undefined) end({ error: refused });
      return;
    }
    const before = server.offset;
    const reply = replyOf(() =>
      watcher.executes({ script, keys, declared, args, sentAt }, () =>
        server.evaluate(script, declared, args, byDigest),
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
      // Until then the client answers none of them, also where the refusal itself was late.
      const untroubled = this.#trouble();
      this.#around.machine.after(tryAgainMs, () => {
        untroubled();
        for (const each of this.#toTryAgain.splice(0)) this.#send(each);
      });
    }
    return true;
  }

  #trouble(): () => void {
    const untroubled = this.#around.watcher.troubled();
    this.#untroubled.push(untroubled);
    return untroubled;
  }
}

function reject(command: Command, error: Error): void {
  command.timer?.clear();
  command.reject(error);
}
