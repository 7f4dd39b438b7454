import { InvalidOptionError } from "../../errors.ts";
import type { AcquireReply, LockRequest, LockStore, OwnedReply } from "../../lock/store.ts";
import { describe, hasMembers } from "../../validation.ts";
import { Batch } from "./batch.ts";
import { acquireCommand, extendCommand, releaseCommand } from "./commands.ts";
import { ConnectionPair } from "./connection-pair.ts";
import { isCluster, type RedisClient } from "./ioredis.ts";
import { RedisClock } from "./redis-clock.ts";

/** At about 2 µs a key, a full call holds Redis for about 0.2 ms. */
const maxKeysInOneCall = 100;

/**
 * Locks on a Redis or Valkey server, through an ioredis client (5 or 6, `Redis` or `Cluster`).
 *
 * The client stays yours: it is never closed, no command is defined on it, and its options may be
 * what they are. A second connection of the same options is opened when the first one is silent, and
 * closed when it has not been needed for 30 s or when the last lock of the store is closed.
 */
export class RedisStore implements LockStore {
  readonly #lanes: ConnectionPair;
  readonly #acquires: Batch<AcquireReply>;
  readonly #extends: Batch<OwnedReply>;
  readonly #releases: Batch<OwnedReply>;
  readonly #listeners = new Set<() => void>();
  #isToFlush = false;

  /**
   * @param client an ioredis client.
   * @throws InvalidOptionError for anything else.
   */
  constructor(client: RedisClient) {
    checkClient(client);
    this.#lanes = new ConnectionPair(client, () => {
      for (const listener of this.#listeners) listener();
    });
    const clock = new RedisClock();
    // On a Cluster the keys of one call would have to be in one slot.
    const maxKeys = isCluster(client) ? 1 : maxKeysInOneCall;
    this.#acquires = new Batch(acquireCommand, this.#lanes, clock, maxKeys);
    this.#extends = new Batch(extendCommand, this.#lanes, clock, maxKeys);
    this.#releases = new Batch(releaseCommand, this.#lanes, clock, maxKeys);
  }

  acquire(copy: LockRequest<AcquireReply>): void {
    this.#acquires.add(copy);
    this.#flushSoon();
  }

  extend(copy: LockRequest<OwnedReply>): void {
    this.#extends.add(copy);
    this.#flushSoon();
  }

  release(copy: LockRequest<OwnedReply>): void {
    this.#releases.add(copy);
    this.#flushSoon();
  }

  attach(onReady: () => void): () => Promise<void> {
    // Wrapped, so that one function attached twice is two uses.
    const listener = () => onReady();
    if (this.#listeners.size === 0) this.#lanes.open();
    this.#listeners.add(listener);
    return () => {
      if (this.#listeners.delete(listener) && this.#listeners.size === 0) this.#lanes.close();
      return Promise.resolve();
    };
  }

  /**
   * While nothing is under way, a command goes out as soon as the code that sent it has run to its
   * end, with whatever that code sent besides: a lone one waits for nothing. Otherwise there is more
   * traffic, and it waits for the end of its turn of the event loop, to share a call.
   */
  #flushSoon(): void {
    if (this.#isToFlush) return;
    this.#isToFlush = true;
    if (this.#lanes.underWay === 0) process.nextTick(() => this.#flush());
    else setImmediate(() => this.#flush());
  }

  #flush(): void {
    this.#isToFlush = false;
    // Releases first: a user's next submit in the same turn finds the key free.
    this.#releases.flush();
    this.#extends.flush();
    this.#acquires.flush();
  }
}

function checkClient(client: unknown): void {
  if (hasMembers(client, ["eval", "duplicate", "status", "on"])) return;
  const came = hasMembers(client, ["sendCommand", "isOpen"])
    ? "a node-redis client: pass one of ioredis instead, such as new Redis(url)"
    : describe(client);
  throw new InvalidOptionError(
    `redis: expected an ioredis client (Redis or Cluster of ioredis 5 or 6), got ${came}`,
  );
}
