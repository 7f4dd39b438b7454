import { NoFingerprintError } from "../errors.ts";
import { fieldsOf, queryOf, without } from "../http/fingerprint.ts";

/** The longest body that is compared, in bytes: all of its clone is kept in memory. */
const maxBytes = 1_048_576;

/** The most chunks of a body: Node's time to read a clone grows with the square of their number. */
const maxChunks = 4_096;

/** Without `except`, longer JSON and forms are compared as bytes: parsing 1 MiB blocks the process. */
const maxParsed = 65_536;

const remedy = "Set idempotency.fingerprint";

/**
 * Returns query and content of a request. Reads a clone of the body, so that the handler can read
 * the body itself.
 * @throws NoFingerprintError (as a rejection): 500 for a body that was read before or has no clone,
 * 413 for a body of more than 1 MiB or 4 096 chunks.
 */
export async function payloadOf(request: Request, except?: readonly string[]): Promise<unknown> {
  const bytes = await bodyBytes(request);
  const type = request.headers.get("content-type") ?? "";
  const content = bytes.length === 0 ? null : contentOf(bytes, type, except);
  return [queryOf(new URL(request.url).search), content];
}

async function bodyBytes(request: Request): Promise<Buffer> {
  // Check without touching `body`: Hono's server then reads the rest, and the client sees the 413.
  if (Number(request.headers.get("content-length")) > maxBytes) throw tooLongBody();
  if (request.body === null && !request.bodyUsed) return Buffer.alloc(0);
  let clone: Request;
  try {
    clone = request.clone();
  } catch {
    throw new NoFingerprintError(
      `cannot compare this request with earlier ones: its body was read before the guard. Read the body in the handler, or read request.clone() ahead of the guard. ${remedy} if neither is possible`,
    );
  }
  // A server's own `clone` may return the request itself, whose body the handler needs.
  if (clone === request || clone.body === request.body) throw noCopy();
  const chunks: Uint8Array[] = [];
  let length = 0;
  const reader = clone.body?.getReader();
  // The clone of a proxy may be another object, over the same body.
  if (request.body?.locked) {
    reader?.releaseLock();
    throw noCopy();
  }
  for (;;) {
    const part = await reader?.read();
    if (part === undefined || part.done) return Buffer.concat(chunks);
    chunks.push(part.value);
    length += part.value.length;
    if (length <= maxBytes && chunks.length <= maxChunks) continue;
    // Do not await `cancel`: it settles only when the handler's half is cancelled as well.
    reader?.cancel().catch(() => {});
    throw tooLongBody();
  }
}

function noCopy(): NoFingerprintError {
  return new NoFingerprintError(
    `cannot compare this request with earlier ones: request.clone() returns no copy of its body. Let the handler parse it, and not the framework ahead of it. ${remedy} if that is not possible`,
  );
}

function tooLongBody(): NoFingerprintError {
  return new NoFingerprintError(
    `cannot compare this request with earlier ones: its body is longer than ${maxBytes} bytes or ${maxChunks} chunks. ${remedy} for such requests`,
    { status: 413 },
  );
}

/**
 * Parses JSON and forms, so that two spellings of one content are equal. Leaves out the boundary of
 * a form with files. Returns text as a string, any other body (too long, not parsable) as bytes.
 */
function contentOf(bytes: Buffer, type: string, except?: readonly string[]): unknown {
  const boundary = /^multipart\/.*?\bboundary=(?:"([^"]+)"|([^\s;"]+))/i.exec(type);
  if (boundary !== null) return partsOf(bytes, boundary[1] ?? boundary[2] ?? "", except);
  const isLong = bytes.length > maxParsed && except === undefined;
  if (isLong || /\bcharset=(?!"?utf-?8\b)/i.test(type)) return bytes;
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    // Return the JSON text `null` as bytes, because the value `null` means "no body".
    if (/^application\/([\w.+-]+\+)?json\b/i.test(type))
      return without(JSON.parse(text), except) ?? bytes;
    const isForm = /^application\/x-www-form-urlencoded\b/i.test(type);
    if (isForm) return without(fieldsOf(text), except) ?? bytes;
    return /^text\//i.test(type) ? text : bytes;
  } catch {
    // Compare bytes: the handler will refuse this body, or decode it in its own way.
    return bytes;
  }
}

/** The bytes of a form with files, without its boundary, which is new each time. */
function partsOf(bytes: Buffer, boundary: string, except: readonly string[] = []): Buffer {
  const isExcepted = (part: string) => {
    const [, name] = /[; ]name="([^"]*)"/i.exec(part.split("\r\n\r\n", 1)[0] ?? "") ?? [];
    return name !== undefined && except.includes(Buffer.from(name, "latin1").toString());
  };
  const sent = `\r\n${bytes.toString("latin1")}`.split(`\r\n--${boundary}`);
  const parts = except.length === 0 ? sent : sent.filter((part) => !isExcepted(part));
  // The separator is beyond latin1, so that no byte equals it.
  return Buffer.from(parts.join("\u0100"));
}
