import type { IncomingMessage } from "node:http";
import { setImmediate } from "node:timers/promises";
import { NoFingerprintError } from "../errors.ts";
import { checkText, hash22, isText } from "../lock/submission.ts";
import { bodyIsUnparsed, sentBody } from "./announced-body.ts";
import { fingerprintOf } from "./fingerprint.ts";
import { parseIdempotencyKey } from "./idempotency-key.ts";
import type { ResolvedIdempotency } from "./idempotency-options.ts";
import { sentFiles } from "./uploads.ts";

/** What a request means to happen once, as a handler sees it. */
export interface Submission {
  /**
   * 22 characters, the same on every retry of this user and of nobody else, and without a meaning to
   * others: for a unique column of the order table, and for the key of a payment provider.
   */
  readonly id: string;
  /** Whether the client's `Idempotency-Key` header gave the id, or the option `submissionId`. */
  readonly source: "key" | "derived";
  /** This request's answer is not kept: the next retry runs. */
  doNotStore(): void;
}

/** A submission, with what the lock has to know of it. */
export class IdentifiedSubmission implements Submission {
  readonly id: string;
  readonly source: "key" | "derived";
  readonly #fingerprint: string | undefined;
  #isStored = true;

  constructor(id: string, source: "key" | "derived", fingerprint: string | undefined) {
    this.id = id;
    this.source = source;
    this.#fingerprint = fingerprint;
  }

  doNotStore(): void {
    this.#isStored = false;
  }

  /** Whether its answer may be kept. */
  static isStored(submission: IdentifiedSubmission): boolean {
    return submission.#isStored;
  }

  static fingerprint(submission: IdentifiedSubmission): string | undefined {
    return submission.#fingerprint;
  }
}

/** What identifies the submission of a request. */
export type Identification =
  | { readonly kind: "none" }
  | { readonly kind: "key-missing" }
  | { readonly kind: "key-invalid" | "id-invalid"; readonly why: string }
  | { readonly kind: "submission"; readonly submission: IdentifiedSubmission };

/** What only the framework knows of a request. */
export interface RequestContent {
  /** The URL as it came, whatever router has cut from it. */
  readonly originalUrl: string;
  readonly query: unknown;
  /** What a body parser has made of the body; `undefined` if none has. */
  readonly body: unknown;
  /** A parser has run: it leaves a body behind, also for a content type that it does not take. */
  readonly hasParser: boolean;
  /** Each place in which a parser leaves files, with or without any. */
  readonly files: readonly unknown[];
}

/** The properties in which parsers leave files. */
export interface Uploads {
  readonly file?: unknown;
  readonly files?: unknown;
}

const primitives: ReadonlySet<string> = new Set(["string", "number", "boolean"]);

const whyIdInvalid = "The id of a submission has to be well-formed text of 1 to 1024 characters.";

/**
 * Finds what identifies the submission, once: handlers may change the body later.
 *
 * @param scope what is the user's alone: the key of the user's lock.
 * @throws NoFingerprintError (as a rejection) for a body that was announced and not parsed,
 * InvalidOptionError for a `submissionId` that is an object, and what the application's functions throw.
 */
export async function identify<Source>(
  options: ResolvedIdempotency<Source>,
  source: Source,
  req: IncomingMessage,
  content: (source: Source) => RequestContent,
  scope: string,
): Promise<Identification> {
  // They are not submissions: asking twice does no harm.
  if (req.method === "GET" || req.method === "HEAD") return { kind: "none" };
  // Here and below, nothing is awaited for a function that is not there: most have the header alone.
  if (options.submissionId !== undefined) {
    const derived = await options.submissionId(source);
    if (derived !== undefined && derived !== null && derived !== "") {
      // A client may send any JSON in place of a text; an object is a mistake of the application.
      if (!isText(derived) && primitives.has(typeof derived)) {
        return { kind: "id-invalid", why: whyIdInvalid };
      }
      const text = checkText("idempotency.submissionId", derived);
      const id = hash22(`derived\n${scope}\n${text}`);
      const given = await options.fingerprint?.(source);
      const print = given === undefined ? undefined : fingerprintOf(id, given);
      return { kind: "submission", submission: new IdentifiedSubmission(id, "derived", print) };
    }
  }
  if (options.key === "ignored") return { kind: "none" };
  const header = parseIdempotencyKey(linesOf(req, "idempotency-key"));
  if (header.kind === "invalid") return { kind: "key-invalid", why: header.why };
  if (header.kind === "missing") {
    return { kind: options.key === "required" ? "key-missing" : "none" };
  }
  const { originalUrl, query, body, hasParser, files } = content(source);
  const id = hash22(`key\n${scope}\n${req.method} ${pathOf(originalUrl)}\n${header.key}`);
  let payload: unknown;
  if (options.fingerprint === undefined) {
    const sent = sentFiles(files);
    if (sent === undefined && bodyIsUnparsed(req, body)) {
      await untilKnownEmpty(req, body, hasParser);
    }
    payload = [query ?? null, sentBody(req, body), ...(sent === undefined ? [] : [sent])];
  } else {
    payload = await options.fingerprint(source);
  }
  const submission = new IdentifiedSubmission(id, "key", fingerprintOf(id, payload));
  return { kind: "submission", submission };
}

function pathOf(url: string): string {
  const end = url.indexOf("?");
  return end < 0 ? url : url.slice(0, end);
}

/** Parsers for Koa may leave nothing behind for a content type that is not theirs. */
const usualTypes = /^application\/(?:json|x-www-form-urlencoded)\b/i;

/**
 * On HTTP/2 an empty body may be known to be empty one turn of the event loop later.
 *
 * @throws NoFingerprintError (as a rejection) for any other body that was not parsed: the client
 * chose a content type that no parser takes, or the application has mounted none.
 */
async function untilKnownEmpty(
  req: IncomingMessage,
  body: unknown,
  hasParser: boolean,
): Promise<void> {
  await setImmediate();
  if (!bodyIsUnparsed(req, body)) return;
  const isOfClient = hasParser || !usualTypes.test(req.headers["content-type"] ?? "");
  // A fingerprint of nothing would let every payload pass for the first one.
  throw new NoFingerprintError(
    `cannot compare this request with earlier ones of its Idempotency-Key: ${
      isOfClient ? "no body parser took its content type" : "its body was not parsed"
    }. Mount the body parser before the guard, or give idempotency.fingerprint`,
    { status: isOfClient ? 415 : 500 },
  );
}

/** The lines of a header as they came: Node.js joins them. */
function linesOf(req: IncomingMessage, name: string): string[] {
  const lines: string[] = [];
  const { rawHeaders } = req;
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const each = rawHeaders[i];
    // Nearly all are of another length: those are not copied.
    if (each?.length === name.length && each.toLowerCase() === name) {
      lines.push(rawHeaders[i + 1] ?? "");
    }
  }
  if (lines.length > 0) return lines;
  // An adapter for serverless functions may make its requests without them.
  const joined = req.headers[name];
  return joined === undefined ? [] : [joined].flat();
}
