import { createHash } from "node:crypto";
import type { IncomingMessage } from "node:http";
import type { Http2ServerRequest } from "node:http2";
import { types } from "node:util";
import { isPlain } from "../canonical-json.ts";
import { NoFingerprintError } from "../errors.ts";
import { queryOf, without } from "../http/fingerprint.ts";
import type { Adapter } from "../http/port.ts";
import { nextTurn } from "../time.ts";

export interface RequestContent {
  readonly req: IncomingMessage;
  /** The URL as the client sent it, with the mount path that a router may cut off. */
  readonly url: string;
  /** The body as a parser has left it; `undefined` if none has. */
  readonly body: unknown;
  /** Whether a parser set `body`, on Express and Koa even to `undefined` for an unknown type. */
  readonly hasParser: boolean;
  /** The values of all properties in which parsers leave files; `undefined` where none are. */
  readonly files: readonly unknown[];
}

/** The most files of a request: to hash 10 000 would block the process for a quarter of a second. */
const maxFiles = 1_000;

/** Types that applications parse. If `body` is not set, no parser is mounted before the guard. */
const usualTypes = /^application\/(?:json|x-www-form-urlencoded)\b/i;

export function contentAdapter<Source>(
  contentOf: (source: Source) => RequestContent,
): Required<Pick<Adapter<Source, never>, "checkParsed" | "path" | "payload">> {
  return {
    // Without scheme and host: a proxy may send a request's whole URL (RFC 9112, section 3.2.2).
    path: (source) => contentOf(source).url.replace(/^https?:\/\/[^/?]*|\?.*/gis, ""),
    payload: (source, except) => payloadOf(contentOf(source), except),
    checkParsed: (source) => checkParsed(contentOf(source)),
  };
}

/** @throws NoFingerprintError (as a rejection) for files of unknown bytes, and an unparsed body. */
async function payloadOf(content: RequestContent, except?: readonly string[]): Promise<unknown> {
  const { body, files, req, url } = content;
  const sent = sentFiles(files);
  // Refuse an unparsed body: any two unparsed bodies would have the same fingerprint.
  const what = "compare this request with earlier ones";
  if (sent === undefined) {
    await checkParsed({ ...content, files: [] }, what, "set idempotency.fingerprint");
  }
  return [
    queryOf(url),
    without(sentBody(req, body), except),
    ...(sent === undefined ? [] : [sent]),
  ];
}

/** @throws NoFingerprintError for an unparsed body: 500 if a usual parser is missing, else 415. */
async function checkParsed(
  { body, files, hasParser, req }: RequestContent,
  what = "find the id of this submission",
  remedy = "send an Idempotency-Key",
): Promise<void> {
  // A function is not a file: @fastify/multipart sets functions that read the files later.
  const hasFiles = files.some((each) => each !== undefined && typeof each !== "function");
  if (hasFiles || !bodyIsUnparsed(req, body)) return;
  // An announced body may turn out to be empty.
  await nextTurn();
  if (!bodyIsUnparsed(req, body)) return;
  const isOfClient = hasParser || !usualTypes.test(req.headers["content-type"] ?? "");
  const reason = isOfClient ? "no body parser took the content type" : "the body was not parsed";
  throw new NoFingerprintError(
    `cannot ${what}: ${reason}. Mount the body parser before the guard, or ${remedy}`,
    { status: isOfClient ? 415 : 500 },
  );
}

/**
 * A body is announced by a `Content-Length` above 0 or any `Transfer-Encoding` (RFC 9112, section
 * 6.3), on HTTP/2 also by headers that did not end the stream (RFC 9113, section 8.1). Node.js
 * reads the end of an empty body a turn later: until then, that body counts as announced.
 */
export function bodyWasAnnounced(req: IncomingMessage | Http2ServerRequest): boolean {
  const length = req.headers["content-length"];
  if (length !== undefined) return Number(length) > 0;
  if (req.headers["transfer-encoding"] !== undefined) {
    // The body may have ended without a byte.
    return !req.complete || req.readableLength > 0 || req.readableDidRead;
  }
  if (!("stream" in req)) return false;
  const { stream } = req;
  // The stream ended without a byte: Node.js ends it by itself, even if it is not read.
  const cameEmpty = stream.readableEnded && !stream.readableDidRead;
  return !stream.endAfterHeaders && !cameEmpty;
}

/**
 * Whether no parser has read an announced body. A `{}` or `null` proves nothing: parsers for
 * Express 4 and Koa, and of applications for Fastify, set it for a content type that they do not
 * parse, but then they have not read the request.
 */
export function bodyIsUnparsed(req: IncomingMessage | Http2ServerRequest, body: unknown): boolean {
  if (!bodyWasAnnounced(req)) return false;
  return body === undefined || (isNothing(body) && !req.readableDidRead && !req.readableEnded);
}

/**
 * The body as a parser has left it; `null` for none, so the JSON text `null` is returned as bytes.
 * Parsers for Express 4 and Koa set `{}` for a request without a body, those for Express 5 do not,
 * and a repeat may reach another version.
 */
export function sentBody(req: IncomingMessage | Http2ServerRequest, body: unknown): unknown {
  const isSent = req.readableDidRead || Number(req.headers["content-length"]) > 0;
  if (body === undefined || (!isSent && isNothing(body))) return null;
  return body === null ? Buffer.from("null") : body;
}

function isNothing(body: unknown): boolean {
  if (typeof body !== "object" || ArrayBuffer.isView(body) || Array.isArray(body)) return false;
  return body === null || Object.keys(body).length === 0;
}

/**
 * Describes the files of a request, by field.
 * @throws NoFingerprintError for a file whose bytes are neither in memory nor hashed: two files of
 * one name and one size would pass for each other; 413 for more than 1 000 files.
 */
export function sentFiles(places: readonly unknown[]): Record<string, string[][]> | undefined {
  if (places.every((place) => place === undefined)) return undefined;
  const found: [field: string, file: Fields][] = [];
  // A parser for Koa may leave one object in two places.
  for (const place of new Set(places)) collect(place, "", found);
  if (found.length > maxFiles) {
    throw new NoFingerprintError(
      `cannot compare this request with earlier ones: it has more than ${maxFiles} files. Set idempotency.fingerprint for such requests`,
      { status: 413 },
    );
  }
  // The object has no prototype, because the client chooses the names of the fields.
  const files: Record<string, string[][]> = Object.create(null);
  for (const [field, file] of found) {
    files[field] ??= [];
    files[field].push(describeFile(file));
  }
  const all = Object.values(files);
  for (const each of all) {
    // Sort hashed files: Formidable lists a field's files in the order of their writes to disk.
    if (each.some(([how]) => how === "hash")) each.sort((a, b) => (`${a}` < `${b}` ? -1 : 1));
  }
  return all.length > 0 ? files : undefined;
}

function collect(value: unknown, field: string, found: [string, Fields][]): void {
  if (typeof value !== "object" || value === null) return;
  if (Array.isArray(value)) {
    for (const each of value) collect(each, field, found);
  } else if (isPlain(value) && Object.values(value).every((each) => typeof each === "object")) {
    // Not a file, but an object of files by field: a file has a class, or a member that is a text.
    for (const [name, each] of Object.entries(value)) {
      collect(each, field === "" ? name : `${field}[${name}]`, found);
    }
  } else {
    const file = value as Fields;
    found.push([firstText(file, "fieldname") ?? field, file]);
  }
}

type Fields = Readonly<Record<string, unknown>>;

/** Describes a file: how its bytes are known, their hash, its name, type and size. */
function describeFile(file: Fields): string[] {
  const name = firstText(file, "originalname", "originalFilename", "name") ?? "";
  const about = [name, firstText(file, "mimetype", "type") ?? "", `${file["size"]}`];
  const bytes = file["buffer"] ?? file["data"];
  // The lengths differ where express-fileupload uses temporary files: its buffer is empty.
  if (types.isUint8Array(bytes) && bytes.length === file["size"]) {
    return ["bytes", createHash("sha256").update(bytes).digest("base64url"), ...about];
  }
  // The ETag does not count: some stores give each upload of the same bytes another one.
  const hash = firstText(file, "hash", "md5", "checksum");
  if (hash !== undefined) return ["hash", hash, ...about];
  throw new NoFingerprintError(
    "cannot compare this request with earlier ones: it has a file whose bytes are not in memory, and whose parser gave no hash. Keep uploads in memory, let the parser hash them, or set idempotency.fingerprint",
  );
}

function firstText(object: Fields, ...names: string[]): string | undefined {
  const texts = names.map((name) => object[name]);
  return texts.find((text): text is string => typeof text === "string" && text !== "");
}
