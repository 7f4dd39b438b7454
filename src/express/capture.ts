import type { OutgoingHttpHeader, ServerResponse } from "node:http";
import type { Capture } from "../http/capture.ts";
import { type HeaderSource, pickHeaders } from "../http/stored-headers.ts";
import type { AnswerHeaders, AnswerToStore } from "../lock/answer.ts";

/**
 * Keeps what a handler answers, from what it says and not from what the socket does: an answer that
 * nobody was there to read is one, too. It stands where the guard is mounted, so it sees the bytes
 * before outer middleware compresses them, and reads the headers before outer middleware adds its
 * own while they pass on.
 */
export class ResponseCapture implements Capture {
  readonly #storedHeaders: ReadonlySet<string>;
  readonly #maxBodyBytes: number;
  #head: { readonly status: number; readonly headers: AnswerHeaders } | undefined;
  /** `undefined` once there was more than is kept. */
  #chunks: Buffer[] | undefined = [];
  #length = 0;
  #hasEnded = false;
  #isDiscarded = false;
  /** `end` may call `write`, and both call `writeHead`: what they pass on was seen. */
  #isPassingOn = false;

  constructor(res: ServerResponse, storedHeaders: ReadonlySet<string>, maxBodyBytes: number) {
    this.#storedHeaders = storedHeaders;
    this.#maxBodyBytes = maxBodyBytes;
    this.#watch(res);
  }

  /** Whether the handler has begun to answer. */
  get hasBegun(): boolean {
    return this.#head !== undefined;
  }

  /** What comes from now on is not the handler's. */
  discard(): void {
    this.#isDiscarded = true;
    this.#head = undefined;
    this.#chunks = undefined;
  }

  answer(): AnswerToStore | undefined {
    if (this.#head === undefined) return undefined;
    const isWhole = this.#hasEnded && this.#chunks !== undefined;
    return { ...this.#head, body: isWhole ? Buffer.concat(this.#chunks ?? []) : undefined };
  }

  #watch(res: ServerResponse): void {
    const capture = this;
    const { end, flushHeaders, write, writeHead } = res;
    res.writeHead = function writeHeadSeen(this: ServerResponse, ...args: unknown[]) {
      const [status, second, third] = args;
      const headers = typeof second === "string" ? third : (second ?? third);
      capture.#readHead(this, Number(status), headers as HeaderSource);
      return Reflect.apply(writeHead, this, args);
    } as typeof res.writeHead;
    res.flushHeaders = function flushHeadersSeen(this: ServerResponse) {
      capture.#readHead(this, this.statusCode, undefined);
      return Reflect.apply(flushHeaders, this, []);
    };
    res.write = function writeSeen(this: ServerResponse, ...args: unknown[]) {
      capture.#readHead(this, this.statusCode, undefined);
      capture.#keep(args[0], args[1]);
      return capture.#passOn(() => Reflect.apply(write, this, args));
    } as typeof res.write;
    res.end = function endSeen(this: ServerResponse, ...args: unknown[]) {
      capture.#readHead(this, this.statusCode, undefined);
      capture.#keep(args[0], args[1]);
      if (!capture.#isPassingOn) capture.#hasEnded = true;
      return capture.#passOn(() => Reflect.apply(end, this, args));
    } as typeof res.end;
  }

  #passOn<Result>(call: () => Result): Result {
    const wasPassingOn = this.#isPassingOn;
    this.#isPassingOn = true;
    try {
      return call();
    } finally {
      this.#isPassingOn = wasPassingOn;
    }
  }

  /** At the first sign of an answer, and before it passes on. */
  #readHead(res: ServerResponse, status: number, given: HeaderSource): void {
    // 1xx is no answer yet.
    if (this.#head !== undefined || this.#isDiscarded || status < 200) return;
    const set: Record<string, OutgoingHttpHeader | undefined> = res.getHeaders();
    this.#head = { status, headers: pickHeaders(this.#storedHeaders, set, given) };
  }

  #keep(chunk: unknown, encoding: unknown): void {
    if (this.#isPassingOn || this.#chunks === undefined || this.#hasEnded) return;
    const bytes = bytesOf(chunk, encoding);
    if (bytes === undefined) return;
    this.#length += bytes.length;
    if (this.#length > this.#maxBodyBytes) this.#chunks = undefined;
    else this.#chunks.push(bytes);
  }
}

/** A copy: a handler may use its buffer again. */
function bytesOf(chunk: unknown, encoding: unknown): Buffer | undefined {
  if (typeof chunk === "string") {
    return Buffer.from(
      chunk,
      Buffer.isEncoding(String(encoding)) ? (encoding as BufferEncoding) : "utf8",
    );
  }
  return chunk instanceof Uint8Array ? Buffer.from(chunk) : undefined;
}
