import type { HeldInspection, Inspection } from "../lock/on-call.ts";
import { duration } from "./durations.ts";

/** What a lock does, as `list` names it. */
export const lockStates = ["working", "silent", "unknown", "freed", "cooldown", "foreign"] as const;

export type LockState = (typeof lockStates)[number];

/** A lock that is there. */
export type Found = Exclude<Inspection, { state: "free" }>;

/** How a holder renews its lease. */
export interface Renewals {
  /** How often it means to. */
  readonly everyMs: number;
  /** How many it has left out. */
  readonly missed: number;
  /** It holds for `maxHoldMs` soon, and is not renewed before that. */
  readonly hasEnded: boolean;
}

/** `undefined` where the value does not tell: a lock of 0.1, or one by a clock that was set back. */
export function renewalsOf(held: HeldInspection): Renewals | undefined {
  const { renewedMs, expiresInMs, endsInMs, clockSetBack } = held;
  if (clockSetBack || renewedMs === undefined || endsInMs === undefined) return undefined;
  // A renewal gives the key ttlMs to live, and the next one is due after a third of it.
  const everyMs = (renewedMs + expiresInMs) / 3;
  const hasEnded = endsInMs <= expiresInMs;
  // One that is under way is not missed.
  const missed = everyMs === 0 ? 0 : Math.floor((renewedMs - everyMs / 2) / everyMs);
  return { everyMs, missed: hasEnded ? 0 : Math.max(missed, 0), hasEnded };
}

/** How long a key lives that nobody renews, within a sentence. */
export function restOf({ expiresInMs }: Found): string {
  return expiresInMs === Number.POSITIVE_INFINITY
    ? "and it has no expiry"
    : `for another ${duration(expiresInMs)}`;
}

export function stateOf(found: Found): LockState {
  if (found.state !== "held") return found.state;
  const renewals = renewalsOf(found);
  if (renewals === undefined) return "unknown";
  return renewals.missed > 0 ? "silent" : "working";
}
