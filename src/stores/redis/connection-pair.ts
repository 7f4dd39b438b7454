import type { NoAnswer } from "../../lock/store.ts";
import { Connection } from "./connection.ts";
import { duplicate, type RedisClient } from "./ioredis.ts";
import { isPermissionError, withoutCommand } from "./replies.ts";

/** How long the second connection is kept after it was last needed. */
const idleMs = 30_000;

/** How long the second connection may be of no use before another one takes its place. */
const uselessMs = 2_000;

/**
 * How long a connection that was silent comes after one that was not. A master that was paused
 * takes itself for the master when it wakes, until it is told that another one was elected
 * meanwhile; the connection that was opened in its absence leads to that one.
 */
const distrustMs = 30_000;

/** A connection with anything unanswered for this share of `commandTimeoutMs` is suspected of silence. */
const silentShare = 0.9;

/**
 * The user's own connection, and a second one for when the first does not answer. The second is
 * opened on first need and closed when it has not been needed for a while.
 */
export class ConnectionPair {
  readonly #client: RedisClient;
  readonly #onReady: () => void;
  #primary: Connection;
  #second: Connection | undefined;
  #uselessSince: number | undefined;
  #idleTimer: NodeJS.Timeout | undefined;
  #isOpen = true;
  /** Redis' last word to the second connection, if it was "you may not". */
  #refusal: Error | undefined;

  constructor(client: RedisClient, onReady: () => void) {
    this.#client = client;
    this.#onReady = onReady;
    this.#primary = new Connection(client, onReady);
  }

  /** How many calls have not been answered. */
  get underWay(): number {
    return this.#primary.underWay + (this.#second?.underWay ?? 0);
  }

  /** The lane for a key, or `undefined` while there is none. */
  pick(key: string, commandTimeoutMs: number): Connection | undefined {
    const silenceMs = silentShare * commandTimeoutMs;
    const primaryUsable = this.#primary.isUsable(key, silenceMs);
    if (primaryUsable && !this.#prefersSecond()) return this.#primary;
    const second = this.#needSecond();
    const secondUsable = second?.isUsable(key, silenceMs) === true;
    if (second !== undefined) this.#judge(secondUsable);
    if (secondUsable) return second;
    return primaryUsable ? this.#primary : undefined;
  }

  #prefersSecond(): boolean {
    const { silentAt } = this.#primary;
    if (this.#second === undefined || silentAt < this.#second.silentAt) return false;
    return performance.now() - silentAt < distrustMs;
  }

  /** Why `pick` found none. */
  unavailableReason(): NoAnswer {
    const { status } = this.#client;
    const reason = `the connection is "${status}"`;
    if (this.#refusal !== undefined) {
      return { kind: "rejected", cause: this.#refusal, misconfigured: true };
    }
    // It stays so: there is nothing to wait for, as there is while a client reconnects.
    if (status === "end") {
      return { kind: "rejected", cause: new Error(reason), misconfigured: false };
    }
    return { kind: "unsent", reason };
  }

  /** A lock begins to use the connection. */
  open(): void {
    this.#connectIfLazy();
    if (this.#isOpen) return;
    this.#isOpen = true;
    this.#primary = new Connection(this.#client, this.#onReady);
  }

  /** Ends the second connection and the watch over the first, which can still be written to. */
  close(): void {
    this.#isOpen = false;
    this.#primary.abandon();
    this.#closeSecond();
  }

  #connectIfLazy(): void {
    // A failure is seen by its status, and reported by the client's own `error` event.
    if (this.#client.status === "wait") this.#client.connect().catch(() => {});
  }

  #needSecond(): Connection | undefined {
    this.#connectIfLazy();
    if (!this.#mayOpenSecond()) return undefined;
    this.#second ??= this.#openSecond();
    clearTimeout(this.#idleTimer);
    this.#idleTimer = setTimeout(() => this.#closeSecond(), idleMs);
    this.#idleTimer.unref();
    return this.#second;
  }

  #mayOpenSecond(): boolean {
    if (!this.#isOpen) return false;
    switch (this.#client.status) {
      case "end":
        // The application has closed its client, and does not want another connection.
        return false;
      case "wait":
      case "connecting":
      case "connect":
        // The first connection is just coming up.
        return this.#primary.everReady;
      default:
        return true;
    }
  }

  #openSecond(): Connection {
    const client = duplicate(this.#client);
    const lane = new Connection(client, () => {
      this.#refusal = undefined;
      this.#onReady();
    });
    // Without a listener ioredis prints every failed reconnect. On the user's own client a listener
    // of ours would silence that; but what keeps the one from coming up is told to the other, too.
    client.on("error", (error: Error) => {
      this.#refusal = isPermissionError(error) ? withoutCommand(error) : undefined;
    });
    return lane;
  }

  /** A path that swallows everything says nothing of it: only a new connection finds a new way. */
  #judge(secondUsable: boolean): void {
    const now = performance.now();
    if (secondUsable) this.#uselessSince = undefined;
    else if (this.#uselessSince === undefined) this.#uselessSince = now;
    else if (now - this.#uselessSince > uselessMs) this.#closeSecond();
  }

  #closeSecond(): void {
    clearTimeout(this.#idleTimer);
    this.#uselessSince = undefined;
    this.#refusal = undefined;
    const second = this.#second;
    this.#second = undefined;
    second?.abandon();
    second?.client.disconnect();
  }
}
