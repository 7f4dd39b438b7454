import type { ServerResponse } from "node:http";

/** The request has no user. */
export interface Anonymous {
  readonly reason: "anonymous";
}

/** Another submission of the user holds the lock. */
export interface Contended {
  readonly reason: "contended";
  readonly expiresInMs: number;
}

/** Nobody can say who holds the lock. */
export interface Unavailable {
  readonly reason: "unavailable";
  readonly cause: Error;
}

/** Why a request is answered with 401, 409 or 503 instead of being let through. */
export type Refusal = Anonymous | Contended | Unavailable;

/** An answer that is ready to be sent. */
export interface Problem {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** `Retry-After` counts whole seconds. Few orders take longer than one, and 0 would invite a storm. */
const retryAfter = "1";

function problem(
  status: number,
  title: string,
  code: string,
  detail: string,
  headers: Record<string, string>,
): Problem {
  return {
    status,
    headers: {
      ...headers,
      "Content-Type": "application/problem+json",
      // The next submit may be let through.
      "Cache-Control": "no-store",
    },
    body: JSON.stringify({ type: "about:blank", title, status, detail, code }),
  };
}

/**
 * The answers as problem details (RFC 9457). They tell a client what to do, and never mention the
 * owner id, the key or what Redis said.
 */
const problems: Record<Refusal["reason"], Problem> = {
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
  unavailable: problem(
    503,
    "Service Unavailable",
    "submit_unavailable",
    "The submission was not started, because it could not be protected against being placed twice. Try again in a moment.",
    { "Retry-After": retryAfter },
  ),
};

export function problemFor(refusal: Refusal): Problem {
  return problems[refusal.reason];
}

/** Answers on the bare response. Headers that were set before stay, such as those of CORS. */
export function sendProblem(res: ServerResponse, refusal: Refusal): void {
  if (res.headersSent) {
    // Somebody else has sent half an answer: a broken connection cannot be mistaken for success.
    res.destroy();
    return;
  }
  const { status, headers, body } = problemFor(refusal);
  res.statusCode = status;
  for (const [name, value] of Object.entries(headers)) res.setHeader(name, value);
  res.setHeader("Content-Length", Buffer.byteLength(body));
  res.end(body);
}
