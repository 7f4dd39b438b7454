import { isSubmitLockError } from "submit-lock";

/** Something that the customer can be told. */
export class ShopError extends Error {
  readonly status: number;
  readonly code: string;

  constructor(status: number, code: string, message: string) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** The status and body for an error that a handler threw. */
export function answerTo(error: unknown): {
  status: number;
  body: { code: string; detail: string };
} {
  if (error instanceof ShopError) {
    return { status: error.status, body: { code: error.code, detail: error.message } };
  }
  if (isSubmitLockError(error) && error.code === "SUBMIT_LOCK_LOST") {
    const detail = "The order was stopped, because its lock was lost. Press the button again.";
    return { status: 503, body: { code: "order_stopped", detail } };
  }
  // A body that the parser of Express or Koa refused.
  const { status, message } = (error ?? {}) as { [member: string]: unknown };
  if (typeof status === "number" && status < 500) {
    return { status, body: { code: "bad_request", detail: String(message) } };
  }
  console.error(error);
  return { status: 500, body: { code: "internal", detail: "Something went wrong." } };
}
