import type { Ledger } from "../ledger.ts";
import { longRetainMs } from "./complete-faults.ts";
import type { Fault } from "./fault.ts";
import type { Observer } from "./observer.ts";
import type { Retries } from "./retries.ts";

/** What a cell showed of one submission that came again and again. */
export interface Once {
  /** How often a retry got the lock while the answer was to be kept. */
  readonly secondRuns: number;
  readonly wrongAnswers: number;
  /** From the complete to the first retry that was given the answer; ∞ if none was. */
  readonly replayedAfterMs: number;
  /** How often neither the caller's lock nor a record was there. */
  readonly gaps: number;
  readonly isRecordedAtEnd: boolean;
}

/** A record may expire so much earlier by our clock: its time counts from when Redis was last heard. */
const expirySlackMs = 200;

export function onceOf(
  { ranAt, replayedAt = Number.POSITIVE_INFINITY, wrongAnswers }: Retries,
  {
    observer,
    ledger,
    callEndedAt,
    fault,
  }: { observer: Observer; ledger: Ledger; callEndedAt: number; fault: Fault },
): Once {
  // By the end of the acquire at the latest the store's time was known; the expiry counts from it.
  const keptUntil = callEndedAt + (fault.retainMs ?? longRetainMs) - expirySlackMs;
  const ownerId = ledger.holdings.find(({ holder }) => holder === "caller")?.ownerId ?? "";
  return {
    secondRuns: ranAt.filter((at) => at < keptUntil).length,
    wrongAnswers,
    replayedAfterMs: replayedAt - callEndedAt,
    gaps: observer.gaps(ownerId, keptUntil),
    isRecordedAtEnd: observer.isRecordedNow,
  };
}
