import type { LockCommand, NoAnswer } from "../../lock/store.ts";
import { inNeutralContext } from "../../neutral-context.ts";
import { recordKeyOf, slotOf } from "./cluster.ts";
import { Connection, type ConnectionWatcher } from "./connection.ts";
import {
  addressOf,
  type ClusterNode,
  databaseOf,
  duplicate,
  isCluster,
  keyPrefixOf,
  monitorErrors,
  onError,
  type RedisClient,
} from "./ioredis.ts";
import { misconfiguration } from "./no-answers.ts";

/**
 * Rule 9: a connection with anything unanswered for this share of `commandTimeoutMs` is suspected of
 * silence. Below 1, so that the confirm, which the lock sends after `commandTimeoutMs`, finds the
 * primary suspected also where a timer fires a little early, and takes the second connection.
 */
const silentShare = 0.9;

/**
 * Rule 9: how long a connection that was silent comes after one that was not. A master that was
 * paused still believes to be one when it wakes, until it hears that another was elected; a
 * connection that was opened in its absence leads to the other. The slowest to correct it is a
 * Sentinel, which looks every 10 s and then waits for 8 s.
 */
const distrustMs = 30_000;

/** How long the second connection stays open after its last use: as long as it may be preferred. */
const idleMs = distrustMs;

/**
 * How long the second connection may be silent, and at least as long as the two round trips of its
 * handshake, before another takes its place. That may lead to a newly elected master.
 */
const silentMs = 1_000;

/** In any other state, and on a Cluster, where others may answer: there ioredis has timers of its own. */
const unusableMs = 5_000;

/**
 * Rule 12: an estimate of Redis' clock. No safety rests on it: it only stamps the deadlines, which
 * Redis compares with its own clock, and a wrong stamp costs one more round trip.
 */
export class RedisClock {
  /** What to add to the monotonic clock. Starts at this process' own wall clock. */
  #offset: number = Date.now() - performance.now();

  /** Rule 20, by node: on a Cluster the masters' clocks differ, and so would their tokens. */
  readonly #floorsUs = new Map<string, number>();

  /** Redis' time, in whole milliseconds, as far as it is known. */
  now(): number {
    return Math.floor(performance.now() + this.#offset);
  }

  /**
   * Every reply bounds the estimate: Redis read its clock after the send and before the reply was
   * read. The estimate moves by the least that satisfies both bounds, so no history is kept, and a
   * late reply, whose bounds are wide, does no harm.
   */
  learn(redisTimeMs: number, sentAt: number, readAt: number): void {
    const lowest = redisTimeMs - readAt;
    // Redis' milliseconds are rounded down.
    const highest = redisTimeMs + 1 - sentAt;
    this.#offset = Math.min(Math.max(this.#offset, lowest), highest);
  }

  /** The highest fencing token or clock that was heard from the node, in microseconds; 0 for none. */
  floorUs(node: string): number {
    return this.#floorsUs.get(node) ?? 0;
  }

  hear(node: string, microseconds: number): void {
    const floorUs = this.#floorsUs.get(node) ?? 0;
    if (microseconds > floorUs) this.#floorsUs.set(node, microseconds);
  }
}

/** Where a call goes. */
export interface Route {
  readonly connection: Connection;
  /** On a Cluster, the name of the server. */
  readonly node: string;
  /** On a Cluster, where calls may be gathered: the node's own connection. */
  readonly own: ClusterNode | undefined;
}

/**
 * Rule 9: the application's own connection, the primary, and a second one of the store's for when
 * the primary does not answer. One pair a client, however many stores and locks use it.
 *
 * | the primary is | what serves |
 * |---|---|
 * | ready, and answers | the primary; in the 30 s after it was silent, the second where it can |
 * | coming up for the first time | nothing: there is no second yet |
 * | silent, or lost | the second, opened on first need and replaced when silent for 1 s |
 * | ended by the application | nothing |
 *
 * Without a lock that uses it the pair watches nothing and has no second connection.
 *
 * Two copies of this package in one process have a pair each. That costs one more second connection
 * and no safety; to share one would tie the inner workings of all versions together.
 */
export class ConnectionPair {
  static readonly #pairs = new WeakMap<RedisClient, ConnectionPair>();
  /** The clock of the server that both connections lead to. */
  readonly clock: RedisClock = new RedisClock();
  readonly isCluster: boolean;
  readonly #client: RedisClient;
  /** The `onReady` of every lock that uses the pair. */
  readonly #users = new Set<() => void>();
  #primary: Connection;
  #second: Connection | undefined;
  /** Since when the second is, and in which state of its client. */
  #unusable: { readonly status: string; readonly since: number } | undefined;
  #idleTimer: NodeJS.Timeout | undefined;
  /** Why a connection was lost or did not come up, until one comes up. */
  #lastError: Error | undefined;
  #endMonitor: () => void = () => {};

  static of(client: RedisClient): ConnectionPair {
    let pair = ConnectionPair.#pairs.get(client);
    if (pair === undefined) {
      pair = new ConnectionPair(client);
      ConnectionPair.#pairs.set(client, pair);
    }
    return pair;
  }

  private constructor(client: RedisClient) {
    this.#client = client;
    this.isCluster = isCluster(client);
    this.#primary = new Connection(client);
  }

  /** Where the record of a submission lies: in the lock's slot. */
  recordKey({ key, submission }: LockCommand): string {
    return recordKeyOf(this.#client, key, submission?.id ?? "");
  }

  /** The hash slot of a key, with the client's prefix in front; 0 without a Cluster. */
  slotOf(key: string): number {
    return this.isCluster ? slotOf(keyPrefixOf(this.#client) + key) : 0;
  }

  /** The server that has the slot, as far as the client knows. */
  nodeOf(slot: number): string {
    return this.#primary.nodeOf(slot);
  }

  /** Where a request goes now; `undefined` while there is no connection for it. */
  routeOf(
    { key, times }: LockCommand,
    { gatheredScript }: { readonly gatheredScript?: string },
  ): Route | undefined {
    const slot = this.isCluster ? this.slotOf(key) : 0;
    const connection = this.pick(slot, key, times.commandTimeoutMs);
    if (connection === undefined) return undefined;
    const node = connection.nodeOf(slot);
    const mayGather = this.isCluster && gatheredScript !== undefined;
    const own = mayGather ? connection.gathering.nodeFor(slot, node, key) : undefined;
    return { connection, node, own };
  }

  /** How many calls were written that no sign of life has followed. */
  get inFlight(): number {
    return this.#primary.inFlight + (this.#second?.inFlight ?? 0);
  }

  /**
   * A lock begins to use the pair.
   *
   * @param onReady called whenever a connection came up.
   * @returns ends this use. With the last one the second connection and every listener go (rule 14);
   *   the client itself can still be written to.
   */
  attach(onReady: () => void): () => void {
    // Wrapped, so that one function attached twice is two uses.
    const user = () => onReady();
    if (this.#users.size === 0) inNeutralContext(() => this.#open());
    this.#users.add(user);
    return () => {
      if (this.#users.delete(user) && this.#users.size === 0) inNeutralContext(() => this.#close());
    };
  }

  /**
   * The connection for a key and its slot, or `undefined` while there is none. To be called in the
   * neutral context.
   */
  pick(slot: number, key: string, commandTimeoutMs: number): Connection | undefined {
    const silenceMs = silentShare * commandTimeoutMs;
    const primary = this.#primary;
    const primaryUsable = primary.isUsable(slot, silenceMs);
    if (!primaryUsable) primary.suspect(slot, key, silenceMs);
    else if (this.#second === undefined || primary.silentAt < this.#second.silentAt) return primary;
    else if (performance.now() - primary.silentAt >= distrustMs) return primary;
    // Nothing but the proof of its database is missing, so none is opened for it.
    const isSoonUsable =
      this.#client.status === "ready" && !primary.isInDatabase && primary.answers(slot, silenceMs);
    const second = this.#needSecond(isSoonUsable);
    if (second !== undefined) {
      const isUsable = second.isUsable(slot, silenceMs);
      if (!isUsable) second.suspect(slot, key, silenceMs);
      this.#judge(second, isUsable, commandTimeoutMs);
      if (isUsable) return second;
    }
    return primaryUsable ? primary : undefined;
  }

  /** Why `pick` found none. */
  unavailableReason(): NoAnswer {
    const { status } = this.#client;
    const cause = this.#lastError;
    const misconfigured = cause && misconfiguration(cause);
    if (misconfigured !== undefined) return misconfigured;
    const unready = this.#primary.isInDatabase
      ? "silent"
      : `not in database ${databaseOf(this.#client)} yet`;
    const state = status === "ready" ? unready : `"${status}"`;
    const reason = `the connection to ${addressOf(this.#client)} is ${state}`;
    // The client has given up: there is nothing to wait for, as there is while it reconnects.
    if (status === "end") {
      const ended = new Error(reason, cause && { cause });
      return { kind: "rejected", cause: ended, misconfigured: false };
    }
    return { kind: "unsent", reason, cause };
  }

  #open(): void {
    this.#primary = new Connection(this.#client);
    this.#primary.watch(this.#watcher);
    this.#endMonitor = monitorErrors(this.#client, (error) => {
      this.#lastError = error;
    });
    this.#connectIfLazy();
  }

  #close(): void {
    this.#endMonitor();
    this.#lastError = undefined;
    this.#primary.unwatch();
    this.#closeSecond();
  }

  readonly #watcher: ConnectionWatcher = {
    ready: () => {
      this.#lastError = undefined;
      for (const onReady of this.#users) onReady();
    },
    refused: (error) => {
      this.#lastError = error;
    },
  };

  #connectIfLazy(): void {
    // A failure shows in the status, and is reported by the client's own `error` event.
    if (this.#client.status === "wait") this.#client.connect().catch(() => {});
  }

  /** @param isSoonUsable whether the primary is about to serve, so that none is opened for it. */
  #needSecond(isSoonUsable: boolean): Connection | undefined {
    this.#connectIfLazy();
    if (!this.#mayOpenSecond()) return undefined;
    // Rule 22: the application has selected another database since it was opened.
    const isElsewhere =
      this.#second && databaseOf(this.#second.client) !== databaseOf(this.#client);
    if (isElsewhere) this.#closeSecond();
    if (this.#second === undefined && isSoonUsable) return undefined;
    this.#second ??= this.#openSecond();
    clearTimeout(this.#idleTimer);
    this.#idleTimer = setTimeout(() => this.#closeIdle(), idleMs);
    this.#idleTimer.unref();
    return this.#second;
  }

  #mayOpenSecond(): boolean {
    // No user would close it.
    if (this.#users.size === 0) return false;
    switch (this.#client.status) {
      case "end":
        // The application has closed its client, and does not want another connection.
        return false;
      case "wait":
      case "connecting":
      case "connect":
        // The primary is coming up for the first time, and needs no substitute yet.
        return this.#primary.everReady;
      default:
        return true;
    }
  }

  #openSecond(): Connection {
    const client = duplicate(this.#client);
    const second = new Connection(client);
    second.watch(this.#watcher);
    // What keeps this one from coming up is likely to keep the primary from it, whose own errors are
    // heard only if the application listens to them.
    onError(client, (error) => {
      this.#lastError = error;
    });
    return second;
  }

  #judge({ client: { status } }: Connection, isUsable: boolean, commandTimeoutMs: number): void {
    const now = performance.now();
    const isSilent = !this.isCluster && (status === "connect" || status === "ready");
    const boundMs = isSilent ? Math.max(silentMs, 2 * commandTimeoutMs) : unusableMs;
    if (isUsable) this.#unusable = undefined;
    else if (this.#unusable?.status !== status) this.#unusable = { status, since: now };
    else if (now - this.#unusable.since > boundMs) this.#closeSecond();
  }

  #closeIdle(): void {
    // What happened so long ago is no cause of what happens next.
    this.#lastError = undefined;
    this.#closeSecond();
  }

  #closeSecond(): void {
    clearTimeout(this.#idleTimer);
    this.#unusable = undefined;
    const second = this.#second;
    this.#second = undefined;
    second?.unwatch();
    second?.client.disconnect();
  }
}
