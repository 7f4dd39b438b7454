import type { StoredAnswer } from "../lock/record.ts";

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
 * 9457), or a page for a client that prefers HTML. An answer of your own keeps its `headers`.
 */
export interface Problem {
  readonly status: number;
  readonly code: ProblemCode;
  /** `Content-Type`, `Cache-Control: no-store`, and `Retry-After` and `Link` where they apply. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

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
  /** This submission was completed, but its answer was not kept, or this client cannot read it. */
  readonly answerUnavailable: boolean;
  /** This submission was waited for and is over, and its answer was not kept: a new try may run. */
  readonly hasEnded?: boolean | undefined;
  /**
   * The user's last submission ended a moment ago: `cooldownMs` is not over, or, on Koa, the second
   * after an order whose client has left.
   */
  readonly isCooldown: boolean;
}

/**
 * The request has no `Idempotency-Key`, although one is required, or one that cannot be read, or
 * `submissionId` returned an id that is a number, a boolean or unfit text.
 */
export interface KeyMissing extends Refused {
  readonly reason: "key-missing" | "key-invalid" | "id-invalid";
  /** A sentence about the form of a key or an id, never with the value that was sent. */
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

/** Redis does not say who holds the lock. */
export interface Unavailable extends Refused {
  readonly reason: "unavailable";
  readonly cause: Error;
}

/** Why a request is answered with 400, 401, 409, 422 or 503 instead of being let through. */
export type Refusal = Anonymous | Contended | KeyMissing | Mismatch | Unavailable;

/** A refusal without its answer, which is made only when a function is called with it. */
export type RefusalReason<Each extends Refusal = Refusal> = Each extends Refusal
  ? Omit<Each, "problem">
  : never;

/** For whom a refusal is written. */
interface Audience {
  /** An absolute URL that is safe within a header, or `undefined`. */
  readonly docs: string | undefined;
  /** The submission has an id of `submissionId`: the client knows no Idempotency-Key. */
  readonly isDerived: boolean;
  readonly prefersPage: boolean;
}

/** The types of an answer, the preferred one first for a client that accepts any. */
export const offeredTypes = ["application/problem+json", "json", "html"] as const;

/** The answer that a guard gives where the application has none of its own. */
export function problemOf(
  refusal: RefusalReason,
  { docs, isDerived, prefersPage }: Audience,
): Problem {
  const [status, code, title, detail, retryAfterS] = documentOf(refusal, isDerived);
  // The document's `type`, and its link, as the draft asks (section 2.7).
  const type = code.startsWith("idempotency_") ? docs : undefined;
  const hasEnded = refusal.reason === "contended" && refusal.hasEnded === true;
  return {
    status,
    code,
    // The functions that answer are given this object: an application must not change what is sent.
    headers: Object.freeze({
      ...(type === undefined ? {} : { Link: `<${type}>; rel="describedby"` }),
      ...(retryAfterS === undefined ? {} : { "Retry-After": `${retryAfterS}` }),
      "Content-Type": prefersPage ? "text/html; charset=utf-8" : "application/problem+json",
      // The next submit may be let through.
      "Cache-Control": "no-store",
    }),
    body: prefersPage
      ? pageOf(code, hasEnded ? "submission_ended" : code)
      : JSON.stringify({ type: type ?? "about:blank", title, status, detail, code }),
  };
}

/** `Retry-After` counts whole seconds. Few orders take longer than one, and 0 would invite a storm. */
const soon = 1;

/**
 * The parts of a refusal's problem document. It says what a client should do, and never mentions the
 * owner id, the key or the reply of Redis. The titles of a missing key, of a request in flight and of
 * another payload are those of draft-ietf-httpapi-idempotency-key-header-07, section 2.7.
 */
function documentOf(
  refusal: RefusalReason,
  isDerived: boolean,
): [status: number, code: ProblemCode, title: string, detail: string, retryAfterS?: number] {
  switch (refusal.reason) {
    case "anonymous":
      return [
        401,
        "submit_anonymous",
        "Unauthorized",
        "You are not signed in. Sign in and submit again.",
      ];
    case "unavailable":
      return [
        503,
        "submit_unavailable",
        "Service Unavailable",
        "The submission was not started, because it could not be protected against being placed twice. Try again in a moment.",
        soon,
      ];
    case "key-missing":
      return [
        400,
        "idempotency_key_required",
        "Idempotency-Key is missing",
        "This operation needs the header Idempotency-Key: a new one for each new submission, the same one for each retry.",
      ];
    case "key-invalid":
      return [
        400,
        "idempotency_key_invalid",
        "Idempotency-Key is invalid",
        `The Idempotency-Key header cannot be read. ${refusal.why}`,
      ];
    case "id-invalid":
      return [
        400,
        "idempotency_id_invalid",
        "The id of the submission is invalid",
        `${refusal.why} Reload the page, or send the id as it was given to you.`,
      ];
    case "mismatch":
      return [
        422,
        "idempotency_conflict",
        isDerived
          ? "The submission was sent with other content"
          : "Idempotency-Key is already used",
        `This submission was sent before with other content. Send the same content to repeat it, or begin a new submission, with ${isDerived ? "an id" : "an Idempotency-Key"} of its own.`,
      ];
    case "contended":
      // No retry changes this answer, so it alone has no `Retry-After`.
      if (refusal.answerUnavailable) {
        return [
          409,
          "idempotency_answer_unavailable",
          "The answer is not available",
          "This submission was processed before, and is not run again. Its answer was not kept, or has a content coding that you do not accept, so it cannot be repeated.",
        ];
      }
      if (refusal.hasEnded === true) {
        return [
          409,
          "idempotency_in_flight",
          "The request that was outstanding for this submission is over",
          "This submission was still being processed when it was sent again, and its answer was not kept. Check whether it succeeded before you retry: a retry is processed as a new submission.",
          soon,
        ];
      }
      if (refusal.sameSubmission) {
        return [
          409,
          "idempotency_in_flight",
          `A request is outstanding for this ${isDerived ? "submission" : "Idempotency-Key"}`,
          "This submission is still being processed. Wait for its answer, or send it again in a moment: it is not run twice.",
          soon,
        ];
      }
      return [
        409,
        "submit_contended",
        "Conflict",
        refusal.isCooldown
          ? "Your last submission ended a moment ago. Check whether it succeeded before you submit again."
          : "Another submission of yours is still being processed. Wait for its answer before you submit again.",
        refusal.isCooldown ? Math.max(soon, Math.ceil(refusal.expiresInMs / 1_000)) : soon,
      ];
  }
}

/** The page of a problem: the one of its code, or one for a case of a code. */
type PageName = ProblemCode | "submission_ended";

/** The titles of the pages that need another one than "Your order was not placed". */
const titles: Readonly<Partial<Record<PageName, string>>> = {
  submit_contended: "You already have an order in progress",
  idempotency_in_flight: "Your order is being processed",
  submission_ended: "Your first click was answered",
  idempotency_answer_unavailable: "Your order was submitted before",
};

const advices: Readonly<Record<PageName, string>> = {
  submit_anonymous: "You are not signed in. Sign in, and submit your order again.",
  // Also during a cooldown.
  submit_contended:
    "We are still processing your first order, or have just finished it, so we did not place this one. Look at your orders before you submit again.",
  submit_unavailable:
    "We could not make sure that it would be placed only once. Try again in a moment. If you have submitted it before, look at your orders first.",
  idempotency_key_required:
    "The page did not send what keeps an order from being placed twice. Go back, reload the page, and submit your order again.",
  idempotency_key_invalid:
    "The page sent an order number that we cannot read. Go back, reload the page, and submit your order again.",
  idempotency_id_invalid:
    "The page sent an order number that we cannot use. Go back, reload the page, and submit your order again.",
  idempotency_in_flight:
    "You have submitted it already, and we place it only once. Do not submit it again: look at your orders in a moment.",
  submission_ended:
    "We cannot show that answer again. Look at your orders: if yours is not there, submit it again.",
  idempotency_answer_unavailable:
    "We did not place it a second time, and cannot show the first answer again. Look at your orders.",
  idempotency_conflict:
    "The page was used for another order before. Look at your orders; to place this one as well, start again from your cart.",
};

/**
 * The page of a problem, for a person who has submitted an HTML form, and would see a line of JSON in
 * the middle of the checkout. It has no link, because only the shop knows its pages, and no style or
 * script, because a content security policy could forbid them.
 */
function pageOf(code: ProblemCode, name: PageName): string {
  const title = titles[name] ?? "Your order was not placed";
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title}</title>
</head>
<body>
<main>
<h1>${title}</h1>
<p>${advices[name]}</p>
<p><small>${code}</small></p>
</main>
</body>
</html>
`;
}
