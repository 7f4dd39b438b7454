import type {
  AcquireReply,
  AcquireRequest,
  CompleteReply,
  CompleteRequest,
  FreeReply,
  FreeRequest,
  InspectReply,
  InspectRequest,
  LockRequest,
  LockStore,
  NoAnswer,
  OwnedReply,
  ReleaseRequest,
} from "../../lock/store.ts";
import { inNeutralContext } from "../../neutral-context.ts";
import { CommandBatch } from "./batch.ts";
import {
  acquireCommand,
  acquireOnceCommand,
  type Command,
  completeCommand,
  cooldownCommand,
  extendCommand,
  lookUpCommand,
  releaseCommand,
} from "./commands.ts";
import { ConnectionPair } from "./connection-pair.ts";
import { corked } from "./cork.ts";
import { checkClient, type RedisClient } from "./ioredis.ts";
import { freeCommand, inspectCommand } from "./on-call-commands.ts";
import { recordsProblemOf } from "./record-key.ts";
import { type RedisStoreOptions, resolveRedisOptions } from "./redis-options.ts";
import { ReplicaWait } from "./replicas.ts";
import {
  acquireStepCommand,
  lookCommand,
  lookUpStepCommand,
  recordCommand,
} from "./step-commands.ts";
import { type RecordRequest, TwoSteps } from "./two-steps.ts";

/**
 * Locks on a Redis or Valkey server, through an ioredis client (5 or 6, `Redis` or `Cluster`).
 *
 * The client stays yours: it is never closed, no command is defined on it, and its options may be
 * what they are. A second connection of the same options is opened when the first one is silent, and
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
  /** On a Cluster alone: elsewhere two keys can always be reached at once. */
  readonly #twoSteps: TwoSteps | undefined;
  /** With `ackReplicas` alone. */
  readonly #replicas: ReplicaWait | undefined;
  /** Of what is hardly ever asked: made on first use. */
  readonly #rareBatches: { flush(): void }[] = [];
  #inspects: CommandBatch<InspectRequest, InspectReply> | undefined;
  #frees: CommandBatch<FreeRequest, FreeReply> | undefined;
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
    // Locks that are confirmed together are released together.
    const calls = ackReplicas === undefined ? undefined : 1;
    this.#acquires = new CommandBatch(acquireCommand, this.#connections, calls, this.#confirmed);
    this.#onceAcquires = new CommandBatch(
      acquireOnceCommand,
      this.#connections,
      calls,
      this.#confirmed,
    );
    this.#lookUps = new CommandBatch(lookUpCommand, this.#connections);
    this.#extends = new CommandBatch(extendCommand, this.#connections);
    this.#releases = new CommandBatch(releaseCommand, this.#connections, calls);
    this.#cooldowns = new CommandBatch(cooldownCommand, this.#connections);
    this.#completes = new CommandBatch(
      completeCommand,
      this.#connections,
      undefined,
      this.#confirmed,
    );
    this.#recordSteps = new CommandBatch(
      recordCommand,
      this.#connections,
      undefined,
      this.#confirmed,
    );
    if (this.#connections.isCluster) this.#twoSteps = this.#openTwoSteps();
  }

  acquire(request: AcquireRequest): void {
    const { command, onlyLooks } = request;
    // Rule 21: what only looks needs no replica.
    const refusal = onlyLooks ? undefined : this.#replicas?.refusal();
    if (refusal !== undefined) {
      request.answer(refusal);
      return;
    }
    if (command.submission === undefined && !onlyLooks) this.#acquires.add(request);
    else if (!this.#twoSteps?.acquire(request)) {
      (onlyLooks ? this.#lookUps : this.#onceAcquires).add(request);
    }
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
    if (!this.#twoSteps?.complete(request)) this.#completes.add(request);
    this.#flushCompletesSoon();
  }

  inspect(request: InspectRequest): void {
    this.#inspects ??= this.#openRare(inspectCommand);
    this.#inspects.add(request);
    this.#flushSoon();
  }

  free(request: FreeRequest): void {
    this.#frees ??= this.#openRare(freeCommand);
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
  readonly #confirmed = <Reply extends { readonly kind: string }>(
    request: LockRequest<Reply | NoAnswer>,
    reply: Reply,
  ): boolean => {
    const { command } = request;
    const { kind } = reply;
    const isLock = kind === "taken" || kind === "mine";
    const isRecord = kind === "recorded" || kind === "late";
    if (this.#replicas === undefined || !(isLock || isRecord)) return false;
    const key = isLock ? command.key : this.#connections.recordKey(command);
    this.#replicas.confirm(key, command, (cause) =>
      request.answer(cause === undefined ? reply : { kind: "unknown", cause }),
    );
    return true;
  };

  #openRare<Request extends LockRequest<Reply | NoAnswer>, Reply>(
    command: Command<Request, Reply>,
  ): CommandBatch<Request, Reply> {
    const batch = new CommandBatch(command, this.#connections);
    this.#rareBatches.push(batch);
    return batch;
  }

  #openTwoSteps(): TwoSteps {
    // Flushed in this order.
    const acquires = this.#openRare(acquireStepCommand);
    const lookUps = this.#openRare(lookUpStepCommand);
    const looks = this.#openRare(lookCommand);
    const added = <Request>(batch: { add(request: Request): void }) => {
      return (request: Request) => {
        batch.add(request);
        this.#flushSoon();
      };
    };
    return new TwoSteps(
      {
        acquire: added(acquires),
        lookUp: added(lookUps),
        look: added(looks),
        record: (request) => this.#recordSteps.add(request),
        release: (request) => this.release(request),
      },
      (key) => this.#connections.slotOf(key),
    );
  }

  /**
   * While nothing is in flight, a command goes out as soon as the code that asked for it has run to
   * its end, with whatever that code asked for besides: a lone one waits for nothing. Otherwise there
   * is more traffic, and it waits for the end of its turn of the event loop, to share a call.
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
    // Releases first: a user's next submit in the same turn finds the key free.
    this.#flushCompletes();
    this.#cooldowns.flush();
    this.#releases.flush();
    this.#extends.flush();
    this.#acquires.flush();
    this.#onceAcquires.flush();
    this.#lookUps.flush();
    for (const batch of this.#rareBatches) batch.flush();
  }
}
