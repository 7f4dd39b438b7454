import { type IdempotencyProblems, idempotencyProblems } from "./idempotency-problems.ts";
import { asPage } from "./page.ts";
import { type Problem, problem } from "./problem.ts";
import type { RefusalReason } from "./refusal.ts";

/** `Retry-After` counts whole seconds. Few orders take longer than one, and 0 would invite a storm. */
const retryAfter = "1";

/**
 * The answers as problem details (RFC 9457). They tell a client what to do, and never mention the
 * owner id, the key or what Redis said.
 */
const problems = {
  anonymous: problem(
    401,
    "Unauthorized",
    "submit_anonymous",
    "This submission belongs to no user. Sign in and submit again.",
    {},
  ),
  contended: problem(
    409,
    "Conflict",
    "submit_contended",
    "Another submission of yours is still being processed. Wait for its answer before you submit again.",
    { "Retry-After": retryAfter },
  ),
  cooldown: problem(
    409,
    "Conflict",
    "submit_contended",
    "Your last submission was successful a moment ago. Look at it before you submit again.",
    {},
  ),
  unavailable: problem(
    503,
    "Service Unavailable",
    "submit_unavailable",
    "The submission was not started, because it could not be protected against being placed twice. Try again in a moment.",
    { "Retry-After": retryAfter },
  ),
};

/** How a refusal is told. */
export interface Telling {
  readonly prefersPage: boolean;
  /** The submission has an id of `submissionId`: the client knows of no Idempotency-Key. */
  readonly isDerived: boolean;
}

/**
 * What a guard answers where the application has no answer of its own.
 *
 * @param docs an absolute URL of the application's documentation, for what concerns submissions.
 */
export function problemsFor(
  docs: string | undefined,
): (refusal: RefusalReason, telling: Telling) => Problem {
  const byKey = problemDocumentsFor(idempotencyProblems(docs, false));
  const derived = problemDocumentsFor(idempotencyProblems(docs, true));
  return (refusal, { isDerived, prefersPage }) => {
    const document = (isDerived ? derived : byKey)(refusal);
    if (!prefersPage) return document;
    const hasEnded = refusal.reason === "contended" && refusal.hasEnded === true;
    return asPage(document, hasEnded ? "submission_ended" : document.code);
  };
}

function problemDocumentsFor(once: IdempotencyProblems): (refusal: RefusalReason) => Problem {
  return (refusal) => {
    switch (refusal.reason) {
      case "anonymous":
      case "unavailable":
        return problems[refusal.reason];
      case "key-missing":
        return once.keyRequired;
      case "key-invalid":
        return once.keyInvalid(refusal.why ?? "cannot be read");
      case "id-invalid":
        return once.idInvalid(refusal.why ?? "");
      case "mismatch":
        return once.conflict;
      case "contended":
        if (refusal.answerUnavailable) return once.answerUnavailable;
        if (refusal.hasEnded === true) return once.ended;
        if (refusal.sameSubmission) return once.inFlight;
        return refusal.isCooldown ? afterCooldown(refusal.expiresInMs) : problems.contended;
    }
  };
}

function afterCooldown(leftMs: number): Problem {
  const seconds = Math.max(1, Math.ceil(leftMs / 1_000));
  const { cooldown } = problems;
  return { ...cooldown, headers: { ...cooldown.headers, "Retry-After": String(seconds) } };
}
