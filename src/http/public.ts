/** The types that every adapter exports beside its guard. This file has no values. */
import type { StoredAnswer } from "../lock/record.ts";

export type { ReplayMessage } from "../lock/channels.ts";
export type {
  Anonymous,
  Contended,
  KeyMissing,
  Mismatch,
  Problem,
  ProblemCode,
  Unavailable,
} from "../problem.ts";

type NoId = undefined | null | "";

/** How a guard recognises a submission that is sent again. The callbacks get a `Source`. */
export interface IdempotencyOptions<Source> {
  /**
   * Use of the header `Idempotency-Key`. "optional": a request without any id has only the lock.
   * "required": a request without any id gets 400. "ignored": only `submissionId` counts, and if it
   * returns no id, the request gets 400. GET and HEAD never need an id. @defaultValue "optional"
   */
  readonly key?: "optional" | "required" | "ignored" | undefined;
  /**
   * Returns the application's id of a submission: cart id and version, or a token in the form; 1 to
   * 1 024 characters. With an id, the header is ignored. Never return a hash of the body: an order
   * placed twice on purpose would be lost. A number, a boolean and unfit text are a 400, an object
   * is an `InvalidOptionError`. @defaultValue none
   */
  readonly submissionId?: ((source: Source) => string | NoId | Promise<string | NoId>) | undefined;
  /**
   * Returns the content that must be equal on a repeat: JSON, text, bytes, or a promise of them. Any
   * other value is a `NoFingerprintError`, but with a `submissionId`, `undefined` compares nothing.
   * `{ except: ["captcha"] }`: query, body and files, without the listed top-level members of the
   * body. @defaultValue query, body and files for a key, nothing for a `submissionId`
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
   * The longest body that is kept, in bytes: 0 to 1 048 576. A longer answer is kept without its
   * body: a repeat gets `onReplay`'s answer, if set; else a 3xx again, or 409. @defaultValue 65 536
   */
  readonly maxBodyBytes?: number | undefined;
  /**
   * How long a repeat of a submission in flight waits, in ms: 0 to 30 000. The repeat gets the first
   * request's answer, even if that answer is not kept. @defaultValue 5 000
   */
  readonly waitMs?: number | undefined;
  /** Your page on repeats: the URL in `type` and `Link` of `idempotency_…`. @defaultValue none */
  readonly docs?: string | undefined;
}

/**
 * Which answers are kept for repeats. After any other answer, a repeat runs.
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
   * 22 characters without a meaning, equal on every repeat, and different for any other submission or
   * user: for `SubmissionTable` of `submit-lock/sql`, a unique column, a payment provider's key.
   */
  readonly id: string;
  /**
   * A hash, 22 characters long, of the content that must be equal on a repeat. `undefined` if the
   * guard compares nothing.
   */
  readonly fingerprint: string | undefined;
  /** Whether the client's `Idempotency-Key` header gave the id, or the option `submissionId`. */
  readonly source: "key" | "derived";
  /** Keeps no answer of this request: the next repeat runs, unless `placed` was called. */
  doNotStore(): void;
  /**
   * Call this after the order's commit and before the answer. From then on no repeat runs, even if
   * the handler throws, a 5xx is answered, the client leaves, or no answer is sent. An answer
   * that can be kept is repeated; otherwise a repeat gets 409 `idempotency_answer_unavailable`. The
   * record is written when the request is over or its lease is lost: if the process dies before, or
   * the request has no lock (`onUnavailable: "proceed"`), a repeat runs.
   */
  placed(): void;
}

/** The submission's answer was kept, or told to this repeat, which waited for it. */
export interface Replay {
  readonly reason: "replay";
  readonly answer: StoredAnswer;
  /** How long ago the answer was given for the first time, in milliseconds. */
  readonly ageMs: number;
}
