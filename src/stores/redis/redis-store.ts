import { InvalidOptionError } from "../../errors.ts";
import type {
  AcquireRequest,
  CompleteReply,
  CompleteRequest,
  ForgetRequest,
  FreeRequest,
  InspectRequest,
  LockCommand,
  LockRequest,
  LockStore,
  OutliveRequest,
  OwnedReply,
  ReleaseRequest,
} from "../../lock/store.ts";
import { nextTick, setImmediate } from "../../time.ts";
import { inNeutralContext, within } from "../../timers.ts";
import { checkOptionNames, invalidOption } from "../../validation.ts";
import { type Acknowledge, CommandBatch } from "./batch.ts";
import type { ClientPort } from "./clients/port.ts";
import { portOf, type RedisClient } from "./clients/port-of.ts";
import { recordsProblemOf } from "./clients/slots.ts";
import { acquireCommand, acquireOnceCommand, lookUpCommand } from "./commands/acquire.ts";
import { completeCommand, recordCommand } from "./commands/complete.ts";
import { forgetCommand, freeCommand, inspectCommand } from "./commands/on-call.ts";
import { outliveCommand } from "./commands/outlive.ts";
import { extendCommand, releaseCommand, tellCommand } from "./commands/release.ts";
import { ConnectionPair } from "./connection-pair.ts";
import { ReplicaWait } from "./replicas.ts";

/** Options of a `RedisStore`. */
export interface RedisStoreOptions {
  /**
   * How many replicas must acknowledge an acquire before it counts, and a record before its
   * `complete` is answered. So both survive the failover to one of these replicas. 1 to 100; if the
   * server has fewer, every acquire is unavailable. @defaultValue none: no answer waits for a
   * replica
   */
  readonly ackReplicas?: number | undefined;
}

function replicasOf(client: ClientPort, ackReplicas: number | undefined): ReplicaWait | undefined {
  if (ackReplicas === undefined) return undefined;
  const isCount = Number.isInteger(ackReplicas) && ackReplicas >= 1 && ackReplicas <= 100;
  if (!isCount) throw invalidOption("ackReplicas", "a whole number from 1 to 100", ackReplicas);
  if (!client.writesTogether) {
    throw new InvalidOptionError(
      "ackReplicas: expected an ioredis client with pipeline(), got one without it",
    );
  }
  return ReplicaWait.of(client, ackReplicas);
}

/**
 * The batches, in the order of a flush: releases before acquires, so that a submit in the same turn
 * finds a free key. With `ackReplicas`, the acquires of a turn and most of its releases are as few
 * calls as possible, because acquires that are answered together wait for the replicas together.
 */
function batchesOf(connections: ConnectionPair, acknowledge: Acknowledge | undefined) {
  const calls = acknowledge && 1;
  return {
    complete: new CommandBatch(completeCommand, connections, acknowledge),
    // Not acknowledged here: `#completeInSteps` waits for the replicas after its release.
    record: new CommandBatch(recordCommand, connections),
    release: new CommandBatch(releaseCommand, connections, undefined, calls),
    tell: new CommandBatch(tellCommand, connections),
    extend: new CommandBatch(extendCommand, connections),
    acquire: new CommandBatch(acquireCommand, connections, acknowledge, calls),
    acquireOnce: new CommandBatch(acquireOnceCommand, connections, acknowledge, calls),
    lookUp: new CommandBatch(lookUpCommand, connections),
    outlive: new CommandBatch(outliveCommand, connections),
    inspect: new CommandBatch(inspectCommand, connections),
    free: new CommandBatch(freeCommand, connections),
    forget: new CommandBatch(forgetCommand, connections),
  };
}

/**
 * Locks on a Redis or Valkey server or Cluster, through a client of ioredis (5 or 6, `Redis` or
 * `Cluster`) or of node-redis (6.2 or later, `createClient` or `createCluster`).
 *
 * The client stays yours: the store never closes it, and defines no command on it. While its
 * connection is silent or lost, a second connection serves all locks of the client. It is closed
 * after 30 s without use, or with the last open `SubmitLock` of the client. `ackReplicas` opens a
 * third connection, and a fourth while the third is silent or lost.
 *
 * @example
 * ```ts
 * const redis = new Redis("redis://127.0.0.1:6379");
 * const lock = new SubmitLock({ store: new RedisStore(redis) });
 * ```
 */
export class RedisStore implements LockStore {
  readonly #client: ClientPort;
  readonly #connections: ConnectionPair;
  readonly recordsProblem: string | undefined;
  readonly #replicas: ReplicaWait | undefined;
  readonly #batches: ReturnType<typeof batchesOf>;
  readonly #inOrder: readonly { flush(): void }[];
  /** On a Cluster, the commands whose complete was written. A later copy takes two steps. */
  readonly #completed = new WeakSet<LockCommand>();
  #areCompletesToFlush = false;
  /** The number of requests, without completes, that wait for the next `#flush`. */
  #waiting = 0;

  /**
   * @param client a client of ioredis or of node-redis. The application must connect a node-redis
   *   client itself: the store does not call its `connect()`.
   * @throws InvalidOptionError for any other client, and for an invalid option.
   */
  constructor(client: RedisClient, options: RedisStoreOptions = {}) {
    const port = portOf(client);
    checkOptionNames("RedisStore", options, ["ackReplicas"]);
    this.#replicas = replicasOf(port, options.ackReplicas);
    this.#client = port;
    this.#connections = ConnectionPair.of(port);
    this.recordsProblem = recordsProblemOf(port);
    this.#batches = batchesOf(this.#connections, this.#replicas && this.#acknowledge);
    this.#inOrder = Object.values(this.#batches);
  }

  acquire(request: AcquireRequest): void {
    const { command, onlyLooks } = request;
    // Rule 21: a look-up takes no lock, so it needs no replica.
    const refusal = onlyLooks ? undefined : this.#replicas?.refusal();
    if (refusal !== undefined) request.answer(refusal);
    else if (onlyLooks) this.#add(this.#batches.lookUp, request);
    else if (command.submission === undefined) this.#add(this.#batches.acquire, request);
    else this.#add(this.#batches.acquireOnce, request);
  }

  extend(request: LockRequest<OwnedReply>): void {
    this.#add(this.#batches.extend, request);
  }

  release(request: ReleaseRequest): void {
    this.#add(request.told === undefined ? this.#batches.release : this.#batches.tell, request);
  }

  inspect(request: InspectRequest): void {
    this.#add(this.#batches.inspect, request);
  }

  free(request: FreeRequest): void {
    this.#add(this.#batches.free, request);
  }

  forget(request: ForgetRequest): void {
    this.#add(this.#batches.forget, request);
  }

  outlive(request: OutliveRequest): void {
    this.#add(this.#batches.outlive, request);
  }

  /** Completes do not wait for the end of the turn: a repeat may reach another process at once. */
  complete(request: CompleteRequest): void {
    const { command } = request;
    if (this.#completed.has(command)) this.#completeInSteps(request);
    else this.#batches.complete.waiting.push(request);
    if (this.#connections.isCluster) this.#completed.add(command);
    if (this.#areCompletesToFlush) return;
    this.#areCompletesToFlush = true;
    inNeutralContext(nextTick, this.#flushCompletes);
  }

  readonly #flushCompletes = (): void => {
    this.#areCompletesToFlush = false;
    this.#batches.complete.flush();
    this.#batches.record.flush();
  };

  /** Rule 16: a call for each key: while a Cluster moves a slot, it may refuse a call with two. */
  #completeInSteps(request: CompleteRequest): void {
    const { command, cooldownUntilMs, expiresAtMs, record } = request;
    const ended = (recorded: CompleteReply, released: OwnedReply): void => {
      const isWhole = recorded.kind === "late" && released.kind === "done";
      const whole = isWhole ? { ...recorded, kind: "recorded" as const } : recorded;
      const reply = "storeTimeMs" in released ? whole : released;
      if (!this.#acknowledge(request, reply)) request.answer(reply);
    };
    const unstamped = { command, deadlineMs: undefined };
    const answer = (recorded: CompleteReply): void => {
      const released = (reply: OwnedReply) => ended(recorded, reply);
      if (!("storeTimeMs" in recorded)) request.answer(recorded);
      else this.release({ ...unstamped, cooldownUntilMs, answer: released });
    };
    this.#batches.record.waiting.push({ ...unstamped, record, expiresAtMs, answer });
  }

  attach(onReady: () => void): () => Promise<void> {
    const detach = this.#connections.attach(onReady);
    const detachReplicas = this.#replicas?.attach();
    return async () => {
      detach();
      detachReplicas?.();
      // Wait while node-redis asks for slots: it connects to nodes even after its own `close()`.
      await within(1_000, Promise.resolve(this.#client.learning));
    };
  }

  /** Rule 21: answers once enough replicas have acknowledged the lock or record, else `unknown`. */
  readonly #acknowledge: Acknowledge = (request, reply) => {
    const { command } = request;
    const { kind } = reply;
    const isLock = kind === "taken" || kind === "mine";
    const isRecord = kind === "recorded" || kind === "late";
    if (this.#replicas === undefined || !(isLock || isRecord)) return false;
    const key = isLock ? command.key : this.#connections.recordKey(command);
    // Rule 21: the request was executed, so it is not in flight, whatever the replicas say.
    request.deadlineMs = Number.NEGATIVE_INFINITY;
    this.#replicas.acknowledge(key, command, (cause) =>
      request.answer((cause === undefined ? reply : { kind: "unknown", cause }) as never),
    );
    return true;
  };

  /** Writes the request after the code that runs now, or after this turn if calls are in flight. */
  #add<Request>(batch: { readonly waiting: Request[] }, request: Request): void {
    batch.waiting.push(request);
    if (++this.#waiting > 1) return;
    if (this.#connections.inFlight === 0) inNeutralContext(nextTick, this.#flush);
    else inNeutralContext(setImmediate, this.#flush);
  }

  readonly #flush = (): void => {
    const isLone = this.#waiting === 1;
    this.#waiting = 0;
    const uncork = isLone || !this.#connections.isCluster ? undefined : this.#cork();
    try {
      for (const batch of this.#inOrder) batch.flush();
    } finally {
      uncork?.();
    }
  };

  #cork(): (() => void) | undefined {
    try {
      return this.#client.cork?.();
    } catch {
      // `cork` throws if the application changed the client: then each call is a write of its own.
      return undefined;
    }
  }
}
