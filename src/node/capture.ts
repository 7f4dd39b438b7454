import type { ServerResponse } from "node:http";
import { types } from "node:util";
import type { Capture, WantedAnswer } from "../http/port.ts";
import { listedHeaders, type Picked, textOf, withoutOuter } from "../http/stored-answer.ts";
import type { AnswerHeaders, AnswerToStore } from "../lock/record.ts";
import { isDisconnected } from "./exchange.ts";

type Method = (this: ServerResponse, ...args: unknown[]) => unknown;
type Methods = Record<"end" | "flushHeaders" | "write" | "writeHead", Method>;

/** The members of a stream that are used here, so that streams of old packages fit. */
export interface NodeStream {
  readonly closed?: boolean;
  readonly readableEnded?: boolean;
  readonly errored?: Error | null;
  pipe(target: unknown): unknown;
  once(event: string, listener: (error?: unknown) => void): unknown;
}

export function isNodeStream(body: unknown): body is NodeStream {
  // A value of a library, such as `Option` of effect, may have a `pipe` that is none of a stream's.
  const { once, pipe } = Object(body) as Partial<NodeStream>;
  return typeof pipe === "function" && typeof once === "function";
}

/** Some processes have no `Response`: with jsdom, or `--no-experimental-fetch` of Node 20 and 22. */
export function isWebResponse(body: unknown): body is Response {
  return typeof Response === "function" && body instanceof Response;
}

/** Returns the web stream of a body. Node.js shows its error, but not the end of its work. */
export function webStreamOf(body: unknown): ReadableStream | null | undefined {
  if (isWebResponse(body)) return body.body;
  return typeof ReadableStream === "function" && body instanceof ReadableStream ? body : undefined;
}

export interface Head {
  readonly status: number;
  readonly headers: AnswerHeaders;
}

/**
 * Captures the answer from the handler's calls of the response's methods, not from the socket: so
 * the client may have left, and outer middleware has not compressed the answer yet.
 *
 * Hooks on `writeHead`, such as those of on-headers, run late: Node calls `writeHead` from within
 * `end`, `write` and `flushHeaders`. Then inner middleware's hooks run before the captured
 * `writeHead`, and outer middleware's hooks after it. An outer `end` may set headers before all of
 * them. So the head is read at the handler's first call. Later the head gets only the inner hooks'
 * changes: those made from the call of `writeHead` to the call of the captured `writeHead`.
 */
export class ResponseCapture implements Capture {
  protected readonly res: ServerResponse;
  readonly #wanted: WantedAnswer;
  /** The headers that the response had before the handler began. */
  readonly #outer: Picked;
  readonly #writeHead: unknown;
  #head: Head | undefined;
  /** The head as the hooks of inner middleware find it, while they run. */
  #unhooked: Head | undefined;
  /** The body so far; `undefined` once it is too long or not known. */
  #chunks: (string | Buffer)[] | undefined = [];
  #length = 0;
  #hasEnded = false;
  /** How many parts the handler has written since it can see that its client has left. */
  #writtenOn = 0;
  /** The arguments of `writeHead`. */
  #givenHead: readonly unknown[] = [];
  /** A call has sent the head or a part of the body: the client may have it. */
  #isOnWire = false;
  /** Other code than the handler writes the response: its calls are ignored, unless `#isOthers`. */
  #isDiscarded = false;
  /** The handler failed before it sent anything: the error handler's answer is captured. */
  #isOthers = false;
  /** True during an original method: `end` may call `write`, and both call `writeHead`. */
  #isPassingOn = false;

  constructor(res: ServerResponse, wanted: WantedAnswer) {
    this.res = res;
    this.#wanted = wanted;
    this.#outer = pickHeaders(wanted.storedHeaders, res);
    const methods = res as unknown as Methods;
    const capturing = (name: keyof Methods): Method => {
      const original = methods[name];
      return (...args) => this.#called(name, original, args);
    };
    // Not a loop: properties that are added by computed keys make V8 treat the object as slow.
    methods.end = capturing("end");
    methods.flushHeaders = capturing("flushHeaders");
    methods.write = capturing("write");
    methods.writeHead = capturing("writeHead");
    this.#writeHead = res.writeHead;
  }

  get head(): Head | undefined {
    return this.#head;
  }

  /** The handler has ended the response, or has written all of the length that it declared. */
  get #isComplete(): boolean {
    return this.#hasEnded || (this.#length > 0 && this.#declaredLength() === this.#length);
  }

  get hasBody(): boolean {
    return this.#hasEnded || this.#length > 0;
  }

  /** Forgets the captured answer, and ignores later calls: from now on other code writes it. */
  discard(): void {
    this.#isDiscarded = true;
    this.#forget();
  }

  get #isIgnoring(): boolean {
    return this.#isDiscarded && !this.#isOthers;
  }

  /** The framework writes the body from now on. `head` counts if none was captured before. */
  settle(head: Head): void {
    const sent = this.#head;
    this.discard();
    this.#head = sent ?? head;
    if (sent === undefined) this.#watchHooks();
  }

  failed(): void {
    if (this.#head === undefined || !this.#isOnWire) {
      this.discard();
      this.#isOthers = true;
    }
    // The error handler may end the response, with bytes that are not the handler's: keep no body.
    else if (!this.#isComplete) this.#chunks = undefined;
  }

  answer(): AnswerToStore | undefined {
    return this.#isOthers ? undefined : this.#captured();
  }

  othersAnswer(): AnswerToStore | undefined {
    return this.#isOthers ? this.#captured() : undefined;
  }

  #captured(): AnswerToStore | undefined {
    // A handler can send the head by HTTP/2's stream, without the captured methods.
    if (this.res.headersSent) this.#readHead([this.res.statusCode]);
    if (this.#head === undefined) return undefined;
    // Node sends no body with a 204: the answer is complete with its head.
    if (this.#head.status === 204) return { ...this.#head, body: "" };
    const chunks = this.#isComplete ? this.#chunks : undefined;
    if (chunks?.length === 1) return { ...this.#head, body: chunks[0] };
    const body = chunks && Buffer.concat(chunks.map((chunk) => Buffer.from(chunk as string)));
    return { ...this.#head, body };
  }

  #called(name: keyof Methods, original: Method, args: unknown[]): unknown {
    const res = this.res;
    if (name === "writeHead") {
      this.#givenHead = args;
      if (this.#head !== undefined && this.#unhooked !== undefined) {
        this.#head = withChanges(this.#head, this.#unhooked, this.#headOf(args));
      } else this.#readHead(args);
      // HTTP/2 sends the head at once, HTTP/1 with the first bytes of the body.
      if ("stream" in res && Number(args[0]) >= 200) this.#isOnWire = true;
    } else this.#sees(name, ...args);
    if (this.#isPassingOn || this.#isIgnoring) return Reflect.apply(original, res, args);
    // `hasLeft` is true on HTTP/1 some turns before the handler can see that its client has left.
    if (name === "write" && (res.destroyed || ("stream" in res && hasLeft(res)))) this.#writtenOn++;
    const isEnd = name === "end" && !this.#hasEnded;
    if (isEnd) {
      this.#hasEnded = true;
      if (hasLeft(res) && !this.#isWhole(args[0])) this.#chunks = undefined;
    }
    this.#isPassingOn = true;
    try {
      return Reflect.apply(original, res, args);
    } catch (error) {
      // `end` throws for a chunk that is neither text nor bytes: the response has not ended.
      if (isEnd) this.#hasEnded = false;
      // After an error, such as an invalid header, there is no answer unless headers were sent.
      if (!res.headersSent) this.#forget();
      throw error;
    } finally {
      this.#isPassingOn = false;
    }
  }

  #headOf(args: readonly unknown[]): Head {
    return { status: Number(args[0]), headers: this.headers(givenIn(args)) };
  }

  /** The stored headers that the response has now, without those of outer middleware. */
  headers(given?: GivenHeaders): Picked {
    return withoutOuter(pickHeaders(this.#wanted.storedHeaders, this.res, given), this.#outer);
  }

  /** Keeps the head just before the first call that sends any part of the answer. */
  #readHead(args: readonly unknown[]): void {
    // A status of 1xx announces an answer, and is not one.
    if (this.#head !== undefined || this.#isIgnoring || Number(args[0]) < 200) return;
    this.#head = this.#headOf(args);
  }

  #watchHooks(): void {
    const res = this.res;
    const { writeHead } = res;
    if (writeHead === this.#writeHead) return;
    let hasRun = false;
    res.writeHead = ((...args: unknown[]) => {
      if (!hasRun) this.#unhooked = this.#headOf(args);
      hasRun = true;
      try {
        return Reflect.apply(writeHead, res, args);
      } finally {
        this.#unhooked = undefined;
      }
    }) as typeof writeHead;
  }

  #sees(name: keyof Methods, chunk?: unknown, encoding?: unknown): void {
    if (this.#isIgnoring) return;
    if (this.#head === undefined) {
      this.#readHead([this.res.statusCode]);
      this.#watchHooks();
    }
    this.#isOnWire = true;
    if (this.#isPassingOn || !this.#chunks) return;
    if (this.#hasEnded) {
      // A `write` after an `end` that outer middleware holds back: the chunk may be sent or not, so
      // the body is not known. On HTTP/2, Node's own `end` may have called `write`.
      if (name === "write" && !this.res.writableEnded && !("stream" in this.res)) {
        this.#chunks = undefined;
      }
      return;
    }
    if (typeof chunk !== "string" && !types.isUint8Array(chunk)) return;
    const coding = typeof encoding === "string" && Buffer.isEncoding(encoding) ? encoding : "utf8";
    this.#length += Buffer.byteLength(chunk, coding);
    if (this.#length > this.#wanted.maxBodyBytes) this.#chunks = undefined;
    else if (types.isUint8Array(chunk) || /^utf-?8$/i.test(coding)) {
      // Bytes are copied, because the handler may overwrite its buffer later.
      this.#chunks.push(typeof chunk === "string" ? chunk : Buffer.from(chunk));
    } else this.#chunks.push(Buffer.from(chunk, coding));
  }

  /**
   * Whether `end` was called for the whole answer, not because the handler saw its client leave.
   * A body is whole if it has the declared length. If no length was declared, it is whole if `end`
   * got all of it, or the handler wrote on after the client had left. An answer without a body is
   * whole if its head has no type, and has a 3xx or a `Location`.
   */
  #isWhole(last: unknown): boolean {
    const declared = this.#declaredLength();
    if (declared !== undefined) return declared === this.#length;
    if (typeof last === "string" || types.isUint8Array(last)) {
      return this.#writtenOn > 0 || this.#chunks?.length === 1;
    }
    if (this.#length > 0 || this.#head === undefined) return this.#writtenOn > 1;
    const { headers, status } = this.#head;
    const isRedirect = status >= 300 && status < 400;
    return (
      headers["content-type"] === undefined && (isRedirect || headers["location"] !== undefined)
    );
  }

  #declaredLength(): number | undefined {
    const name = "content-length";
    const { [name]: length } = pickHeaders(new Set([name]), this.res, givenIn(this.#givenHead));
    return length === undefined ? undefined : Number(length);
  }

  #forget(): void {
    this.#head = undefined;
    this.#chunks = [];
    this.#length = 0;
    this.#hasEnded = false;
    this.#writtenOn = 0;
    this.#isOnWire = false;
  }
}

function givenIn([, second, third]: readonly unknown[]): GivenHeaders {
  return (typeof second === "string" ? third : (second ?? third)) as GivenHeaders;
}

function hasLeft(res: ServerResponse): boolean {
  // A response that a test has made may have no request.
  if (res.req === undefined) return res.destroyed;
  const { httpVersionMajor, socket } = res.req;
  // A connection that was ended is closed later, but the handler may see its end already.
  return (httpVersionMajor < 2 && socket?.writable === false) || isDisconnected(res.req, res);
}

function withChanges(head: Head, before: Head, after: Head): Head {
  const headers = Object.assign(Object.create(null), head.headers);
  for (const name of Object.keys({ ...before.headers, ...after.headers })) {
    const value = after.headers[name];
    if (`${value}` === `${before.headers[name]}`) continue;
    if (value === undefined) delete headers[name];
    else headers[name] = value;
  }
  return { status: after.status === before.status ? head.status : after.status, headers };
}

/** The headers of `writeHead`: an object, a flat array of names and values, an array of pairs. */
export type GivenHeaders = Readonly<Record<string, unknown>> | readonly unknown[] | undefined;

/**
 * Returns the response's headers that are named in `stored`.
 * @param given the argument of `writeHead`. It replaces a header of the same name that the response
 * has; within an array, a name that is repeated adds a value.
 */
export function pickHeaders(
  stored: ReadonlySet<string>,
  res: ServerResponse,
  given?: GivenHeaders,
): Picked {
  const picked: Picked = Object.create(null);
  // `getHeaders` would copy all headers. `getHeaderNames` returns names in lower case.
  for (const name of res.getHeaderNames()) {
    const text = stored.has(name) ? textOf(res.getHeader(name)) : undefined;
    if (text !== undefined) picked[name] = text;
  }
  if (given === undefined || given === null) return picked;
  const isList = Array.isArray(given);
  // If the list repeats a name and the response has headers, Node.js 20 sends only the last value.
  const isLastOnly = !isList || (isNode20 && !("stream" in res) && res.getHeaderNames().length > 0);
  const isFlat = isList && !Array.isArray(given[0]);
  const pairs = isFlat
    ? Array.from({ length: given.length / 2 }, (_, i) => [given[2 * i], given[2 * i + 1]])
    : given;
  return Object.assign(picked, listedHeaders(stored, pairs, isLastOnly));
}

const isNode20 = process.version.startsWith("v20.");
