import type { ServerResponse } from "node:http";

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

/** A problem document (RFC 9457). */
export function problem(
  status: number,
  title: string,
  code: ProblemCode,
  detail: string,
  headers: Record<string, string>,
  type = "about:blank",
): Problem {
  return {
    status,
    code,
    // Frozen, because the functions that answer are given this very object.
    headers: Object.freeze({
      ...headers,
      "Content-Type": "application/problem+json",
      // The next submit may be let through.
      "Cache-Control": "no-store",
    }),
    body: JSON.stringify({ type, title, status, detail, code }),
  };
}

/** Answers on the bare response. Headers that were set before stay, such as those of CORS. */
export function sendProblem(res: ServerResponse, problem: Problem): void {
  if (res.headersSent) {
    // Somebody else has sent half an answer: a broken connection cannot be mistaken for success.
    res.destroy();
    return;
  }
  const { status, headers, body } = problem;
  res.statusCode = status;
  for (const [name, value] of Object.entries(headers)) res.setHeader(name, value);
  res.setHeader("Content-Length", Buffer.byteLength(body));
  res.end(body);
}
