import { duplicate, type RedisClient } from "./client.ts";
import { Lane } from "./lane.ts";

/** How long the second connection is kept after it was last needed. */
const idleMs = 30_000;

/** A connection with anything unanswered for this share of `commandTimeoutMs` is suspected of silence. */
const silentShare = 0.9;

/**
 * The user's own connection, and a second one for when the first does not answer. The second is
 * opened on first need and closed when it has not been needed for a while.
 */
export class Lanes {
  readonly #client: RedisClient;
  readonly #onReady: () => void;
  #primary: Lane | undefined;
  #second: Lane | undefined;
  #idleTimer: NodeJS.Timeout | undefined;

  constructor(client: RedisClient, onReady: () => void) {
    this.#client = client;
    this.#onReady = onReady;
  }

  /** Why nothing can be sent, for an error message. */
  get status(): string {
    return this.#client.status;
  }

  /** @param avoid the lane whose answer is overdue: the other one is preferred. */
  pick(now: number, commandTimeoutMs: number, avoid: Lane | undefined): Lane | undefined {
    const silenceMs = silentShare * commandTimeoutMs;
    this.#primary ??= new Lane(this.#client, this.#onReady);
    const primary = this.#primary;
    const primaryUsable = primary.isUsable(now, silenceMs);
    if (primaryUsable && primary !== avoid) return primary;
    const second = this.#needSecond(primary);
    if (second?.isUsable(now, silenceMs) === true && second !== avoid) return second;
    // The same way again is better than none.
    if (primaryUsable) return primary;
    return second?.isUsable(now, silenceMs) === true ? second : undefined;
  }

  /** Begins to watch the connection. */
  open(): void {
    this.#primary ??= new Lane(this.#client, this.#onReady);
    this.#connectIfLazy();
  }

  close(): void {
    this.#primary?.abandon();
    this.#primary = undefined;
    this.#closeSecond();
  }

  #connectIfLazy(): void {
    // A failure is seen by its status, and reported by the client's own `error` event.
    if (this.#client.status === "wait") this.#client.connect().catch(() => {});
  }

  #needSecond(primary: Lane): Lane | undefined {
    this.#connectIfLazy();
    if (this.#second === undefined) {
      // `end`: the application has closed its client, and does not want another connection.
      if (!primary.everReady || this.#client.status === "end") return undefined;
      const client = duplicate(this.#client);
      // Without a listener ioredis prints every failed reconnect.
      client.on("error", () => {});
      this.#second = new Lane(client, this.#onReady);
    }
    clearTimeout(this.#idleTimer);
    this.#idleTimer = setTimeout(() => this.#closeSecond(), idleMs);
    this.#idleTimer.unref();
    return this.#second;
  }

  #closeSecond(): void {
    clearTimeout(this.#idleTimer);
    const second = this.#second;
    this.#second = undefined;
    second?.abandon();
    second?.client.disconnect();
  }
}
