import { setImmediate } from "node:timers/promises";
import { joined } from "./payload.ts";

/** How many chunks may be read ahead: a stream that never pauses would be read forever. */
const maxReads = 64;

const turnIsOver: unique symbol = Symbol("one turn");

/**
 * Reads the body of a response as far as it is there at once, within one turn of the event loop. A
 * body that is complete by then is sent as it was; a stream passes through.
 *
 * @param keptBytes how many bytes of a stream to keep.
 * @param isOver called once, when the body was read to its end, with its bytes if they are few
 * enough; without them when it was cancelled or broke off. `isUnanswered`: it failed before its
 * first byte.
 * @returns the response to send, and a function that cancels the stream, for a client that has left.
 */
export async function untilOver(
  response: Response,
  keptBytes: number,
  isOver: (body?: Uint8Array, isUnanswered?: boolean) => void,
): Promise<{ response: Response; cancel?: () => void }> {
  const { body } = response;
  if (body === null || body.locked) {
    isOver(body === null ? new Uint8Array() : undefined);
    return { response };
  }
  const reader = body.getReader();
  const chunks: Uint8Array[] = [];
  const turn = setImmediate(turnIsOver);
  let next: ReturnType<typeof reader.read> | undefined;
  while (chunks.length < maxReads) {
    next = reader.read();
    // A stream that fails does so when it is read again.
    const part = await Promise.race([next, turn]).catch(() => turnIsOver);
    if (typeof part === "symbol") break;
    next = undefined;
    if (part.done) {
      const bytes = joined(chunks);
      isOver(bytes.length <= keptBytes ? bytes : undefined);
      return { response: new Response(bytes, response) };
    }
    chunks.push(part.value);
  }
  let kept: Uint8Array[] | undefined = [];
  let length = 0;
  let hasEnded = false;
  let cancelled: Promise<void> | undefined;
  const end = (bytes?: Uint8Array, isUnanswered = false) => {
    if (!hasEnded) isOver(bytes, isUnanswered);
    hasEnded = true;
  };
  const keep = (chunk: Uint8Array) => {
    length += chunk.length;
    if (length > keptBytes) kept = undefined;
    else kept?.push(chunk.slice());
  };
  const cancel = (reason?: unknown) => {
    // The stream may still have a part of the order to do, which a second cancel would not await:
    // for a client that has left, both the guard and the platform cancel.
    cancelled ??= reader.cancel(reason).finally(() => end());
    return cancelled;
  };
  const stream = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const chunk of chunks) {
        keep(chunk);
        controller.enqueue(chunk);
      }
    },
    async pull(controller) {
      try {
        const part = await (next ?? reader.read());
        next = undefined;
        // The read that was under way ends as if the stream had.
        if (cancelled !== undefined) controller.error(new Error("the client has left"));
        else if (part.done) {
          controller.close();
          end(kept && joined(kept));
        } else {
          keep(part.value);
          controller.enqueue(part.value);
        }
      } catch (error) {
        end(undefined, length === 0);
        throw error;
      }
    },
    cancel,
  });
  return {
    response: new Response(stream, response),
    cancel: () => void cancel().catch(() => {}),
  };
}
