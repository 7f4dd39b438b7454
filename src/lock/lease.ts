import { inspect } from "node:util";
import {
  publish,
  type ReleaseMessage,
  type ReleaseOutcome,
  releaseChannel,
} from "./diagnostics.ts";
import type { HeldLease } from "./held-lease.ts";

/** A lock that is ours until a time. */
export interface Lease {
  /** The key in the store, such as `lock:submit:42`. */
  readonly key: string;
  /** The random value that identifies this lease, a UUID. Keep it out of logs and answers. */
  readonly ownerId: string;
  /**
   * Aborts, with a `LockLostError` as its reason, when the lease is lost: overtaken, or about to
   * run out because it could not be extended or was held for `maxHoldMs`. It aborts the smaller of
   * 1 s and a tenth of `ttlMs` before the end, and never after a release.
   *
   * A process that is paused beyond the lease hears of it only when it goes on: keep a unique key
   * in the order table as well.
   */
  readonly signal: AbortSignal;
  /** How long the lease is certainly valid unless it is extended further, in milliseconds; 0 once it is lost or released. */
  remainingMs(): number;
  /**
   * Gives the lock back. Never rejects and need not be awaited: it settles within about
   * `acquireTimeoutMs`, and goes on in the background if Redis is silent. A second call gives the
   * promise of the first.
   */
  release(): Promise<ReleaseOutcome>;
}

/** The lease in a user's hands: the public members, and nothing of the watchdog behind it. */
export class UserLease implements Lease {
  readonly #held: HeldLease;
  #released: Promise<ReleaseOutcome> | undefined;

  constructor(held: HeldLease) {
    this.#held = held;
  }

  // Getters of the prototype, so that what is serialised or logged does not show the owner id.
  get key(): string {
    return this.#held.command.key;
  }

  get ownerId(): string {
    return this.#held.command.ownerId;
  }

  get signal(): AbortSignal {
    return this.#held.signal;
  }

  remainingMs(): number {
    return this.#held.remainingMs();
  }

  release(): Promise<ReleaseOutcome> {
    if (this.#released === undefined) {
      let settle!: (outcome: ReleaseOutcome) => void;
      // Known before anything else happens: a store may answer at once.
      this.#released = new Promise((resolve) => {
        settle = resolve;
      });
      const releasedAt = performance.now();
      this.#held.release((outcome, cause) => {
        publishRelease(this.#held, outcome, releasedAt, cause);
        settle(outcome);
      });
    }
    return this.#released;
  }

  /** What loggers show. */
  toJSON(): { key: string; remainingMs: number } {
    return { key: this.key, remainingMs: Math.floor(this.remainingMs()) };
  }
}

// Not as a member of the class: declarations cannot name its key.
Object.defineProperty(UserLease.prototype, inspect.custom, {
  value(this: UserLease): string {
    return `Lease ${inspect(this.toJSON())}`;
  },
});

function publishRelease(
  { command, startedAt }: HeldLease,
  outcome: ReleaseOutcome,
  releasedAt: number,
  cause: Error | undefined,
): void {
  if (!releaseChannel.hasSubscribers) return;
  const message: ReleaseMessage = {
    key: command.key,
    outcome,
    durationMs: performance.now() - releasedAt,
    heldMs: releasedAt - startedAt,
    cause,
  };
  publish(releaseChannel, command, message);
}
