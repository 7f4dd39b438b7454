/** The types that every adapter exports beside its guard. This file has no values. */
import type { StoredAnswer } from "../lock/record.ts";

export type { ReplayMessage } from "../lock/channels.ts";

/** No id that distinguishes this submission from others. */
type NoId = undefined | null | "";

/** How a guard recognises a submission that is sent again. Its callbacks get a `Source`. */
export interface IdempotencyOptions<Source> {
  /** The `Idempotency-Key` header; "required": 400 without any id. @defaultValue "optional" */
  readonly key?: "optional" | "required" | "ignored" | undefined;
  /**
   * Returns the application's id of a submission: cart id and version, or a token in the form; 1 to
   * 1 024 characters. With an id, the header is ignored. Never a hash of the body: an order placed
   * twice on purpose would be lost. A number, a boolean and unfit text are a 400, an object is an
   * `InvalidOptionError`. @defaultValue none
   */
  readonly submissionId?: ((source: Source) => string | NoId | Promise<string | NoId>) | undefined;
  /**
   * Returns the content that must be equal on a retry: JSON, text, bytes, or a promise of them; the
   * rest is a `NoFingerprintError`. `{ except: ["captcha"] }`: query, body and files, without these
   * top-level members of the body. @defaultValue query, body and files; none with `submissionId`
   */
  readonly fingerprint?:
    | ((source: Source) => unknown)
    | { readonly except: readonly string[] }
    | undefined;
  /**
   * How long an answer is kept, in milliseconds: 1 000 to 604 800 000, and at least twice the
   * lock's `acquireTimeoutMs`. @defaultValue 86 400 000
   */
  readonly retainMs?: number | undefined;
  /** Which answers are kept. @defaultValue "success" */
  readonly store?: StorePolicy | undefined;
  /** Headers that are stored and replayed beside the package's own list. @defaultValue none */
  readonly replayHeaders?: readonly string[] | undefined;
  /**
   * The longest body that is kept, in bytes: 0 to 1 048 576. Of an answer with a longer one, status
   * and headers are kept: a retry gets them if 3xx, else 409. @defaultValue 65 536
   */
  readonly maxBodyBytes?: number | undefined;
  /**
   * How long a repeat of a submission in flight waits, in ms: 0 to 30 000. The repeat gets the first
   * request's answer, also one that is not kept. @defaultValue 5 000
   */
  readonly waitMs?: number | undefined;
  /** An http(s) URL, for `type` and `Link` of the problems `idempotency_…`. @defaultValue none */
  readonly docs?: string | undefined;
}

/**
 * Which answers are kept, and repeated to a retry; after any other one, a retry runs.
 *
 * - `"success"`: 2xx and 3xx.
 * - `"final"`: 2xx, 3xx, and 4xx except 401, 403, 407, 408, 409, 421, 423, 425 and 429, which
 *   depend on the moment or on the client.
 * - A function that returns whether to keep an answer of 200 to 499. A 5xx is never kept, because
 *   it does not say whether the order was placed.
 */
export type StorePolicy = "success" | "final" | ((answer: StoredAnswer) => boolean);

/** An operation that a request asks for and that must happen once, as a handler sees it. */
export interface RequestSubmission {
  /**
   * 22 characters without a meaning, equal on every retry of this user, and different for others:
   * for `SubmissionTable` of `submit-lock/sql`, a unique column, and the key of a payment provider.
   */
  readonly id: string;
  /**
   * 22 characters: the content that must be equal on a retry, as the guard compares it. `undefined`
   * where nothing is compared.
   */
  readonly fingerprint: string | undefined;
  /** Whether the client's `Idempotency-Key` header gave the id, or the option `submissionId`. */
  readonly source: "key" | "derived";
  /** Call it to keep no answer of this request: the next retry runs, unless it was `placed`. */
  doNotStore(): void;
  /**
   * Call it behind the order's commit, before the answer: from here on no retry runs, also if the
   * handler throws, a 5xx is answered, the client leaves, or nothing is ever written. An answer that
   * can be kept is repeated, any other is 409 `idempotency_answer_unavailable`. The record is
   * written when the request is over or its lease is lost: a process that dies before runs again.
   */
  placed(): void;
}

/** The stable codes of the answers to a request that does not run. */
export type ProblemCode =
  | "submit_anonymous"
  | "submit_contended"
  | "submit_unavailable"
  | "idempotency_key_required"
  | "idempotency_key_invalid"
  | "idempotency_id_invalid"
  | "idempotency_in_flight"
  | "idempotency_answer_unavailable"
  | "idempotency_conflict";

/**
 * The answer that a guard gives by default to a request that does not run: a problem document (RFC
 * 9457), or a page for a client that prefers HTML. Send its `headers` with an answer of your own.
 */
export interface Problem {
  readonly status: number;
  readonly code: ProblemCode;
  /**
   * `Submit-Lock-Code` (the code), `Content-Type`, `Cache-Control: no-store`, and `Retry-After` and
   * `Link` where they apply.
   */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

interface Refused {
  /** The guard's default answer; send its `headers` with an answer of your own. */
  readonly problem: Problem;
}

/** The request has no user. */
export interface Anonymous extends Refused {
  readonly reason: "anonymous";
}

/** A 409. Unless a flag says otherwise, another submission of the user holds the lock. */
export interface Contended extends Refused {
  readonly reason: "contended";
  /** How long the user's key has to live unless it is extended, in ms; `Infinity` for no end. */
  readonly expiresInMs: number;
  /** The request repeats a submission that is in flight, has ended or was completed. */
  readonly sameSubmission: boolean;
  /** This submission was completed, but its answer was not kept, or this client cannot read it. */
  readonly answerUnavailable: boolean;
  /**
   * The guard waited (`waitMs`), and the submission ended with an answer that was neither kept nor told:
   * a retry may run.
   */
  readonly hasEnded?: boolean | undefined;
  /** `cooldownMs` is not over, or, on Koa, the second after an order whose client has left. */
  readonly isCooldown: boolean;
}

/** No id although one is required, a key that cannot be read, or an unfit id of `submissionId`. */
export interface KeyMissing extends Refused {
  readonly reason: "key-missing" | "key-invalid" | "id-invalid";
  /** A sentence about the form of a key or an id, never with the value that was sent. */
  readonly why?: string | undefined;
}

/** The submission's id was used before, with other content. */
export interface Mismatch extends Refused {
  readonly reason: "mismatch";
  /** The submission that used the id before is still being processed; `false`: it was completed. */
  readonly inFlight: boolean;
}

/** The submission was completed before, and its answer was kept. */
export interface Replay {
  readonly reason: "replay";
  readonly answer: StoredAnswer;
  /** How long ago it was answered, in milliseconds. */
  readonly ageMs: number;
}

/** The lock was not tried or has no result: Redis did not answer or refused, or it was closed. */
export interface Unavailable extends Refused {
  readonly reason: "unavailable";
  readonly cause: Error;
}
