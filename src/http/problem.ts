import type { ServerResponse } from "node:http";

/** Why a submission was not let through. */
export type Refusal =
  | { readonly reason: "anonymous" }
  | { readonly reason: "contended"; readonly expiresInMs: number }
  | { readonly reason: "unavailable"; readonly cause: Error };

/** An answer ready to be sent. */
export interface Problem {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** `Retry-After` counts whole seconds. A lease is seldom held for longer, and 0 would invite a storm. */
const retryAfter = "1";

/** A problem document (RFC 9457). */
export function problem(
  status: number,
  title: string,
  code: string,
  detail: string,
  headers: Record<string, string>,
  type = "about:blank",
): Problem {
  return {
    status,
    headers: {
      ...headers,
      "Content-Type": "application/problem+json",
      // It speaks of this moment only.
      "Cache-Control": "no-store",
    },
    body: JSON.stringify({ type, title, status, detail, code }),
  };
}

/**
 * The answers as problem details (RFC 9457). They tell a client what to do, and nothing of the
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

/** Answers on the bare response; headers that were set before, such as those of CORS, stay. */
export function sendProblem(res: ServerResponse, refusal: Refusal): void {
  if (res.headersSent) {
    // Half an answer of somebody else's cannot become this one; a broken connection is no "yes".
    res.destroy();
    return;
  }
  const { status, headers, body } = problemFor(refusal);
  res.statusCode = status;
  for (const [name, value] of Object.entries(headers)) res.setHeader(name, value);
  res.setHeader("Content-Length", Buffer.byteLength(body));
  res.end(body);
}
