import type { AcquireReply, LockRequest, LockStore, OwnedReply } from "../../lock/store.ts";
import { inNeutralContext } from "../../neutral-context.ts";
import { CommandBatch } from "./batch.ts";
import { acquireCommand, extendCommand, releaseCommand } from "./commands.ts";
import { ConnectionPair } from "./connection-pair.ts";
import { checkClient, isCluster, type RedisClient } from "./ioredis.ts";

/** At 2 to 3 µs a key, a full call holds Redis, and everybody else on it, for 0.2 to 0.3 ms. */
const maxKeysInOneCall = 100;

/**
 * Locks on a Redis or Valkey server, through an ioredis client (5 or 6, `Redis` or `Cluster`).
 *
 * The client stays yours: it is never closed, no command is defined on it, and its options may be
 * what they are. A second connection of the same options is opened when the first one is silent, and
 * closed when it has not been needed for 30 s or when the last lock on the client is closed: one for
 * each client, however many stores and locks are made on it.
 */
export class RedisStore implements LockStore {
  readonly #connections: ConnectionPair;
  readonly #acquires: CommandBatch<AcquireReply>;
  readonly #extends: CommandBatch<OwnedReply>;
  readonly #releases: CommandBatch<OwnedReply>;
  #isToFlush = false;

  /**
   * @param client an ioredis client.
   * @throws InvalidOptionError for anything else.
   */
  constructor(client: RedisClient) {
    checkClient(client);
    this.#connections = ConnectionPair.of(client);
    // On a Cluster the keys of one call would have to be in one slot.
    const maxKeys = isCluster(client) ? 1 : maxKeysInOneCall;
    this.#acquires = new CommandBatch(acquireCommand, this.#connections, maxKeys);
    this.#extends = new CommandBatch(extendCommand, this.#connections, maxKeys);
    this.#releases = new CommandBatch(releaseCommand, this.#connections, maxKeys);
  }

  acquire(request: LockRequest<AcquireReply>): void {
    this.#acquires.add(request);
    this.#flushSoon();
  }

  extend(request: LockRequest<OwnedReply>): void {
    this.#extends.add(request);
    this.#flushSoon();
  }

  release(request: LockRequest<OwnedReply>): void {
    this.#releases.add(request);
    this.#flushSoon();
  }

  attach(onReady: () => void): () => Promise<void> {
    const detach = this.#connections.attach(onReady);
    return () => {
      detach();
      return Promise.resolve();
    };
  }

  /**
   * While nothing is in flight, a command goes out as soon as the code that asked for it has run to
   * its end, with whatever that code asked for besides: a lone one waits for nothing. Otherwise there
   * is more traffic, and it waits for the end of its turn of the event loop, to share a call.
   *
   * A call may carry the commands of many requests, so it is written in the context of none of them.
   */
  #flushSoon(): void {
    if (this.#isToFlush) return;
    this.#isToFlush = true;
    if (this.#connections.inFlight === 0) inNeutralContext(process.nextTick, this.#flush);
    else inNeutralContext(setImmediate, this.#flush);
  }

  readonly #flush = (): void => {
    this.#isToFlush = false;
    // Releases first: a user's next submit in the same turn finds the key free.
    this.#releases.flush();
    this.#extends.flush();
    this.#acquires.flush();
  };
}
