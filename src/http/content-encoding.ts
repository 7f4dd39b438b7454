import type { IncomingHttpHeaders } from "node:http";
import { promisify } from "node:util";
import * as zlib from "node:zlib";
import type { StoredAnswer } from "../lock/record.ts";

/** The longest body that is decoded: 16 times the longest that is stored. */
const maxOutputLength = 16 * 1_048_576;

type Decode = (body: Uint8Array, options: { maxOutputLength: number }) => Promise<Buffer>;

/** The content codings of RFC 9110, section 8.4.1, and Brotli, as this process can undo them. */
const decoders: ReadonlyMap<string, Decode> = new Map<string, Decode>([
  ["gzip", promisify(zlib.gunzip)],
  ["x-gzip", promisify(zlib.gunzip)],
  ["deflate", promisify(zlib.inflate)],
  ["br", promisify(zlib.brotliDecompress)],
]);

/**
 * A stored answer as the client of a retry can read it: its body decoded where it is stored in a
 * content coding that this client does not accept. Without `Accept-Encoding` none is, because such
 * clients mostly cannot decode, although RFC 9110 (section 12.5.3) would let them have any.
 *
 * @returns `undefined` if the body cannot be decoded, or only to more than 16 MiB.
 */
export async function readableAnswer(
  answer: StoredAnswer,
  headers: IncomingHttpHeaders,
): Promise<StoredAnswer | undefined> {
  const codings = codingsOf(answer);
  const { body } = answer;
  if (body === undefined || codings.length === 0) return answer;
  const accepted = acceptedBy(headers["accept-encoding"]);
  if (codings.every(accepted)) return answer;
  const decoded = await decode(body, codings);
  if (decoded === undefined) return undefined;
  const { "content-encoding": _coding, ...others } = answer.headers;
  return { status: answer.status, headers: withWeakTag(others), body: decoded };
}

/** In the order in which they were applied. */
function codingsOf({ headers }: StoredAnswer): string[] {
  const value = headers["content-encoding"] ?? "";
  return listOf(value.toString()).filter((coding) => coding !== "identity");
}

async function decode(
  body: Uint8Array,
  codings: readonly string[],
): Promise<Uint8Array | undefined> {
  let decoded = body;
  for (const coding of codings.toReversed()) {
    const undo = decoders.get(coding);
    if (undo === undefined) return undefined;
    try {
      decoded = await undo(decoded, { maxOutputLength });
    } catch {
      return undefined;
    }
  }
  return decoded;
}

/** RFC 9110, section 12.5.3. */
function acceptedBy(header: string | undefined): (coding: string) => boolean {
  const weights = new Map<string, boolean>();
  for (const element of listOf(header ?? "")) {
    const [coding = "", ...parameters] = element.split(";").map((part) => part.trim());
    const isRefused = parameters.some((each) => /^q\s*=\s*0(\.0*)?$/.test(each));
    weights.set(canonical(coding), !isRefused);
  }
  return (coding) => weights.get(canonical(coding)) ?? weights.get("*") ?? false;
}

/** RFC 9110, section 8.4.1.3: the two are one. */
function canonical(coding: string): string {
  return coding === "x-gzip" ? "gzip" : coding;
}

/** The elements of a comma-separated list, in lower case. */
function listOf(value: string): string[] {
  const elements = value.toLowerCase().split(",");
  return elements.map((each) => each.trim()).filter((each) => each !== "");
}

/** A strong entity tag speaks of the encoded bytes. */
function withWeakTag(headers: StoredAnswer["headers"]): StoredAnswer["headers"] {
  const tag = headers["etag"];
  return typeof tag === "string" && tag.startsWith('"')
    ? { ...headers, etag: `W/${tag}` }
    : headers;
}
