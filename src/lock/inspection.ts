import type { LostReason } from "../errors.ts";

/**
 * The content of a user's key, for a person who looks at it. Every duration is in whole
 * milliseconds by the store's own clock and not below 0; the life of a key without an expiry is
 * `Infinity` (`null` in JSON). An `id` is the argument of `free`, and never a whole owner id: the
 * first 8 hex digits of the owner id or of a foreign UUID. Any other value has 8 digits of a SHA-1,
 * made of the value (of the key's name, if the key holds no text) and its moment of expiry. Without
 * an expiry the value is hashed alone: then a newer lock with the same value has the same id.
 */
export type Inspection = (
  | { readonly state: "free" }
  | HeldInspection
  | FreedInspection
  | CooldownInspection
  | ForeignInspection
) & {
  /** The user's orders that have outlived their locks, the oldest first: they may be at work. */
  readonly outlived?: readonly OutlivedOrder[];
};

/** An order that outlived its lock, shown until it ends or 1 h after the user's last such order. */
export interface OutlivedOrder {
  /** The process that has taken the order's lock, such as `web-3:4711`. */
  readonly holder: string;
  readonly reason: LostReason;
  /** How long ago the order's lock was taken. */
  readonly takenMs: number;
  /** How long ago the order's lock ended. */
  readonly endedMs: number;
}

/** The key holds a lock of this package, or another value that begins with a UUID. */
export interface HeldInspection {
  readonly state: "held";
  readonly id: string;
  /** The process that took the lock, such as `web-3:4711`; `""` if the value names none. */
  readonly holder: string;
  /** The lock's age. `undefined`, like `renewedMs` and `endsInMs`, if the value has no times. */
  readonly heldMs: number | undefined;
  /**
   * How long ago the lock was taken or extended; much more than `ttlMs` / 3 means that extends are
   * missing, unless `maxHoldMs` are nearly over.
   */
  readonly renewedMs: number | undefined;
  /** How long until the key runs out unless it is extended. */
  readonly expiresInMs: number;
  /** How long until `maxHoldMs` are over: the lease is not extended beyond that. */
  readonly endsInMs: number | undefined;
  /**
   * The store's clock was set back: the key has more life than its holder gave it, and `heldMs` and
   * `renewedMs` may be too small. The next attempt and `free` cut the life to the holder's `ttlMs`.
   */
  readonly clockSetBack?: true;
}

/** A person has freed the lock. The holder is notified or the lease ends before the key expires. */
export interface FreedInspection {
  readonly state: "freed";
  readonly id: string;
  readonly by: string;
  readonly reason: string;
  /** How long until the key runs out, and the user's lock can be acquired again. */
  readonly expiresInMs: number;
  /** The store's clock was set back: the key's life is above 300 s, which the next attempt cuts. */
  readonly clockSetBack?: true;
}

/** There is no holder: the cooldown that the user's last lease left is not over. */
export interface CooldownInspection {
  readonly state: "cooldown";
  readonly id: string;
  readonly expiresInMs: number;
  /** The store's clock was set back: the key's life is above 60 s, which the next attempt cuts. */
  readonly clockSetBack?: true;
}

/** The key holds a value that is not this package's and does not begin with a UUID. */
export interface ForeignInspection {
  readonly state: "foreign";
  readonly id: string;
  readonly expiresInMs: number;
  /** The first 16 bytes of the value, which may show who wrote it; `undefined` with `notText`. */
  readonly valueStart?: string;
  /** `true` for a list, a hash or another type that is not text, so no lock. `free` deletes it. */
  readonly notText?: true;
}
