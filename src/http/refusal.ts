import type { StoredAnswer } from "../lock/record.ts";
import type { Problem } from "./problem.ts";

/** Every function that answers is given the default answer. */
interface Refused {
  /** The answer that the guard gives by default, for one of your own that keeps its headers. */
  readonly problem: Problem;
}

/** The request has no user. */
export interface Anonymous extends Refused {
  readonly reason: "anonymous";
}

/** Another submission of the user holds the lock. */
export interface Contended extends Refused {
  readonly reason: "contended";
  /** How long the holder's lease has to live unless it is extended, in milliseconds. */
  readonly expiresInMs: number;
  /** The holder is at work on this very submission. */
  readonly sameSubmission: boolean;
  /** This submission was completed, but its answer was not kept. */
  readonly answerUnavailable: boolean;
  /** This submission was waited for and is over, and its answer was not kept: a new try may run. */
  readonly hasEnded?: boolean | undefined;
  /** The user's last submission succeeded a moment ago, and `cooldownMs` is not over. */
  readonly isCooldown: boolean;
}

/**
 * The request has no `Idempotency-Key`, although one is required, or one that cannot be read, or
 * `submissionId` returned an id that is a number, a boolean or unfit text.
 */
export interface KeyMissing extends Refused {
  readonly reason: "key-missing" | "key-invalid" | "id-invalid";
  /**
   * Never with the value. `key-invalid`: a predicate for "The Idempotency-Key header …";
   * `id-invalid`: a sentence.
   */
  readonly why?: string | undefined;
}

/** The id of this submission is that of another one, with other content. */
export interface Mismatch extends Refused {
  readonly reason: "mismatch";
  /** That one is still being processed; otherwise it was completed. */
  readonly inFlight: boolean;
}

/** The submission was completed before: this is its answer. */
export interface Replay {
  readonly reason: "replay";
  readonly answer: StoredAnswer;
  /** How long ago it was answered, in milliseconds. */
  readonly ageMs: number;
}

/** Nobody can say who holds the lock. */
export interface Unavailable extends Refused {
  readonly reason: "unavailable";
  readonly cause: Error;
}

/** Why a request is answered with 400, 401, 409, 422 or 503 instead of being let through. */
export type Refusal = Anonymous | Contended | KeyMissing | Mismatch | Unavailable;

/** A refusal as it is found: its answer is made only where a function is called. */
export type RefusalReason = WithoutProblem<Refusal>;

type WithoutProblem<Each extends Refusal> = Each extends Refusal ? Omit<Each, "problem"> : never;
