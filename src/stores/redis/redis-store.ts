import { InvalidOptionError } from "../../errors.ts";
import {
  type AcquireReply,
  type AcquireRequest,
  type CompleteReply,
  type CompleteRequest,
  type FreeReply,
  type FreeRequest,
  type InspectReply,
  type InspectRequest,
  isNoAnswer,
  type LockCommand,
  type LockRequest,
  type LockStore,
  type NoAnswer,
  type OwnedReply,
  type ReleaseRequest,
} from "../../lock/store.ts";
import { inNeutralContext } from "../../neutral-context.ts";
import { checkOptionNames, invalidOption } from "../../validation.ts";
import { CommandBatch, type Confirmed } from "./batch.ts";
import { recordsProblemOf } from "./cluster.ts";
import { acquireCommand, acquireOnceCommand, lookUpCommand } from "./commands/acquire.ts";
import type { Command } from "./commands/command.ts";
import { completeCommand, type RecordRequest, recordCommand } from "./commands/complete.ts";
import { freeCommand, inspectCommand } from "./commands/on-call.ts";
import { cooldownCommand, extendCommand, releaseCommand } from "./commands/release.ts";
import { ConnectionPair } from "./connection-pair.ts";
import { checkClient, corked, type RedisClient } from "./ioredis.ts";
import { ReplicaWait } from "./replicas.ts";

/** How a `RedisStore` keeps its locks. */
export interface RedisStoreOptions {
  /**
   * How many replicas have to confirm an acquire before it counts, so that the lock survives the
   * failover to one of them; and a record, before its `complete` is answered. 1 to 100; no more than
   * the server has, or every acquire is unavailable.
   * @defaultValue none: no answer waits for a replica
   */
  readonly ackReplicas?: number | undefined;
}

const names = ["ackReplicas"] as const satisfies readonly (keyof RedisStoreOptions)[];

/** @throws InvalidOptionError naming the option, what was expected and what came. */
function resolveRedisOptions(client: RedisClient, options: RedisStoreOptions): RedisStoreOptions {
  checkOptionNames("RedisStore", options, names);
  const { ackReplicas } = options;
  if (ackReplicas === undefined) return {};
  const isCount = Number.isInteger(ackReplicas) && ackReplicas >= 1 && ackReplicas <= 100;
  if (!isCount) throw invalidOption("ackReplicas", "a whole number from 1 to 100", ackReplicas);
  if (typeof client.pipeline !== "function") {
    throw new InvalidOptionError(
      "ackReplicas: expected an ioredis client with pipeline(), got one without it",
    );
  }
  return { ackReplicas };
}

/**
 * Locks on a Redis or Valkey server, through an ioredis client (5 or 6, `Redis` or `Cluster`).
 *
 * The client stays yours: it is never closed, no command is defined on it, and its options do not
 * matter. A second connection of the same options is opened when the first one is silent, and
 * closed when it has not been needed for 30 s or when the last lock on the client is closed: one for
 * each client, however many stores and locks are made on it.
 */
export class RedisStore implements LockStore {
  readonly #client: RedisClient;
  readonly #connections: ConnectionPair;
  readonly recordsProblem: string | undefined;
  readonly #acquires: CommandBatch<LockRequest<AcquireReply>, AcquireReply>;
  readonly #onceAcquires: CommandBatch<LockRequest<AcquireReply>, AcquireReply>;
  readonly #lookUps: CommandBatch<LockRequest<AcquireReply>, AcquireReply>;
  readonly #extends: CommandBatch<LockRequest<OwnedReply>, OwnedReply>;
  readonly #releases: CommandBatch<ReleaseRequest, OwnedReply>;
  readonly #cooldowns: CommandBatch<ReleaseRequest, OwnedReply>;
  readonly #completes: CommandBatch<CompleteRequest, CompleteReply>;
  /** The first halves of completes, on a Cluster that moves a slot. */
  readonly #recordSteps: CommandBatch<RecordRequest, CompleteReply>;
  /** The commands whose complete was written before, on a Cluster. */
  readonly #completed = new WeakSet<LockCommand>();
  /** With `ackReplicas` alone. */
  readonly #replicas: ReplicaWait | undefined;
  readonly #inspects: CommandBatch<InspectRequest, InspectReply>;
  readonly #frees: CommandBatch<FreeRequest, FreeReply>;
  /** All others than completes, in the order in which a flush writes them. */
  readonly #ordered: readonly { flush(): void }[];
  #isToFlush = false;
  #areCompletesToFlush = false;
  /** How many requests the next flush has. */
  #waiting = 0;

  /**
   * @param client an ioredis client.
   * @throws InvalidOptionError for anything else, and for an invalid option.
   */
  constructor(client: RedisClient, options: RedisStoreOptions = {}) {
    checkClient(client);
    const { ackReplicas } = resolveRedisOptions(client, options);
    this.#client = client;
    this.#connections = ConnectionPair.of(client);
    this.recordsProblem = recordsProblemOf(client);
    if (ackReplicas !== undefined) this.#replicas = ReplicaWait.of(client, ackReplicas);
    const batch = <Request extends LockRequest<Reply | NoAnswer>, Reply>(
      command: Command<Request, Reply>,
      callsAtOnce?: number,
    ) => new CommandBatch(command, this.#connections, this.#confirmed, callsAtOnce);
    // Locks that are confirmed together are released together.
    const calls = ackReplicas === undefined ? undefined : 1;
    this.#completes = batch(completeCommand);
    // Confirmed as a whole, behind the release.
    this.#recordSteps = new CommandBatch(recordCommand, this.#connections, () => false);
    this.#cooldowns = batch(cooldownCommand);
    this.#releases = batch(releaseCommand, calls);
    this.#extends = batch(extendCommand);
    this.#acquires = batch(acquireCommand, calls);
    this.#onceAcquires = batch(acquireOnceCommand, calls);
    this.#lookUps = batch(lookUpCommand);
    this.#inspects = batch(inspectCommand);
    this.#frees = batch(freeCommand);
    // Releases first: a user's next submit in the same turn finds the key free.
    this.#ordered = [
      this.#cooldowns,
      this.#releases,
      this.#extends,
      this.#acquires,
      this.#onceAcquires,
      this.#lookUps,
      this.#inspects,
      this.#frees,
    ];
  }

  acquire(request: AcquireRequest): void {
    const { command, onlyLooks } = request;
    // Rule 21: what only looks needs no replica.
    const refusal = onlyLooks ? undefined : this.#replicas?.refusal();
    if (refusal !== undefined) {
      request.answer(refusal);
      return;
    }
    if (onlyLooks) this.#lookUps.add(request);
    else if (command.submission === undefined) this.#acquires.add(request);
    else this.#onceAcquires.add(request);
    this.#flushSoon();
  }

  extend(request: LockRequest<OwnedReply>): void {
    this.#extends.add(request);
    this.#flushSoon();
  }

  release(request: ReleaseRequest): void {
    if (request.cooldownUntilMs === 0) this.#releases.add(request);
    else this.#cooldowns.add(request);
    this.#flushSoon();
  }

  complete(request: CompleteRequest): void {
    const { command } = request;
    if (this.#completed.has(command)) this.#completeInSteps(request);
    else this.#completes.add(request);
    if (this.#connections.isCluster) this.#completed.add(command);
    this.#flushCompletesSoon();
  }

  /**
   * Rule 16: record, then release. While a Cluster moves a slot, two keys of it cannot be reached at
   * once (TRYAGAIN), and each alone can. ioredis tries again for longer than a request may take, so a
   * complete that has to be written again goes in two steps, whatever became of the first.
   */
  #completeInSteps(request: CompleteRequest): void {
    const { command, cooldownUntilMs, expiresAtMs, record } = request;
    const answer = (recorded: CompleteReply) => {
      if (isNoAnswer(recorded)) request.answer(recorded);
      else {
        this.release({
          command,
          deadlineMs: undefined,
          cooldownUntilMs,
          answer: (released) => {
            const reply = inSteps(recorded, released);
            if (!this.#confirmed(request, reply)) request.answer(reply);
          },
        });
      }
    };
    this.#recordSteps.add({ command, deadlineMs: undefined, record, expiresAtMs, answer });
  }

  inspect(request: InspectRequest): void {
    this.#inspects.add(request);
    this.#flushSoon();
  }

  free(request: FreeRequest): void {
    this.#frees.add(request);
    this.#flushSoon();
  }

  attach(onReady: () => void): () => Promise<void> {
    const detach = this.#connections.attach(onReady);
    const detachReplicas = this.#replicas?.attach();
    return () => {
      detach();
      detachReplicas?.();
      return Promise.resolve();
    };
  }

  /**
   * Rule 21: answers an acquire that has taken the lock, or a complete that has written the record,
   * when enough replicas have it. Fewer is `unknown`: the lock confirms, and retires at the end.
   */
  readonly #confirmed: Confirmed = (request, reply) => {
    const { command } = request;
    const { kind } = reply;
    const isLock = kind === "taken" || kind === "mine";
    const isRecord = kind === "recorded" || kind === "late";
    if (this.#replicas === undefined || !(isLock || isRecord)) return false;
    const key = isLock ? command.key : this.#connections.recordKey(command);
    this.#replicas.confirm(key, command, (cause) =>
      request.answer((cause === undefined ? reply : { kind: "unknown", cause }) as never),
    );
    return true;
  };

  /**
   * While nothing is in flight, a command is written as soon as the code that asked for it has run to
   * its end, together with the other commands of that code: a lone one waits for nothing. Otherwise
   * there is more traffic, and it waits for the end of its turn of the event loop, to share a call.
   *
   * A call may carry the commands of many requests, so it is written in the context of none of them.
   */
  #flushSoon(): void {
    this.#waiting++;
    if (this.#isToFlush) return;
    this.#isToFlush = true;
    if (this.#connections.inFlight === 0) inNeutralContext(process.nextTick, this.#flush);
    else inNeutralContext(setImmediate, this.#flush);
  }

  /**
   * Completes do not wait for the end of the turn: their answer has left the process, and its client
   * may ask another process at once. Later acquires of this process are written behind them.
   */
  #flushCompletesSoon(): void {
    if (this.#areCompletesToFlush) return;
    this.#areCompletesToFlush = true;
    inNeutralContext(process.nextTick, this.#flushCompletes);
  }

  readonly #flushCompletes = (): void => {
    this.#areCompletesToFlush = false;
    this.#completes.flush();
    this.#recordSteps.flush();
  };

  readonly #flush = (): void => {
    const isLone = this.#waiting === 1;
    this.#isToFlush = false;
    this.#waiting = 0;
    if (isLone || !this.#connections.isCluster) this.#write();
    else corked(this.#client, () => this.#write());
  };

  #write(): void {
    this.#flushCompletes();
    for (const batch of this.#ordered) batch.flush();
  }
}

function inSteps(recorded: CompleteReply, released: OwnedReply): CompleteReply {
  if (isNoAnswer(released)) return released;
  if (recorded.kind !== "late" || released.kind !== "done") return recorded;
  return { kind: "recorded", storeTimeMs: released.storeTimeMs };
}
