import type { IncomingMessage } from "node:http";
import type { Http2ServerRequest } from "node:http2";

/**
 * Whether the client said that a body comes: on HTTP/1 `Content-Length` above 0 or any
 * `Transfer-Encoding` (RFC 9112, section 6.3); on HTTP/2, where neither has to be sent, also
 * headers that did not end the stream (RFC 9113, section 8.1).
 *
 * An HTTP/2 client may end an empty body by a frame of its own. Node.js has read it one turn of the
 * event loop after the request; until then such a body counts as announced.
 */
export function bodyWasAnnounced(req: IncomingMessage | Http2ServerRequest): boolean {
  const length = req.headers["content-length"];
  if (length !== undefined) return Number(length) > 0;
  if (req.headers["transfer-encoding"] !== undefined) return true;
  if (!("stream" in req)) return false;
  const { stream } = req;
  // Ended without a byte: Node.js ends such a stream by itself, whether or not somebody reads it.
  const cameEmpty = stream.readableEnded && !stream.readableDidRead;
  return !stream.endAfterHeaders && !cameEmpty;
}

/**
 * Whether a body was announced and no parser has taken it, so that `body` says nothing about the
 * payload. Parsers for Express 4 and Koa leave `{}` behind for a content type that is not theirs,
 * and that is no payload either; a `{}` that was sent has been read off the request.
 */
export function bodyIsUnparsed(req: IncomingMessage | Http2ServerRequest, body: unknown): boolean {
  if (body !== undefined && !isEmptyObject(body)) return false;
  if (!bodyWasAnnounced(req)) return false;
  return body === undefined || !(req.readableDidRead || req.readableEnded);
}

/**
 * What was sent, as a parser has it; `null` for nothing. Parsers for Express 4 leave `{}` behind where
 * no body came, and those for Express 5 and Koa do not: a retry may come to another version.
 */
export function sentBody(req: IncomingMessage | Http2ServerRequest, body: unknown): unknown {
  if (isEmptyObject(body) && !bodyWasAnnounced(req)) return null;
  return body ?? null;
}

function isEmptyObject(body: unknown): boolean {
  if (typeof body !== "object" || body === null) return false;
  return !ArrayBuffer.isView(body) && !Array.isArray(body) && Object.keys(body).length === 0;
}
