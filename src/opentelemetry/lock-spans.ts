import { SpanKind, SpanStatusCode, type Tracer, trace } from "@opentelemetry/api";
import type {
  AcquireMessage,
  CompleteMessage,
  LostMessage,
  ReleaseMessage,
} from "../lock/channels.ts";
import {
  CONFIRMED,
  COPIES,
  errorType,
  FENCING_TOKEN,
  KEY_PREFIX,
  OUTCOME,
  REASON,
} from "./attributes.ts";

/**
 * Spans of what has ended: each is begun in the past. A message comes in the context of the code
 * that asked for the lock, so the active span is the request's, also where one call of Redis serves
 * many requests.
 */
export class LockSpans {
  readonly #tracer: Tracer;

  constructor(tracer: Tracer) {
    this.#tracer = tracer;
  }

  acquired(message: AcquireMessage): void {
    const { cause, confirmed, copies, durationMs, fencingToken, keyPrefix, outcome } = message;
    const endTime = Date.now();
    const span = this.#tracer.startSpan("submit_lock.acquire", {
      kind: SpanKind.INTERNAL,
      startTime: endTime - durationMs,
      attributes: {
        [KEY_PREFIX]: keyPrefix,
        [OUTCOME]: outcome,
        [CONFIRMED]: confirmed,
        [COPIES]: copies,
        ...(fencingToken === undefined ? {} : { [FENCING_TOKEN]: fencingToken }),
        ...errorType(cause),
      },
    });
    // Somebody else's lock is an answer, not an error.
    if (outcome === "unavailable") span.setStatus({ code: SpanStatusCode.ERROR });
    span.end(endTime);
  }

  /** From the acquire to the release or the complete, whenever that was answered. */
  ended(message: ReleaseMessage | CompleteMessage): void {
    const { cause, durationMs, heldMs, keyPrefix, outcome } = message;
    const endTime = Date.now() - durationMs;
    const span = this.#tracer.startSpan("submit_lock.hold", {
      kind: SpanKind.INTERNAL,
      startTime: endTime - heldMs,
      attributes: { [KEY_PREFIX]: keyPrefix, [OUTCOME]: outcome, ...errorType(cause) },
    });
    span.end(endTime);
  }

  lost({ outcome }: LostMessage): void {
    const span = trace.getActiveSpan();
    if (span?.isRecording()) span.addEvent("submit_lock.lost", { [REASON]: outcome });
  }
}
