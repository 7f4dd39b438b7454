import type { LockCommand, NoAnswer } from "../../lock/store.ts";
import type { BatchConnections } from "./batch.ts";
import type { CallResult, Connection } from "./connection.ts";
import type { ConnectionPair } from "./connection-pair.ts";
import { pipelined } from "./ioredis.ts";
import type { RedisClock } from "./redis-clock.ts";

/** Tells what came of one call, as {@link Connection.send} does. */
type Tell = (result: CallResult) => void;

interface Call {
  readonly script: string;
  readonly keys: readonly string[];
  readonly args: readonly (string | number)[];
  readonly tell: Tell;
}

/** How long a round waits. */
export interface WaitTimes {
  readonly waitMs: number;
  /** When it is to be answered, by the monotonic clock. */
  readonly dueAt: number;
}

export interface Wait extends WaitTimes {
  readonly replicas: number;
  /** Told of an error that `WAIT` was answered with. */
  refused(error: Error): void;
}

/**
 * The calls of one batch, written together with one `WAIT` behind them: it counts the replicas that
 * have the last write of its own connection, and so all of them.
 */
export class WaitRound implements BatchConnections {
  readonly clock: RedisClock;
  readonly isCluster: boolean;
  /** All calls of a round are answered at once: to split a batch would gain nothing. */
  readonly inFlight: number = Number.POSITIVE_INFINITY;
  readonly #pair: ConnectionPair;
  readonly #wait: Wait;
  readonly #pipelines: WaitPipeline[] = [];

  constructor(pair: ConnectionPair, wait: Wait) {
    this.clock = pair.clock;
    this.isCluster = pair.isCluster;
    this.#pair = pair;
    this.#wait = wait;
  }

  recordKey(command: LockCommand): string {
    return this.#pair.recordKey(command);
  }

  slotOf(key: string): number {
    return this.#pair.slotOf(key);
  }

  unavailableReason(): NoAnswer {
    return this.#pair.unavailableReason();
  }

  pick(slot: number, key: string, commandTimeoutMs: number): WaitPipeline | undefined {
    const connection = this.#pair.pick(slot, key, commandTimeoutMs);
    if (connection === undefined) return undefined;
    const node = connection.nodeOf(slot);
    let pipeline = this.#pipelines.find((one) => one.goesTo(connection, node));
    if (pipeline === undefined) {
      pipeline = new WaitPipeline(connection, node);
      this.#pipelines.push(pipeline);
    }
    return pipeline;
  }

  /** @param ended called once, when all of it was answered. */
  write(ended: () => void): void {
    let open = this.#pipelines.length;
    if (open === 0) ended();
    for (const pipeline of this.#pipelines) {
      pipeline.write(this.#wait, () => {
        if (--open === 0) ended();
      });
    }
  }
}

/** What goes to one node on one connection. */
class WaitPipeline {
  readonly #connection: Connection;
  readonly #node: string;
  readonly #calls: Call[] = [];

  constructor(connection: Connection, node: string) {
    this.#connection = connection;
    this.#node = node;
  }

  goesTo(connection: Connection, node: string): boolean {
    return this.#connection === connection && this.#node === node;
  }

  nodeOf(slot: number): string {
    return this.#connection.nodeOf(slot);
  }

  send(
    _node: string,
    script: string,
    keys: readonly string[],
    args: readonly (string | number)[],
    tell: Tell,
  ): void {
    this.#calls.push({ script, keys, args, tell });
  }

  write(wait: Wait, ended: () => void): void {
    // By their text: a pipeline could not repeat what a node does not know by its digest.
    const commands = this.#calls.map(({ script, keys, args }) => {
      return ["eval", script, keys.length, ...keys, ...args];
    });
    commands.push(["wait", wait.replicas, wait.waitMs]);
    const answer = pipelined(this.#connection.client, commands);
    this.#connection.follow(this.#node, answer, wait.dueAt, (result) => {
      if (result.kind === "value") this.#answered(result.value as unknown[], wait);
      else for (const { tell } of this.#calls) tell(result);
      ended();
    });
  }

  #answered(replies: readonly unknown[], wait: Wait): void {
    const waited = replies.at(-1);
    if (waited instanceof Error) wait.refused(waited);
    const unconfirmed = waited instanceof Error ? waited : shortage(wait, Number(waited));
    for (const [index, { tell }] of this.#calls.entries()) {
      const reply = replies[index];
      const error = reply instanceof Error ? reply : unconfirmed;
      tell(error === undefined ? { kind: "value", value: reply } : { kind: "error", error });
    }
  }
}

/** `undefined` where there were enough. */
function shortage({ replicas, waitMs }: Wait, came: number): Error | undefined {
  if (came >= replicas) return undefined;
  const wanted = replicas === 1 ? "1 replica was" : `${replicas} replicas were`;
  return new Error(`${wanted} to confirm within ${waitMs} ms (ackReplicas), ${came} did`);
}
