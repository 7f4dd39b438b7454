import { NoFingerprintError } from "../errors.ts";

/** The longest body that is compared, in bytes: its clone is kept in memory until it was read. */
const maxBytes = 1_048_576;

const remedy = "Set idempotency.fingerprint";

/**
 * Returns query, body and files of a request, from a clone of the body: the handler reads its own.
 *
 * @throws NoFingerprintError (as a rejection) for a body that was read before, 500, and for one of
 * more than 1 MiB, 413.
 */
export async function payloadOf(request: Request): Promise<unknown> {
  const query = byName(new URL(request.url).searchParams);
  const bytes = await bytesOf(request);
  if (bytes.length === 0) return [query, null];
  const type = request.headers.get("content-type") ?? "";
  if (/^application\/([\w.+-]+\+)?json\b/i.test(type)) return [query, jsonOf(bytes)];
  if (/^application\/x-www-form-urlencoded\b/i.test(type)) {
    return [query, byName(new URLSearchParams(new TextDecoder().decode(bytes)))];
  }
  if (/^multipart\/form-data\b/i.test(type)) {
    const form = await new Response(bytes, { headers: { "content-type": type } })
      .formData()
      .catch(() => undefined);
    if (form !== undefined) return [query, ...(await partsOf(form))];
  }
  return [query, /^text\//i.test(type) ? new TextDecoder().decode(bytes) : bytes];
}

async function bytesOf(request: Request): Promise<Uint8Array<ArrayBuffer>> {
  if (request.body === null && !request.bodyUsed) return new Uint8Array();
  if (Number(request.headers.get("content-length")) > maxBytes) throw tooLong();
  let clone: Request;
  try {
    clone = request.clone();
  } catch {
    throw new NoFingerprintError(
      `cannot compare this request with earlier ones of its Idempotency-Key: its body was read before the guard. Read the body in the handler, or read a clone of the request before. ${remedy} for a body that is gone`,
    );
  }
  const chunks: Uint8Array[] = [];
  let length = 0;
  const reader = clone.body?.getReader();
  for (;;) {
    const part = await reader?.read();
    if (part === undefined || part.done) return joined(chunks);
    chunks.push(part.value);
    length += part.value.length;
    if (length <= maxBytes) continue;
    // Settles only when the handler's half is cancelled as well.
    reader?.cancel().catch(() => {});
    throw tooLong();
  }
}

function tooLong(): NoFingerprintError {
  return new NoFingerprintError(
    `cannot compare this request with earlier ones of its Idempotency-Key: its body is longer than ${maxBytes} bytes. ${remedy} for such requests`,
    { status: 413 },
  );
}

export function joined(chunks: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  return new Uint8Array(Buffer.concat(chunks));
}

function jsonOf(bytes: Uint8Array<ArrayBuffer>): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    // The handler will refuse it. Until then it is compared byte for byte.
    return bytes;
  }
}

type Values = Record<string, unknown>;

/** One value, or all of a name, as the query parsers of Express and Koa have it. */
function byName(pairs: Iterable<[string, unknown]>): Values {
  const values: Values = Object.create(null);
  for (const [name, value] of pairs) {
    values[name] = name in values ? [values[name], value].flat() : value;
  }
  return values;
}

/** The fields, and the files by their fields if there are any. */
async function partsOf(form: FormData): Promise<unknown[]> {
  const fields: [string, unknown][] = [];
  const files: Record<string, unknown[]> = Object.create(null);
  for (const [field, value] of form) {
    if (typeof value === "string") fields.push([field, value]);
    else {
      const { name, size, type } = value;
      files[field] ??= [];
      files[field].push([name, type, size, new Uint8Array(await value.arrayBuffer())]);
    }
  }
  return Object.keys(files).length === 0 ? [byName(fields)] : [byName(fields), files];
}
