import type { LockCommand, NoAnswer } from "../../lock/store.ts";
import { clearTimeout, performance, setTimeout, wallClock } from "../../time.ts";
import { inNeutralContext } from "../../timers.ts";
import { ownError, warnOnce } from "../../validation.ts";
import { type ClientPort, type ClientStatus, plainError, type ServerPort } from "./clients/port.ts";
import { recordKeyOf, slotOf } from "./clients/slots.ts";
import { Connection, type ConnectionWatcher } from "./connection.ts";
import { misconfiguration } from "./redis-errors.ts";

/**
 * Rule 9: a connection (on a Cluster, a node) is silent once a call is unanswered for this share of
 * `commandTimeoutMs`. Below 1, so that a confirm just before the time-out avoids the silent one.
 */
const silentShare = 0.9;

/**
 * Rule 9: how long the second connection is preferred after a silence of the primary, and how long
 * it stays open unused. Sentinels take up to 18 s (10 s, then 8 s) to demote a paused master.
 */
const distrustMs = 30_000;

/**
 * How long the primary's first greeting may take before a second connection is opened. A second one
 * that is unusable in status `connect` or `ready` for so long, or for 2 `commandTimeoutMs` if that
 * is longer, is replaced: a new one may lead to an elected master.
 */
const silentMs = 1_000;

/** How long a second one may be unusable in another status or on a Cluster, which seeks masters. */
const unusableMs = 5_000;

/** How long no second connection is opened after the server has refused one as too many. */
const fullMs = 5_000;

/** How long no second connection is opened after the client could not make one. */
const failedMs = 1_000;

/** So many open locks mean that an application makes a lock, of 4 kB, for each request. */
const manyLocks = 1_000;

export interface Route {
  readonly connection: Connection;
  /** On a Cluster, the name of the server that has the slot; `""` otherwise, or if unknown. */
  readonly node: string;
  /** Rule 23: the node's own connection if the call need not declare its keys; else `undefined`. */
  readonly gatherOn: ServerPort | undefined;
}

/**
 * Rule 9: the connection of a client (the application's, or `ReplicaWait`'s), called the primary,
 * and a second one, which the pair opens when the primary does not answer. A client has one pair,
 * however many stores and locks use it; an unused pair watches nothing and has no second.
 *
 * | the primary is | the connection that serves |
 * |---|---|
 * | ready, and answers | the primary; up to 30 s after its silence the second, if open and usable |
 * | ready, may be demoted | the second, opened at once; the primary if the second is no better |
 * | ready, its database not proven | the second, if it is open and usable |
 * | connecting for the first time | none; the second if the server's greeting takes > `silentMs` |
 * | silent, or lost | the second, opened on first need, replaced when it is unusable, too |
 * | ended | none |
 */
export class ConnectionPair {
  static readonly #pairs = new WeakMap<ClientPort, ConnectionPair>();
  readonly clock: RedisClock = new RedisClock();
  readonly isCluster: boolean;
  readonly #client: ClientPort;
  /** The `onReady` of every lock that uses the pair. */
  readonly #users = new Set<() => void>();
  #primary: Connection;
  #second: Connection | undefined;
  /** Since when the second is unusable, and the status that its client has had since. */
  #unusable: { readonly status: ClientStatus; readonly since: number } | undefined;
  #idleTimer: NodeJS.Timeout | undefined;
  /** When a call first found that the primary waits for its server's greeting; else `undefined`. */
  #greetedAt: number | undefined;
  /** Before this time no second is opened: the last try failed, or the server had no room. */
  #secondAt = 0;
  /** The last error of each connection, or of its proof (rule 22), until one of them is ready. */
  #lastError: Error | undefined;
  #lastErrorOfSecond: Error | undefined;

  static of(client: ClientPort): ConnectionPair {
    const pair = ConnectionPair.#pairs.get(client) ?? new ConnectionPair(client);
    ConnectionPair.#pairs.set(client, pair);
    return pair;
  }

  private constructor(client: ClientPort) {
    this.#client = client;
    this.isCluster = client.isCluster;
    this.#primary = new Connection(client);
  }

  readonly recordKey = ({ key, submission }: LockCommand): string =>
    recordKeyOf(this.#client, key, submission?.id ?? "");

  /** Returns the slot of a key; 0 without a Cluster. */
  slotOf(key: string): number {
    return this.isCluster ? slotOf((this.#client.keyPrefix ?? "") + key) : 0;
  }

  /** Returns `undefined` if no connection is usable, or if a client that was changed throws. */
  routeOf(
    { key, times }: LockCommand,
    { gatheredScript }: { readonly gatheredScript?: string },
  ): Route | undefined {
    try {
      const slot = this.slotOf(key);
      const connection = this.pick(slot, key, times.commandTimeoutMs);
      if (connection === undefined) return undefined;
      const node = connection.client.nodeOf(slot);
      const mayGather = this.isCluster && gatheredScript !== undefined;
      const gatherOn = mayGather ? connection.gathering.nodeFor(slot, node, key) : undefined;
      return { connection, node, gatherOn };
    } catch (error) {
      this.#lastError = plainError(error);
      return undefined;
    }
  }

  get inFlight(): number {
    return this.#primary.inFlight + (this.#second?.inFlight ?? 0);
  }

  /** @returns a function that ends the use. Rule 14: the last end closes `#second` alone. */
  attach(onReady: () => void): () => void {
    // Make a new function, because the Set must count every attach, also of an equal `onReady`.
    const user = () => onReady();
    if (this.#users.size === 0) inNeutralContext(() => this.#open());
    this.#users.add(user);
    if (this.#users.size === manyLocks) {
      warnOnce(
        "SUBMIT_LOCK_MANY_LOCKS",
        `${manyLocks} locks are open on one Redis client: make one SubmitLock for the process, and not one for each request, or close() each of them`,
      );
    }
    return () => {
      if (this.#users.delete(user) && this.#users.size === 0) inNeutralContext(() => this.#close());
    };
  }

  /** Chooses a connection. May open, probe or replace one: call it in the neutral context. */
  pick(slot: number, key: string, commandTimeoutMs: number): Connection | undefined {
    const silenceMs = silentShare * commandTimeoutMs;
    const primary = this.#primary;
    const primaryUsable = primary.isUsable(slot, silenceMs);
    if (!primaryUsable) primary.suspect(slot, key, silenceMs);
    else if (!primary.mayBeDemoted) {
      if (this.#second === undefined || primary.silentAt < this.#second.silentAt) return primary;
      if (performance.now() - primary.silentAt >= distrustMs) return primary;
    }
    // The primary lacks only the proof of its database: no second is opened for that.
    const isSoonUsable =
      this.#client.status === "ready" &&
      !primary.database.isCertain &&
      primary.answers(slot, silenceMs);
    const second = this.#needSecond(isSoonUsable);
    if (second !== undefined) {
      const isReady = second.isUsable(slot, silenceMs);
      if (!isReady) second.suspect(slot, key, silenceMs);
      const isOfMaster = isReady && !second.mayBeDemoted;
      this.#judge(second, isOfMaster, commandTimeoutMs);
      // `mayBeDemoted` may be outdated. While the primary is unusable, try a request on the second.
      if (isOfMaster || (isReady && !primaryUsable)) return second;
    }
    return primaryUsable ? primary : undefined;
  }

  /** Why `routeOf` has returned `undefined`, as the answer to its requests. */
  unavailableReason(): NoAnswer {
    const cause = this.#lastError ?? this.#lastErrorOfSecond;
    // Ignore the error of the second: its password is from when the client was made, perhaps old.
    const misconfigured = this.#lastError && misconfiguration(this.#lastError);
    if (misconfigured !== undefined) return misconfigured;
    try {
      const { address, advice, database, status } = this.#client;
      const isProved = this.#primary.database.isCertain;
      const unready = isProved ? "silent" : `not in database ${database} yet`;
      const state = status === "ready" ? unready : `"${status}"`;
      const hint = status === "wait" && advice !== undefined ? `: ${advice}` : "";
      const reason = `the connection to ${address} is ${state}${hint}`;
      if (status !== "end") return { kind: "unsent", reason, cause };
      // An ended client never reconnects, so the attempt need not wait.
      return { kind: "rejected", cause: ownError(reason, cause), misconfigured: false };
    } catch {
      return { kind: "unsent", reason: "the Redis client threw an error", cause };
    }
  }

  #open(): void {
    this.#primary = new Connection(this.#client);
    this.#primary.watch(this.#watcher);
  }

  #close(): void {
    this.#forgetErrors();
    try {
      this.#primary.unwatch();
    } catch {
      // The application may have changed a member of its client, and `close` never rejects.
    }
    this.#closeSecond();
  }

  readonly #watcher: ConnectionWatcher = {
    ready: () => {
      this.#forgetErrors();
      for (const onReady of this.#users) onReady();
    },
    failed: (error) => {
      this.#lastError = error;
    },
  };

  readonly #watcherOfSecond: ConnectionWatcher = {
    ready: this.#watcher.ready,
    failed: (error) => {
      this.#lastErrorOfSecond = error;
      if (!/max number of clients/i.test(error.message)) return;
      // Pause: if each process tried ten times a second, a new process would find no room, either.
      this.#secondAt = performance.now() + fullMs;
      this.#closeSecond();
    },
  };

  #forgetErrors(): void {
    this.#lastError = undefined;
    this.#lastErrorOfSecond = undefined;
  }

  #needSecond(isSoonUsable: boolean): Connection | undefined {
    this.#client.wake?.();
    const isGreeting = this.#client.status === "connect";
    this.#greetedAt = isGreeting ? (this.#greetedAt ?? performance.now()) : undefined;
    if (!this.#mayOpenSecond()) return undefined;
    // Rule 22: the application has selected another database since the second was opened.
    if (this.#second && this.#second.client.database !== this.#client.database) this.#closeSecond();
    if (this.#second === undefined && isSoonUsable) return undefined;
    this.#second ??= this.#openSecond();
    clearTimeout(this.#idleTimer);
    this.#idleTimer = setTimeout(() => {
      this.#forgetErrors();
      this.#closeSecond();
    }, distrustMs).unref();
    return this.#second;
  }

  #mayOpenSecond(): boolean {
    const { status } = this.#client;
    // Without a lock that uses the pair, nothing would close the second.
    if (this.#users.size === 0 || status === "end") return false;
    // A primary that connects for the first time needs no substitute, unless its server is silent:
    // the client may wait for that server for a quarter of an hour.
    const isConnecting = status === "wait" || status === "connecting" || status === "connect";
    const isSilent = performance.now() - (this.#greetedAt ?? Infinity) > silentMs;
    return this.#primary.everReady || !isConnecting || isSilent;
  }

  /** Returns `undefined` before `#secondAt`, or if a `duplicate()` of the application throws. */
  #openSecond(): Connection | undefined {
    if (performance.now() < this.#secondAt) return undefined;
    try {
      const client = this.#client.second();
      client.ignoreErrors();
      const second = new Connection(client);
      second.watch(this.#watcherOfSecond);
      return second;
    } catch (error) {
      this.#lastErrorOfSecond = plainError(error);
      this.#secondAt = performance.now() + failedMs;
      return undefined;
    }
  }

  #judge({ client: { status } }: Connection, isUsable: boolean, commandTimeoutMs: number): void {
    const now = performance.now();
    const isSilent = !this.isCluster && (status === "connect" || status === "ready");
    const boundMs = isSilent ? Math.max(silentMs, 2 * commandTimeoutMs) : unusableMs;
    if (isUsable) this.#unusable = undefined;
    else if (this.#unusable?.status !== status) this.#unusable = { status, since: now };
    else if (now - this.#unusable.since > boundMs) this.#closeSecond();
  }

  #closeSecond(): void {
    clearTimeout(this.#idleTimer);
    this.#unusable = undefined;
    const second = this.#second;
    this.#second = undefined;
    try {
      second?.unwatch();
      second?.client.close();
    } catch {
      // An error would end the process, because timers and events call `#closeSecond`.
    }
  }
}

interface NodeClock {
  /** Redis' time less the monotonic clock, in ms. */
  offset: number;
  /** The highest fencing token or clock in the node's replies so far, in µs; 0 without any. */
  floorUs: number;
}

/**
 * Rules 12 and 20: estimates of the servers' clocks, and the floors of fencing tokens. No safety
 * depends on them: an estimate stamps deadlines, and a wrong one costs one more round trip.
 */
export class RedisClock {
  /** One for each node: the clocks of a Cluster's masters differ. */
  readonly nodes: Map<string, NodeClock> = new Map();
  /** The newest estimate, with which a node begins. Before any reply: this process' wall clock. */
  #newestOffset: number = wallClock.now() - performance.now();

  now(node: string): number {
    return Math.floor(performance.now() + (this.nodes.get(node)?.offset ?? this.#newestOffset));
  }

  /**
   * Rule 12: Redis read its clock between the send and the reading of a reply. These times bound
   * the estimate, which moves as little as the bounds allow: a late reply, whose bounds are wide,
   * hardly moves a right estimate. Rule 20: raises the node's floor.
   */
  learn(node: string, redisTimeMs: number, token: number, sentAt: number, readAt: number): void {
    let clock = this.nodes.get(node);
    if (clock === undefined) {
      clock = { offset: this.#newestOffset, floorUs: 0 };
      this.nodes.set(node, clock);
    }
    const lowest = redisTimeMs - readAt;
    // Redis' milliseconds are rounded down.
    const highest = redisTimeMs + 1 - sentAt;
    clock.offset = Math.min(Math.max(clock.offset, lowest), highest);
    this.#newestOffset = clock.offset;
    clock.floorUs = Math.max(clock.floorUs, redisTimeMs * 1_000, token);
  }
}
