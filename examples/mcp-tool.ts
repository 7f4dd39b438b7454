// A tool of MCP that must run once, such as `complete_checkout` of the Universal Commerce Protocol.
// A tool has no header: the key is in `meta["idempotency-key"]` of its arguments.
import { fingerprintOf, problemOf, type SubmitLock } from "submit-lock";

/** `params` of `tools/call`. */
export interface ToolCall {
  readonly name: string;
  readonly arguments: {
    readonly meta?: { readonly "idempotency-key"?: string };
    /** The checkout session. */
    readonly id: string;
    readonly checkout?: unknown;
  };
}

const isText = (text: unknown, most: number) =>
  typeof text === "string" && text.length >= 1 && text.length <= most;

/** `result` or `error` of the answer; a repeat has the first result. `agent` is whose token it was. */
export async function callOnce(
  lock: SubmitLock,
  agent: string,
  call: ToolCall,
  work: (signal: AbortSignal) => Promise<object>,
): Promise<{ result: object } | { error: object }> {
  const { meta, ...content } = call.arguments;
  const key = meta?.["idempotency-key"];
  if (!isText(key, 255) || !isText(content.id, 100)) {
    const message = 'expected meta["idempotency-key"] and id: texts of 1 to 255 and 100 characters';
    return { error: { code: -32602, message } };
  }
  // 48 hours are recommended.
  const retainMs = 48 * 3_600_000;
  const submission = { id: `${call.name}:${key}`, fingerprint: fingerprintOf(content), retainMs };
  try {
    // One lock a checkout: all customers of an agent share its identity.
    const session = `${agent}:${content.id}`;
    const { value } = await lock.once(session, submission, ({ signal }) => work(signal));
    const text = JSON.stringify(value);
    return { result: { structuredContent: value, content: [{ type: "text", text }] } };
  } catch (error) {
    const problem = problemOf(error);
    if (problem === undefined) throw error;
    const { code, detail, headers } = problem;
    // Other content under a key is 409 there.
    const status = problem.status === 422 ? 409 : problem.status;
    const data = { status, code, retry_after: headers["Retry-After"] };
    return { error: { code: -32000, message: detail, data } };
  }
}
