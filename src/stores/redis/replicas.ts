import type { LockCommand, NoAnswer } from "../../lock/store.ts";
import { inNeutralContext } from "../../neutral-context.ts";
import { maxEntries } from "./commands/command.ts";
import { ownedReply } from "./commands/release.ts";
import { touchScript } from "./commands/touch.ts";
import type { CallResult } from "./connection.ts";
import { ConnectionPair } from "./connection-pair.ts";
import { databaseOf, duplicate, onError, pipelined, type RedisClient } from "./ioredis.ts";
import { misconfiguration, toNoAnswer } from "./no-answers.ts";

/** A lock or a record that an owner id has left, and that replicas must confirm. */
interface Touch {
  readonly key: string;
  readonly command: LockCommand;
  /** @param failure why it is not confirmed; `undefined` where enough replicas have it. */
  readonly confirmed: (failure: Error | undefined) => void;
}

/** The touches of one node. While a round is under way the next ones gather. */
interface Node {
  gathered: Touch[];
  isToFlush: boolean;
  /** When the round under way must be answered; −∞ without one. */
  overdueAt: number;
  rounds: number;
}

/** How long no touch is sent to a server that does not permit `WAIT`. */
const refusedMs = 1_000;

/**
 * A `WAIT` ends late where no replica confirms: an idle server looks ten times a second for blocked
 * clients whose time is over.
 */
const overdueMs = 100;

/**
 * Rule 21: an acquire or a complete counts only when so many replicas have confirmed it. Both are
 * written in the ordinary way. A touch then checks that the locks and records are still there and sets
 * the rest of one key's life again, with a `WAIT` right behind it in the same pipeline. Replicas have
 * their master's writes in order, so a replica that has the touch has what was written before.
 *
 * `WAIT` blocks its connection, so the touches have a pair of connections of their own, open while a
 * lock uses the store. There is one round at a time for each node, unless one is overdue: the touches
 * that gather during a round share the next.
 */
export class ReplicaWait {
  static readonly #shared = new WeakMap<RedisClient, Map<number, ReplicaWait>>();
  readonly #client: RedisClient;
  readonly #replicas: number;
  readonly #nodes = new Map<string, Node>();
  #users = 0;
  #own: RedisClient | undefined;
  #detach: () => void = () => {};
  #refusal: NoAnswer | undefined;
  #refusedAt = Number.NEGATIVE_INFINITY;

  /** One for each client and number, however many stores are made. */
  static of(client: RedisClient, replicas: number): ReplicaWait {
    const ofClient = ReplicaWait.#shared.get(client) ?? new Map<number, ReplicaWait>();
    const wait = ofClient.get(replicas) ?? new ReplicaWait(client, replicas);
    ReplicaWait.#shared.set(client, ofClient.set(replicas, wait));
    return wait;
  }

  private constructor(client: RedisClient, replicas: number) {
    this.#client = client;
    this.#replicas = replicas;
  }

  /** @returns ends this use; the last one closes the connections. */
  attach(): () => void {
    if (this.#users++ === 0) {
      this.#client.on("end", this.#close);
      // Now, so that the first order does not wait for a connection.
      this.#pair();
    }
    let isAttached = true;
    return () => {
      if (!isAttached) return;
      isAttached = false;
      if (--this.#users > 0) return;
      this.#client.off("end", this.#close);
      this.#close();
    };
  }

  /** The refusal of an acquire: do not take a lock while Redis denies us `WAIT`. */
  refusal(): NoAnswer | undefined {
    return performance.now() - this.#refusedAt < refusedMs ? this.#refusal : undefined;
  }

  /** Writes the key once more and waits for the replicas. */
  confirm(key: string, command: LockCommand, confirmed: Touch["confirmed"]): void {
    const pair = ConnectionPair.of(this.#client);
    const name = pair.nodeOf(pair.slotOf(key));
    const overdueAt = Number.NEGATIVE_INFINITY;
    const fresh: Node = { gathered: [], isToFlush: false, overdueAt, rounds: 0 };
    const node = this.#nodes.get(name) ?? fresh;
    this.#nodes.set(name, node);
    node.gathered.push({ key, command, confirmed });
    this.#flushSoon(node);
  }

  #flushSoon(node: Node): void {
    // An overdue round delays no other: the server may be silent, and the next connection not.
    if (node.isToFlush || performance.now() < node.overdueAt) return;
    node.isToFlush = true;
    // With calls in flight, their replies may add touches in this turn.
    const isBusy = ConnectionPair.of(this.#client).inFlight > 0;
    inNeutralContext(isBusy ? setImmediate : process.nextTick, () => this.#flush(node));
  }

  #flush(node: Node): void {
    node.isToFlush = false;
    const touches = node.gathered;
    node.gathered = [];
    const round = ++node.rounds;
    const waitMs = waitMsOf(touches);
    const dueAt = performance.now() + waitMs + overdueMs;
    node.overdueAt = dueAt;
    this.#write(touches, waitMs, dueAt, () => {
      if (node.rounds !== round) return;
      node.overdueAt = Number.NEGATIVE_INFINITY;
      if (node.gathered.length > 0) this.#flushSoon(node);
    });
  }

  /** Writes one round: the touches in few calls, and one `WAIT` behind them. */
  #write(touches: readonly Touch[], waitMs: number, dueAt: number, ended: () => void): void {
    const [{ command, key }] = touches as [Touch];
    const pair = this.#pair();
    const slot = pair?.slotOf(key) ?? 0;
    const connection = pair?.pick(slot, key, command.times.commandTimeoutMs);
    if (pair === undefined || connection === undefined) {
      const cause = new Error("the connection that waits for replicas is not usable");
      for (const { confirmed } of touches) confirmed(cause);
      ended();
      return;
    }
    const calls = callsOf(touches, pair);
    // By their text: a pipeline could not repeat a script that a node does not know by its digest.
    const commands: (string | number)[][] = calls.map((call) => {
      const keys = call.map((touch) => touch.key);
      const owners = call.map((touch) => touch.command.ownerId);
      return ["eval", touchScript, keys.length, ...keys, ...owners];
    });
    commands.push(["wait", this.#replicas, waitMs]);
    const answer = pipelined(connection.client, commands);
    connection.follow(connection.nodeOf(slot), answer, dueAt, (result) => {
      this.#answered(calls, result as RoundResult, waitMs);
      ended();
    });
  }

  #answered(calls: readonly (readonly Touch[])[], result: RoundResult, waitMs: number): void {
    const replies = result.kind === "value" ? (result.value as unknown[]) : [];
    const failure =
      result.kind === "value" ? this.#shortage(replies.at(-1), waitMs) : causeOf(result);
    for (const [index, call] of calls.entries()) {
      const reply = replies[index];
      for (const [entry, { confirmed }] of call.entries()) {
        confirmed(reply instanceof Error ? reply : (failure ?? missing(reply, entry)));
      }
    }
  }

  /** Why the `WAIT` was not enough; `undefined` where it was. */
  #shortage(waited: unknown, waitMs: number): Error | undefined {
    if (waited instanceof Error) {
      if (misconfiguration(waited) !== undefined) {
        const advice = "Redis does not permit WAIT, which ackReplicas needs";
        this.#refusal = { kind: "rejected", cause: waited, misconfigured: true, advice };
        this.#refusedAt = performance.now();
      }
      return waited;
    }
    const replicas = this.#replicas;
    const came = Number(waited);
    if (came >= replicas) return undefined;
    const wanted = replicas === 1 ? "1 replica was" : `${replicas} replicas were`;
    return new Error(`${wanted} to confirm within ${waitMs} ms (ackReplicas), ${came} did`);
  }

  /** `undefined` where no lock would close them, or the application has closed its client. */
  #pair(): ConnectionPair | undefined {
    if (this.#users === 0 || this.#client.status === "end") return undefined;
    // A client of Sentinels may end for good while it looks for its master, and the application may
    // have selected another database.
    const own = this.#own;
    if (own && (own.status === "end" || databaseOf(own) !== databaseOf(this.#client)))
      this.#close();
    this.#own ??= inNeutralContext(() => this.#open());
    return ConnectionPair.of(this.#own);
  }

  #open(): RedisClient {
    const own = duplicate(this.#client);
    // The pair hears them too, and reports the one by which a connection was lost.
    onError(own, () => {});
    this.#detach = ConnectionPair.of(own).attach(() => {});
    return own;
  }

  readonly #close = (): void => {
    this.#detach();
    this.#detach = () => {};
    this.#own?.disconnect();
    this.#own = undefined;
  };
}

/** A pipeline has the text of each script, so none is missing. */
type RoundResult = Exclude<CallResult, { kind: "not-loaded" }>;

/** Half of the shortest `commandTimeoutMs`, so that one is over before the lock asks again. Never 0, which has no end. */
function waitMsOf(touches: readonly Touch[]): number {
  let shortest = Number.POSITIVE_INFINITY;
  for (const { command } of touches) shortest = Math.min(shortest, command.times.commandTimeoutMs);
  return Math.max(1, Math.floor(shortest / 2));
}

/** The touches of each call: those of one slot on a Cluster, at most 100. */
function callsOf(touches: readonly Touch[], pair: ConnectionPair): Touch[][] {
  const open = new Map<number, Touch[]>();
  const calls: Touch[][] = [];
  for (const touch of touches) {
    const slot = pair.slotOf(touch.key);
    let call = open.get(slot);
    if (call === undefined || call.length === maxEntries) {
      call = [];
      open.set(slot, call);
      calls.push(call);
    }
    call.push(touch);
  }
  return calls;
}

/** `undefined` where the touch has met the lock or the record of its owner id. */
function missing(reply: unknown, entry: number): Error | undefined {
  const [redisTimeMs = 0, ...codes] = Array.isArray(reply) ? reply.map(Number) : [];
  const { kind } = ownedReply({ redisTimeMs, fencingToken: 0, code: codes[entry] ?? Number.NaN });
  if (kind === "done") return undefined;
  return new Error("the key was gone before a replica had confirmed it");
}

function causeOf(result: Exclude<RoundResult, { kind: "value" }>): Error {
  const failure = toNoAnswer(result);
  return failure.kind === "unsent" ? new Error(failure.reason) : failure.cause;
}
