import { type Problem, problem } from "./problem.ts";

/**
 * The problem documents of submissions that are recognised. The titles of a missing key, of a
 * request in flight and of another payload are those of
 * draft-ietf-httpapi-idempotency-key-header-07, section 2.7; it has none for the other two.
 */
export interface IdempotencyProblems {
  /** 400: the guard requires a key. */
  readonly keyRequired: Problem;
  /** 400. `why` is a predicate for "The Idempotency-Key header …". */
  keyInvalid(why: string): Problem;
  /** 400: `submissionId` returned text that is no id, a number or a boolean. `why` is a sentence. */
  idInvalid(why: string): Problem;
  /** 409: the same submission is being processed. A retry in a second may be answered. */
  readonly inFlight: Problem;
  /** 409: it was in flight, was waited for, and is over without an answer that was kept. A retry runs. */
  readonly ended: Problem;
  /** 409: it was answered, and its answer was not kept. No retry changes that. */
  readonly answerUnavailable: Problem;
  /** 422: the same submission with another payload, in flight or answered. */
  readonly conflict: Problem;
}

/**
 * @param docs an absolute URL that is safe within a header: each document's `type`, and linked as
 * the draft asks (section 2.7). Without it, the `type` is `about:blank`.
 * @param isDerived the id is one of `submissionId`, so no key is named.
 */
export function idempotencyProblems(
  docs: string | undefined,
  isDerived: boolean,
): IdempotencyProblems {
  const link: Record<string, string> =
    docs === undefined ? {} : { Link: `<${docs}>; rel="describedby"` };
  const make = (
    status: number,
    title: string,
    code: Problem["code"],
    detail: string,
    headers: Record<string, string> = {},
  ) => problem(status, title, code, detail, { ...link, ...headers }, docs);
  return {
    keyRequired: make(
      400,
      "Idempotency-Key is missing",
      "idempotency_key_required",
      "This operation needs the header Idempotency-Key: a new one for each new submission, the same one for each retry.",
    ),
    keyInvalid: (why) =>
      make(
        400,
        "Idempotency-Key is invalid",
        "idempotency_key_invalid",
        `The Idempotency-Key header ${why}. Send one key of 1 to 255 printable ASCII characters, in double quotes or without space, double quote, comma and semicolon.`,
      ),
    idInvalid: (why) =>
      make(
        400,
        "The id of the submission is invalid",
        "idempotency_id_invalid",
        `${why} Load the page anew, or send the id as it was given to you.`,
      ),
    inFlight: make(
      409,
      `A request is outstanding for this ${isDerived ? "submission" : "Idempotency-Key"}`,
      "idempotency_in_flight",
      "This submission is still being processed. Wait for its answer, or send it again in a moment: it is not run twice.",
      { "Retry-After": "1" },
    ),
    ended: make(
      409,
      "The request that was outstanding for this submission is over",
      "idempotency_in_flight",
      "This submission was still being processed when it was sent again, and its answer was not kept. Look at what became of it; sent again, it is run again.",
      { "Retry-After": "1" },
    ),
    answerUnavailable: make(
      409,
      "The answer is not available",
      "idempotency_answer_unavailable",
      "This submission was processed before, and is not run again. Its answer was not kept, so it cannot be repeated.",
    ),
    conflict: make(
      422,
      isDerived ? "The submission was sent with other content" : "Idempotency-Key is already used",
      "idempotency_conflict",
      `This submission was sent before with other content. Send the same content to repeat it, or begin a new submission, with ${isDerived ? "an id" : "an Idempotency-Key"} of its own.`,
    ),
  };
}
