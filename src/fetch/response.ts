import { isAscii, isUtf8 } from "node:buffer";
import { isProxy, isUint8Array } from "node:util/types";
import { clearTimeout, nextTurn, setTimeout } from "../time.ts";

/** How many chunks may be read ahead: a stream that never pauses would be read forever. */
const maxReads = 64;

/** How long a stream may stay unread after its client has left, in ms, before it is cancelled. */
const unreadMs = 1_000;

/** Makes bytes of a text: Hono's server counts characters as bytes, and would cut a text off. */
function inBytes(chunk: Uint8Array | string): Uint8Array {
  return typeof chunk === "string" ? Buffer.from(chunk) : chunk;
}

const turnIsOver: unique symbol = Symbol("one turn");

export function mayHaveBody(status: number): boolean {
  return status >= 200 && status < 600 && ![204, 205, 304].includes(status);
}

const isBun = "bun" in process.versions;
const isDeno = "deno" in process.versions;

/** Makes a body of kept bytes. If there is no type, Bun adds `text/plain`, but only to a string. */
export function bodyOf(bytes: Uint8Array<ArrayBuffer>, headers: Headers): string | typeof bytes {
  const isText = isBun && !headers.has("content-type") && isUtf8(bytes);
  return isText ? new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes) : bytes;
}

/** Whether the head announces chunks: then send a stream, because bytes get a `Content-Length`. */
function isChunked({ headers }: Response): boolean {
  return headers.has("transfer-encoding") || headers.has("trailer");
}

/** Whether Deno's `fetch` has decoded the body, as it does unless `identity` or a range was asked for. */
function isDecoded({ headers, url }: Response): boolean {
  return isDeno && url !== "" && /^(gzip|br)$/i.test(headers.get("content-encoding") ?? "");
}

/**
 * Returns the head of a response. Copies the headers of a library's own `Response`: the platform
 * would take them for a plain object, and lose them. Drops the coding of a decoded body: Deno's
 * server does so for the response of `fetch` itself, but not for a copy.
 */
export function headOf(response: Response): Pick<Response, "headers" | "status" | "statusText"> {
  const isPlain = response instanceof Response;
  if (isPlain && !isDecoded(response)) return response;
  const { status, statusText } = response;
  // Pairs have each `Set-Cookie` by itself.
  const headers = new Headers([...(response as Response).headers]);
  if (isPlain) for (const name of ["content-encoding", "content-length"]) headers.delete(name);
  return { status, statusText, headers };
}

/** Whether an answer has a status of 400 to 599. Elysia's own object names the status `code`. */
export function saysFailure(answer: unknown): boolean {
  try {
    const { code, init, status = Object(init).status, statusCode = status } = Object(answer);
    const isElysias = Object.keys(Object(answer)).every((key) => /^(code|response)$/.test(key));
    const named = statusCode ?? (isElysias ? code : undefined);
    return Number.isInteger(named) && named >= 400 && named < 600;
  } catch {
    return false;
  }
}

/**
 * Reads the part of a response's body that is there within one turn of the event loop. A body that
 * is complete by then is sent as a whole. Any other body passes through, chunk by chunk.
 * @param watcher `ended`: the body was read to its end (with its bytes, if they are few enough),
 * cancelled or broken off. `unanswered`: the body failed before any of it.
 * @returns the response to send. For a stream also `cancel`, and `clientLeft`, which cancels the
 * stream as soon as no server reads it for a second.
 * @throws TypeError (as a rejection) for anything but a response that can be sent.
 */
export async function untilOver(
  response: Response,
  keptBytes: number,
  watcher: { ended(bytes?: Uint8Array): void; unanswered(): void },
): Promise<{ sent: Response; stream?: { cancel(): void; clientLeft(): void } }> {
  const { status } = response;
  if (!Number.isInteger(status)) throw new TypeError("expected a Response");
  // Reading `body` may throw: for a proxy, or Hono's own `Response` with a status such as 204.
  const isProxied = isProxy(response);
  // Bun adds a missing type of a text or of bytes, but only to the handler's own `Response`, and
  // after a clone only to a text in ASCII: below, other bytes in UTF-8 get the type of a text, too.
  const isTyped = !isBun || response.headers.has("content-type");
  const source = isProxied || isTyped || response.bodyUsed ? response : response.clone();
  const body = isProxied || !mayHaveBody(status) ? null : source.body;
  if (body === null) {
    watcher.ended(isProxied ? undefined : new Uint8Array());
    return { sent: response };
  }
  if (response.bodyUsed) throw new TypeError("expected a body that was not read");
  const reader = body.getReader();
  const chunks: Uint8Array[] = [];
  const turn = nextTurn(turnIsOver);
  let next: ReturnType<typeof reader.read> | undefined;
  while (chunks.length < maxReads) {
    next = reader.read();
    // If the stream has failed, `pull` below meets the same error.
    const part = await Promise.race([next, turn]).catch(() => turnIsOver);
    if (typeof part === "symbol") break;
    next = undefined;
    if (part.done) {
      const bytes = Buffer.concat(chunks);
      const isOwn = source !== response && isAscii(bytes);
      const all = isChunked(response)
        ? new Blob([bytes]).stream()
        : bodyOf(bytes, response.headers);
      const sent = isOwn ? response : new Response(all, headOf(response));
      watcher.ended(bytes.length <= keptBytes ? bytes : undefined);
      return { sent };
    }
    chunks.push(part.value);
    // Hono's server also sends texts: they are not kept.
    if (!isUint8Array(part.value)) break;
  }
  // Once the response is handed over, a server may send its head: then it is an answer. Before that,
  // wait for one turn more, which the failure of a Node.js stream takes.
  let isUnanswered = false;
  if (next !== undefined && chunks.length === 0) {
    await Promise.race([next, nextTurn()]).catch(() => {
      isUnanswered = true;
    });
  }
  if (source !== response) response.body?.cancel().catch(() => {});
  let kept: Uint8Array[] | undefined = [];
  let length = 0;
  let cancelled: Promise<void> | undefined;
  const keep = (chunk: Uint8Array) => {
    length = isUint8Array(chunk) ? length + chunk.length : Number.POSITIVE_INFINITY;
    if (length > keptBytes) kept = undefined;
    else kept?.push(chunk.slice());
  };
  const cancel = (reason?: unknown) => {
    // For a client that has left, both the guard and the platform cancel. Both must wait for the
    // first call: the stream's own `cancel` may still do a part of the order.
    cancelled ??= reader.cancel(reason).finally(() => watcher.ended());
    return cancelled;
  };
  reader.closed.catch(() => (isUnanswered ? watcher.unanswered() : watcher.ended()));
  let isRead = false;
  let hasLeft = false;
  let unread: NodeJS.Timeout | undefined;
  const cancelUnread = () => {
    if (!isRead) unread = setTimeout(() => cancel().catch(() => {}), unreadMs).unref();
  };
  // Reads one part ahead, because a server may stop at the last byte and never read the end.
  const readAhead = () => {
    next ??= reader.read();
    next.then(
      ({ done }) => {
        if (done && cancelled === undefined) watcher.ended(kept && Buffer.concat(kept));
      },
      () => {},
    );
    return next;
  };
  if (chunks.length === 0) readAhead();
  const stream = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        isRead = true;
        clearTimeout(unread);
        const ready = chunks.shift();
        const part = ready === undefined ? await readAhead() : { done: false, value: ready };
        if (ready === undefined) next = undefined;
        isRead = false;
        if (hasLeft) cancelUnread();
        // A cancelled source seems to have ended. Fail, so that a part never counts as the whole.
        if (cancelled !== undefined) controller.error(new Error("the client has left"));
        else if (part.value === undefined) controller.close();
        else {
          keep(part.value);
          controller.enqueue(inBytes(part.value));
          if (chunks.length === 0) readAhead();
        }
      },
      cancel,
    },
    // Pull for a reader only, so that a client that leaves fails no stream that a server reads or
    // cancels. Some servers, such as srvx, do not catch that error: the process would end.
    { highWaterMark: 0 },
  );
  return {
    sent: new Response(stream, headOf(response)),
    stream: {
      cancel: () => void cancel().catch(() => {}),
      clientLeft() {
        hasLeft = true;
        cancelUnread();
      },
    },
  };
}
