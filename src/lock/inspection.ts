/**
 * What a user's key holds, for a person who looks at it. Every time is in whole milliseconds by the
 * store's own clock, none is below 0, and one that has no end is `Infinity` (which JSON writes as
 * `null`). An `id` is what `free` asks for: the first 8 hex digits of the owner id, or of the SHA-1
 * of a value that is not ours (of the key's name where it holds no text). The value itself is never
 * shown.
 */
export type Inspection =
  | { readonly state: "free" }
  | HeldInspection
  | FreedInspection
  | CooldownInspection
  | ForeignInspection;

/** Somebody holds the lock. */
export interface HeldInspection {
  readonly state: "held";
  readonly id: string;
  /** The process that holds it, such as `web-3:4711`; `""` where it gave none, and for a lock of 0.1. */
  readonly holder: string;
  /** Since when. `undefined`, as `renewedMs` and `endsInMs`, where the value does not tell: a lock of 0.1. */
  readonly heldMs: number | undefined;
  /** How long ago its life was renewed; more than about `ttlMs` / 3 means that renewals are missing. */
  readonly renewedMs: number | undefined;
  /** When the key runs out unless it is renewed. */
  readonly expiresInMs: number;
  /** When it ends at the latest, however often it is renewed. */
  readonly endsInMs: number | undefined;
  /**
   * `true` where the key has more life than its holder can have given it: the store's clock was set
   * back, and `heldMs` and `renewedMs` may be too small. The next attempt for this user cuts the life
   * to the holder's `ttlMs`, and so does `free`.
   */
  readonly clockSetBack?: true;
}

/** A person has taken the lock away: its holder has been told, or its lease will have run out by then. */
export interface FreedInspection {
  readonly state: "freed";
  readonly id: string;
  readonly by: string;
  readonly reason: string;
  /** When the next one may start. */
  readonly expiresInMs: number;
  /** As in {@link HeldInspection}: more than 300 s, which the next attempt cuts to that. */
  readonly clockSetBack?: true;
}

/** Nobody holds it: the cooldown of the user's last submission is not over. */
export interface CooldownInspection {
  readonly state: "cooldown";
  readonly id: string;
  readonly expiresInMs: number;
  /** As in {@link HeldInspection}: more than 60 s, which the next attempt cuts to that. */
  readonly clockSetBack?: true;
}

/** Something that is not this package's. */
export interface ForeignInspection {
  readonly state: "foreign";
  readonly id: string;
  readonly expiresInMs: number;
  /** `true` for a list, a hash or whatever else is not text: it cannot be a lock. `free` deletes it. */
  readonly notText?: true;
}

/**
 * What became of a `free`. `freed`: the next one may start after `freeInMs`. `already-free`: there was
 * nothing. `changed`: the key holds something else than the id says; nothing was done.
 */
export type FreeResult =
  | { readonly outcome: "freed"; readonly freeInMs: number }
  | { readonly outcome: "already-free" }
  | { readonly outcome: "changed" };

/** For `free`. */
export interface FreeOptions {
  /** What `inspect` gave: at least 8 hex digits. Another lock than this one is left alone. */
  readonly id: string;
  /** Who frees, for whoever looks at the lock meanwhile. 1 to 64 characters. */
  readonly by: string;
  /** Why, such as a ticket's number. 1 to 200 characters. */
  readonly reason: string;
  /**
   * The lock is deleted at once. Its holder, if it is alive, is told only by its next renewal, up to
   * `ttlMs` / 3 later: two submissions at a time are possible until then.
   * @defaultValue false
   */
  readonly now?: boolean | undefined;
}

/** How many of what this process' lock does at the moment, and since when. */
export interface LockStats {
  /** Attempts that have no answer yet. */
  readonly attempting: number;
  /** Leases that are neither released, completed nor lost. */
  readonly held: number;
  /** Releases and completes without an answer, and owner ids that are being retired. */
  readonly retiring: number;
  /** The age of the oldest lease that is held, in milliseconds; 0 without one. */
  readonly oldestHeldMs: number;
}
