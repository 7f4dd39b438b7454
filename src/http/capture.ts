import type { ServerResponse } from "node:http";
import type { AnswerHeaders, AnswerToStore } from "../lock/record.ts";
import { type GivenHeaders, pickHeaders } from "./stored-answer.ts";

/** Which parts of an answer must be kept. */
export interface WantedAnswer {
  /** In lower case. */
  readonly storedHeaders: ReadonlySet<string>;
  readonly maxBodyBytes: number;
}

/** A handler's answer, as an adapter sees it. */
export interface Capture {
  /** Returns `undefined` if there is none; without its body if that was not kept. */
  answer(): AnswerToStore | undefined;
  /** The handler has failed: an answer that is given from now on is not its own. */
  failed(): void;
}

/**
 * Keeps the bytes that a handler writes to the response, from its calls and not from the socket: an
 * answer whose client has left is an answer, too. The capture is where the guard is mounted, so it
 * sees the bytes before outer middleware compresses them, and reads the headers before outer
 * middleware adds its own.
 */
export class ResponseCapture implements Capture {
  readonly #wanted: WantedAnswer;
  #head: { readonly status: number; readonly headers: AnswerHeaders } | undefined;
  /** `undefined` once there were more bytes than are kept. */
  #chunks: Buffer[] | undefined = [];
  #length = 0;
  #hasEnded = false;
  /** Some bytes have left, so the client may have them. */
  #isOnWire = false;
  #isDiscarded = false;
  /** `end` may call `write`, and both call `writeHead`: their arguments were seen already. */
  #isPassingOn = false;

  constructor(res: ServerResponse, wanted: WantedAnswer) {
    this.#wanted = wanted;
    this.#watch(res);
  }

  /** Whether the handler has begun to answer. */
  get hasBegun(): boolean {
    return this.#head !== undefined;
  }

  /** Nothing of the response is the handler's answer. */
  discard(): void {
    this.#isDiscarded = true;
    this.#forget();
  }

  failed(): void {
    if (this.#head === undefined || !this.#isOnWire) this.discard();
    // An error handler may end it, and that is not a part of the answer.
    else if (!this.#hasEnded) this.#chunks = undefined;
  }

  answer(): AnswerToStore | undefined {
    if (this.#head === undefined) return undefined;
    const { status, headers } = this.#head;
    const isWhole = this.#hasEnded && this.#chunks !== undefined;
    return { status, headers, body: isWhole ? joined(this.#chunks ?? []) : undefined };
  }

  #watch(res: ServerResponse): void {
    const capture = this;
    const { end, flushHeaders, write, writeHead } = res;
    res.writeHead = function writeHeadSeen(this: ServerResponse, ...args: unknown[]) {
      const [status, second, third] = args;
      const given = typeof second === "string" ? third : (second ?? third);
      capture.#readHead(this, Number(status), given as GivenHeaders);
      // On HTTP/1 the head leaves with the first bytes of the body.
      if ("stream" in this && Number(status) >= 200) capture.#isOnWire = true;
      return capture.#passOn(this, writeHead, args);
    } as typeof res.writeHead;
    res.flushHeaders = function flushHeadersSeen(this: ServerResponse) {
      capture.#readHead(this, this.statusCode, undefined);
      capture.#isOnWire = true;
      return capture.#passOn(this, flushHeaders, []);
    } as typeof res.flushHeaders;
    res.write = function writeSeen(this: ServerResponse, ...args: unknown[]) {
      capture.#readHead(this, this.statusCode, undefined);
      capture.#keep(args[0], args[1]);
      capture.#isOnWire = true;
      return capture.#passOn(this, write, args);
    } as typeof res.write;
    res.end = function endSeen(this: ServerResponse, ...args: unknown[]) {
      capture.#readHead(this, this.statusCode, undefined);
      capture.#keep(args[0], args[1]);
      capture.#isOnWire = true;
      const isFirst = !capture.#isPassingOn && !capture.#hasEnded;
      if (isFirst) capture.#hasEnded = true;
      try {
        return capture.#passOn(this, end, args);
      } catch (error) {
        // Such as for a chunk that is neither text nor bytes: it has not ended.
        if (isFirst) capture.#hasEnded = false;
        throw error;
      }
    } as typeof res.end;
  }

  #passOn(res: ServerResponse, method: (...args: never[]) => unknown, args: unknown[]): unknown {
    if (this.#isPassingOn || this.#isDiscarded) return Reflect.apply(method, res, args);
    this.#isPassingOn = true;
    try {
      return Reflect.apply(method, res, args);
    } catch (error) {
      // Such as for an invalid header: nothing was sent, so nothing was answered.
      if (!res.headersSent) this.#forget();
      throw error;
    } finally {
      this.#isPassingOn = false;
    }
  }

  /** At the first sign of an answer, and before it passes on. */
  #readHead(res: ServerResponse, status: number, given: GivenHeaders): void {
    // 1xx is not an answer yet.
    if (this.#head !== undefined || this.#isDiscarded || status < 200) return;
    this.#head = { status, headers: pickHeaders(this.#wanted.storedHeaders, res, given) };
  }

  #keep(chunk: unknown, encoding: unknown): void {
    if (this.#isPassingOn || this.#isDiscarded || this.#hasEnded) return;
    if (this.#chunks === undefined) return;
    this.#length += lengthOf(chunk, encoding);
    if (this.#length > this.#wanted.maxBodyBytes) {
      this.#chunks = undefined;
      return;
    }
    const bytes = bytesOf(chunk, encoding);
    if (bytes !== undefined) this.#chunks.push(bytes);
  }

  #forget(): void {
    this.#head = undefined;
    this.#chunks = [];
    this.#length = 0;
    this.#hasEnded = false;
    this.#isOnWire = false;
  }
}

function lengthOf(chunk: unknown, encoding: unknown): number {
  if (typeof chunk === "string") return Buffer.byteLength(chunk, encodingOf(encoding));
  return chunk instanceof Uint8Array ? chunk.byteLength : 0;
}

function encodingOf(encoding: unknown): BufferEncoding {
  return typeof encoding === "string" && Buffer.isEncoding(encoding) ? encoding : "utf8";
}

function joined(chunks: readonly Buffer[]): Buffer {
  const [only] = chunks;
  return only !== undefined && chunks.length === 1 ? only : Buffer.concat(chunks);
}

/** A copy: a handler may use its buffer again. */
function bytesOf(chunk: unknown, encoding: unknown): Buffer | undefined {
  if (typeof chunk === "string") return Buffer.from(chunk, encodingOf(encoding));
  return chunk instanceof Uint8Array ? Buffer.from(chunk) : undefined;
}
