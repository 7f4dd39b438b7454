import type { LockRequest, NoAnswer, OwnedReply } from "../../lock/store.ts";
import { inNeutralContext } from "../../neutral-context.ts";
import { CommandBatch } from "./batch.ts";
import { type Command, ownedReply } from "./commands.ts";
import { ConnectionPair } from "./connection-pair.ts";
import type { RedisClient } from "./ioredis.ts";
import { misconfiguration } from "./no-answers.ts";
import { touchScript } from "./scripts/touch.ts";
import { nodeOf, slotOfKey } from "./slots.ts";
import { WaitRound, type WaitTimes } from "./wait-round.ts";

/** What an owner id has left at a key is written again, for replicas to confirm. */
export interface TouchRequest extends LockRequest<OwnedReply> {
  /** The lock or the record. */
  readonly key: string;
}

const touchCommand: Command<TouchRequest, OwnedReply> = {
  script: touchScript,
  headLength: 1,
  maxEntries: 100,
  head: () => [],
  add: ({ key, command }, keys, args) => {
    keys.push(key);
    args.push(command.ownerId);
  },
  read: ownedReply,
};

/** For how long nothing is asked of a server that does not permit `WAIT`. */
const refusedMs = 1_000;

/**
 * A `WAIT` ends late where no replica confirms: an idle server looks ten times a second for blocked
 * clients whose time is over.
 */
const overdueMs = 100;

/** Writes again and waits for replicas: one round after the other, for each node its own. */
export class ReplicaWaits {
  readonly #client: RedisClient;
  readonly #replicas: number;
  readonly #pair: () => ConnectionPair | undefined;
  readonly #nodes = new Map<string, NodeWaits>();
  readonly #writes: Writes = {
    isBusy: () => ConnectionPair.of(this.#client).inFlight > 0,
    write: (requests, times, ended) => this.#write(requests, times, ended),
  };
  #refusal: NoAnswer | undefined;
  #refusedAt = Number.NEGATIVE_INFINITY;

  /** @param pair the connections to write on, which are blocked meanwhile. */
  constructor(client: RedisClient, replicas: number, pair: () => ConnectionPair | undefined) {
    this.#client = client;
    this.#replicas = replicas;
    this.#pair = pair;
  }

  add(request: TouchRequest): void {
    const node = nodeOf(this.#client, slotOfKey(this.#client, request.key));
    let waits = this.#nodes.get(node);
    if (waits === undefined) {
      waits = new NodeWaits(this.#writes);
      this.#nodes.set(node, waits);
    }
    waits.add(request);
  }

  /** That the server does not permit to wait, where it has just said so. */
  refusal(): NoAnswer | undefined {
    return performance.now() - this.#refusedAt < refusedMs ? this.#refusal : undefined;
  }

  #write(requests: readonly TouchRequest[], times: WaitTimes, ended: () => void): void {
    const pair = this.#pair();
    if (pair === undefined) {
      const reason = "the connection to Redis was closed";
      for (const request of requests) request.answer({ kind: "unsent", reason });
      ended();
      return;
    }
    const refused = (error: Error) => this.#refused(error);
    const round = new WaitRound(pair, { ...times, replicas: this.#replicas, refused });
    const batch = new CommandBatch(touchCommand, round);
    for (const request of requests) batch.add(request);
    batch.flush();
    round.write(ended);
  }

  #refused(cause: Error): void {
    if (misconfiguration(cause) === undefined) return;
    const advice = "Redis does not permit WAIT, which ackReplicas needs";
    this.#refusal = { kind: "rejected", cause, misconfigured: true, advice };
    this.#refusedAt = performance.now();
  }
}

/** What all nodes share. */
interface Writes {
  /** Whether more is likely to come in this turn: replies that are due. */
  isBusy(): boolean;
  write(requests: readonly TouchRequest[], times: WaitTimes, ended: () => void): void;
}

/**
 * What waits for the replicas of one node. While a round is under way the next ones gather, so that
 * nobody waits behind more than one `WAIT`.
 */
class NodeWaits {
  readonly #writes: Writes;
  #gathered: TouchRequest[] = [];
  #isToFlush = false;
  /** Of the round that is under way; −∞ while there is none. */
  #overdueAt = Number.NEGATIVE_INFINITY;
  #rounds = 0;

  constructor(writes: Writes) {
    this.#writes = writes;
  }

  add(request: TouchRequest): void {
    this.#gathered.push(request);
    this.#flushSoon();
  }

  #flushSoon(): void {
    // A round that is overdue holds nobody up: the server may be silent, and another connection not.
    if (this.#isToFlush || performance.now() < this.#overdueAt) return;
    this.#isToFlush = true;
    if (this.#writes.isBusy()) inNeutralContext(setImmediate, this.#flush);
    else inNeutralContext(process.nextTick, this.#flush);
  }

  readonly #flush = (): void => {
    this.#isToFlush = false;
    const requests = this.#gathered;
    this.#gathered = [];
    const round = ++this.#rounds;
    const waitMs = waitMsOf(requests);
    const dueAt = performance.now() + waitMs + overdueMs;
    this.#overdueAt = dueAt;
    this.#writes.write(requests, { waitMs, dueAt }, () => {
      if (this.#rounds !== round) return;
      this.#overdueAt = Number.NEGATIVE_INFINITY;
      if (this.#gathered.length > 0) this.#flushSoon();
    });
  };
}

/** Half of the shortest `commandTimeoutMs`, so that one is over before the lock asks again. Never 0, which is for ever. */
function waitMsOf(requests: readonly TouchRequest[]): number {
  let shortest = Number.POSITIVE_INFINITY;
  for (const { command } of requests) shortest = Math.min(shortest, command.times.commandTimeoutMs);
  return Math.max(1, Math.floor(shortest / 2));
}
