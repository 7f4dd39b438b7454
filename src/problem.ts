import { type AnySubmitLockError, isSubmitLockError } from "./errors.ts";
import { isError } from "./validation.ts";

/** The stable codes of refusals. The last two are of errors: no `info.problem` has them. */
export type ProblemCode =
  | "submit_anonymous"
  | "submit_contended"
  | "submit_unavailable"
  | "idempotency_key_required"
  | "idempotency_key_invalid"
  | "idempotency_id_invalid"
  | "idempotency_in_flight"
  | "idempotency_answer_unavailable"
  | "idempotency_conflict"
  | "submit_lock_lost"
  | "SUBMIT_LOCK_NO_FINGERPRINT";

/**
 * The answer that a guard gives by default to a request that it refuses: a problem document (RFC
 * 9457), or a page for a client that prefers HTML. Send its `headers` with an answer of your own.
 */
export interface Problem {
  readonly status: number;
  readonly code: ProblemCode;
  /** The title of the problem document (RFC 9457): what happened, in a few words. */
  readonly title: string;
  /** The detail of the problem document: what happened, and what the client should do. */
  readonly detail: string;
  /** `Submit-Lock-Code`, `Content-Type`, `Cache-Control: no-store`; at times `Retry-After`, `Link`. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

interface Refused {
  /** The guard's default answer; send its `headers` with an answer of your own. */
  readonly problem: Problem;
  /** The client's `Accept` prefers a page: a form has sent the request, and not a script. */
  readonly prefersPage: boolean;
}

/** The request has no user. */
export interface Anonymous extends Refused {
  readonly reason: "anonymous";
}

/** A 409. If no flag is true, another submission of the user usually has the lock. */
export interface Contended extends Refused {
  readonly reason: "contended";
  /**
   * How long the key lives unless extended, in ms from the attempt on; `Infinity` if it is not a
   * string; 0 with `hasEnded` or `answerUnavailable`.
   */
  readonly expiresInMs: number;
  /** The request repeats a submission that is in flight, has ended or was completed. */
  readonly sameSubmission: boolean;
  /** This submission was completed, but its answer was not kept, or this client cannot read it. */
  readonly answerUnavailable: boolean;
  /** The guard waited, and the submission ended without an answer to repeat: a repeat may run. */
  readonly hasEnded?: boolean | undefined;
  /** `cooldownMs` is not over or, on Koa, the 1 s that follows an order whose client has left. */
  readonly isCooldown: boolean;
}

/** The `Idempotency-Key` or submission id is invalid, or is missing where it is required. */
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

/** Redis did not answer, or refuses for a while, or the `SubmitLock` is closed: no lease. */
export interface Unavailable extends Refused {
  readonly reason: "unavailable";
  readonly cause: Error;
}

type Refusal = Anonymous | Contended | KeyMissing | Mismatch | Unavailable;

export type RefusalReason<Each extends Refusal = Refusal> = Each extends Refusal
  ? Omit<Each, keyof Refused>
  : never;

/**
 * Whether a client that sends this `Accept` prefers a page to a problem document (RFC 9110, section
 * 12.5.1). Replaces `accepts` of Express 4 and Koa, in which a long header could block the process.
 */
export function prefersHtml(given: string | null | undefined): boolean {
  const accept = given ?? "*/*";
  const ranges = accept.split(",").map((range, order) => {
    const [type = "", ...parameters] = range
      .toLowerCase()
      .split(";")
      .map((each) => each.trim());
    const q = parameters.find((each) => each.startsWith("q="));
    return { type, order, q: q === undefined ? 1 : Number(q.slice(2)) };
  });
  const ranked = ["application/problem+json", "application/json", "text/html"].map((type) => {
    const fitting = [type, type.replace(/\/.*/, "/*"), "*/*"];
    // The most specific range that names the type decides.
    const found = fitting.flatMap((each) => ranges.filter((range) => range.type === each))[0];
    const place = fitting.indexOf(found?.type ?? type);
    return { type, place, q: found?.q ?? 0, order: found?.order ?? 0 };
  });
  ranked.sort((a, b) => b.q - a.q || a.place - b.place || a.order - b.order);
  return ranked[0]?.type === "text/html";
}

/**
 * Makes the answer that a guard with `submissionId`, without `docs`, would give for an error of
 * `once`, `withLock` or a lease, or an error that a lost lease caused. Send status, headers, body.
 *
 * @example
 * ```ts
 * const problem = problemOf(error, request.headers.accept);
 * if (problem === undefined) throw error;
 * response.writeHead(problem.status, problem.headers).end(problem.body);
 * ```
 *
 * @param accept the request's `Accept`: a page for a client that prefers HTML; else a problem document.
 * @returns `undefined` for an error that is not a refusal, such as a wrong option. Log each 503: a
 * wrong password (`LockMisconfiguredError`) is a 503, too, and does not end by itself.
 */
export function problemOf(error: unknown, accept?: string | null): Problem | undefined {
  const refusal = refusalIn(error);
  const code = refusal?.headers?.["Submit-Lock-Code"] as ProblemCode | undefined;
  if (refusal === undefined || code === undefined) return undefined;
  const audience = { docs: undefined, isDerived: true, prefersPage: prefersHtml(accept) };
  const problem = problemFor(code, refusal, audience);
  // Not frozen: @hono/node-server before 2.1.5 adds a header to the headers of a `Response`.
  return { ...problem, headers: { ...problem.headers } };
}

/** Returns the error if a client can act on it, else the `LockLostError` that has caused it. */
function refusalIn(error: unknown, depth = 0): AnySubmitLockError | undefined {
  if (isSubmitLockError(error)) {
    return "status" in error && error.status !== 500 ? error : undefined;
  }
  // A lost lease causes other errors, such as the `AbortError` of work with its signal.
  if (!isError(error) || depth === 10) return undefined;
  const cause = refusalIn(error.cause, depth + 1);
  return cause?.code === "SUBMIT_LOCK_LOST" ? cause : undefined;
}

/**
 * @param audience `isDerived`: the id is the application's, so only the text about an invalid
 * Idempotency-Key names that header.
 */
export function problemFor(
  code: ProblemCode,
  refusal: RefusalReason | AnySubmitLockError,
  audience: { docs: string | undefined; isDerived: boolean; prefersPage: boolean },
): Problem {
  const { docs, isDerived, prefersPage } = audience;
  const about = refusal as About;
  const [status, title, detail, advice, heading] = contents[code](about, isDerived);
  const retryAfterS = retryAfter(code, about);
  // The URL in `type` and in `Link`, as draft-ietf-httpapi-idempotency-key-header-07 asks (2.7).
  const type = code.startsWith("idempotency_") ? docs : undefined;
  return {
    status,
    code,
    title,
    detail,
    // Frozen, because the application's functions (onContended and the others) get this object.
    headers: Object.freeze({
      ...(type === undefined ? {} : { Link: `<${type}>; rel="describedby"` }),
      "Submit-Lock-Code": code,
      ...(retryAfterS === undefined ? {} : { "Retry-After": `${retryAfterS}` }),
      "Content-Type": prefersPage ? "text/html; charset=utf-8" : "application/problem+json",
      // A cache must not answer the next submit, which may be let through.
      "Cache-Control": "no-store",
    }),
    body: prefersPage
      ? pageOf(code, advice, heading)
      : JSON.stringify({ type: type ?? "about:blank", title, status, detail, code }),
  };
}

const codes = {
  anonymous: "submit_anonymous",
  "key-missing": "idempotency_key_required",
  "key-invalid": "idempotency_key_invalid",
  "id-invalid": "idempotency_id_invalid",
  mismatch: "idempotency_conflict",
  unavailable: "submit_unavailable",
} as const;

export function codeOf(why: RefusalReason): ProblemCode {
  if (why.reason !== "contended") return codes[why.reason];
  if (why.answerUnavailable) return "idempotency_answer_unavailable";
  return why.sameSubmission ? "idempotency_in_flight" : "submit_contended";
}

/** The refusals that may end by themselves: they have a `Retry-After`. */
const temporary: readonly ProblemCode[] = [
  "submit_contended",
  "submit_unavailable",
  "idempotency_in_flight",
];

/** `Retry-After` in s: a cooldown's rest, else 1, as few orders take longer. 0 invites a storm. */
function retryAfter(code: ProblemCode, { isCooldown, expiresInMs = 0 }: About): number | undefined {
  if (code === "submit_contended" && isCooldown) return Math.max(1, Math.ceil(expiresInMs / 1_000));
  return temporary.includes(code) ? 1 : undefined;
}

/** The members of a refusal, or of an error, on which some texts depend. */
interface About extends Partial<Pick<Contended, "expiresInMs" | "hasEnded" | "isCooldown">> {
  readonly status?: number;
  readonly why?: string | undefined;
}

const incomparable: Readonly<Record<number, readonly [title: string, why: string]>> = {
  413: ["Content Too Large", "is too long"],
  415: ["Unsupported Media Type", "has a content type that is not read here"],
  422: [
    "Unprocessable Content",
    "is nested too deep, or has a number that is too large or an invalid date",
  ],
};

/** The parts of a problem document and its page. Without `heading` the page has the usual one. */
type Content = [status: number, title: string, detail: string, advice: string, heading?: string];

/**
 * The texts tell the client what to do, and never mention the owner id, the lock's key or Redis. The
 * titles are of draft-ietf-httpapi-idempotency-key-header-07, section 2.7, where it has one.
 */
const contents: Readonly<Record<ProblemCode, (about: About, isDerived: boolean) => Content>> = {
  submit_lock_lost: () => [
    503,
    "Service Unavailable",
    "This submission lost its protection against being placed twice while it was processed. Check whether it succeeded before you submit again.",
    "We could not finish it in time. Look at your orders: if yours is not there, submit it again.",
    "Your order may not have been placed",
  ],
  SUBMIT_LOCK_NO_FINGERPRINT: ({ status = 422 }) => {
    const [title = "", why] = incomparable[status] ?? [];
    return [
      status,
      title,
      `The body of this request ${why}, so it cannot be compared with that of an earlier one.`,
      "The page sent an order that we cannot read. Go back, reload the page, and submit your order again.",
    ];
  },
  submit_anonymous: () => [
    401,
    "Unauthorized",
    "You are not signed in. Sign in, and check whether an earlier submission succeeded before you submit again.",
    "You are not signed in. Sign in, and look at your orders first: if yours is not there, submit it again.",
  ],
  submit_unavailable: () => [
    503,
    "Service Unavailable",
    "This request was not processed, because the submission could not be protected against being placed twice. If you sent it before, it may have been placed then: check that first. Send the same submission again in a moment.",
    "We could not make sure that it would be placed only once. Try again in a moment. If you have submitted it before, look at your orders first.",
    "We cannot place your order now",
  ],
  idempotency_key_required: (_, isDerived) => [
    400,
    `${isDerived ? "The id of the submission" : "Idempotency-Key"} is missing`,
    isDerived
      ? "This operation needs the id of the submission. Reload the page, or send the id as it was given to you."
      : "This operation needs the header Idempotency-Key: a new one for each new submission, the same one for each retry.",
    "The page did not send the id that keeps an order from being placed twice. Go back, reload the page, and submit your order again.",
  ],
  idempotency_key_invalid: ({ why }) => [
    400,
    "Idempotency-Key is invalid",
    `The Idempotency-Key header cannot be read. ${why}`,
    "The page sent an order number that we cannot read. Go back, reload the page, and submit your order again.",
  ],
  idempotency_id_invalid: ({ why }) => [
    400,
    "The id of the submission is invalid",
    `${why} Reload the page, or send the id as it was given to you.`,
    "The page sent an order number that we cannot use. Go back, reload the page, and submit your order again.",
  ],
  idempotency_conflict: (_, isDerived) => [
    422,
    isDerived ? "The submission was sent with other content" : "Idempotency-Key is already used",
    `This submission was sent before with other content. Send the same content to repeat it, or begin a new submission, with ${isDerived ? "an id" : "an Idempotency-Key"} of its own.`,
    "The page was used for another order before. Look at your orders; to place this one as well, start again from your cart.",
  ],
  idempotency_answer_unavailable: () => [
    409,
    "The answer is not available",
    "This submission was processed before, and is not run again. Its answer was not kept, or has a content coding that you do not accept, so it cannot be repeated.",
    "We did not place it a second time, and cannot show the first answer again. Look at your orders.",
    "Your order was submitted before",
  ],
  idempotency_in_flight: ({ hasEnded }, isDerived) =>
    hasEnded
      ? [
          409,
          "The first request is over, and its answer was not kept",
          "This submission was still being processed when it was sent again. Check whether it succeeded before you retry: a retry is processed as a new submission.",
          "We cannot show its result. Look at your orders: if yours is not there, submit it again.",
          "Your first click is no longer being processed",
        ]
      : [
          409,
          `A request is outstanding for this ${isDerived ? "submission" : "Idempotency-Key"}`,
          "This submission is still being processed. Wait for its answer, or send it again in a moment: no two runs of it are at work at once.",
          "You have submitted it already, and we place it only once. Do not submit it again: look at your orders in a moment.",
          "Your order is being processed",
        ],
  submit_contended: ({ isCooldown }) => [
    409,
    "Conflict",
    isCooldown
      ? "This submission was not processed: your last one has just ended. Check whether it succeeded."
      : "Another submission of yours is still being processed. Wait for its answer before you submit again.",
    "We are still processing your first order, or have just finished it, so we did not place this one. Look at your orders before you submit again.",
    "You already have an order in progress",
  ],
};

export const problemCodes: readonly string[] = Object.keys(contents);

/** No link: only the shop knows its pages. No style or script: a policy may forbid them. */
function pageOf(code: ProblemCode, advice: string, title = "Your order was not placed"): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${title}</title>
</head>
<body>
<main>
<h1>${title}</h1>
<p>${advice}</p>
<p><small>${code}</small></p>
</main>
</body>
</html>
`;
}
