import type { ServerResponse } from "node:http";
import type { AnswerHeaders, AnswerToStore } from "../lock/record.ts";
import type { ResolvedIdempotency } from "./options.ts";
import { type GivenHeaders, pickHeaders } from "./stored-answer.ts";

export type WantedAnswer = Pick<ResolvedIdempotency<never>, "storedHeaders" | "maxBodyBytes">;

/** Captures the answer that a handler gives to a request. */
export interface Capture {
  /** Returns `undefined` without an answer; its `body` is `undefined` if incomplete or too long. */
  answer(): AnswerToStore | undefined;
  /** The handler has failed: an answer that is given from now on is not its own. */
  failed(): void;
}

/**
 * Captures the answer from the handler's calls of the response's methods, not from the socket: the
 * answer is kept even if its client has left. The capture is where the guard is mounted, so it
 * sees the bytes before outer middleware compresses them, and reads the headers before outer
 * middleware adds its own.
 */
export class ResponseCapture implements Capture {
  readonly #wanted: WantedAnswer;
  #head: { readonly status: number; readonly headers: AnswerHeaders } | undefined;
  /** `undefined` once the body is longer than `maxBodyBytes`, or an error has cut it off. */
  #chunks: Buffer[] | undefined = [];
  #length = 0;
  #hasEnded = false;
  /** A call has sent the head or a part of the body: the client may have it. */
  #isOnWire = false;
  #isDiscarded = false;
  /** True during an original method: `end` may call `write`, and both call `writeHead`. */
  #isPassingOn = false;

  constructor(res: ServerResponse, wanted: WantedAnswer) {
    this.#wanted = wanted;
    const capture = this;
    const { end, flushHeaders, write, writeHead } = res;
    res.writeHead = function writeHeadSeen(this: ServerResponse, ...args: unknown[]) {
      const [status, second, third] = args;
      const given = typeof second === "string" ? third : (second ?? third);
      capture.#readHead(this, Number(status), given as GivenHeaders);
      // HTTP/2 sends the head at once, HTTP/1 with the first bytes of the body.
      if ("stream" in this && Number(status) >= 200) capture.#isOnWire = true;
      return capture.#passOn(this, writeHead, args);
    } as typeof res.writeHead;
    res.flushHeaders = function flushHeadersSeen(this: ServerResponse) {
      capture.#sees(this);
      capture.#passOn(this, flushHeaders, []);
    };
    res.write = function writeSeen(this: ServerResponse, ...args: unknown[]) {
      capture.#sees(this, ...args);
      return capture.#passOn(this, write, args);
    } as typeof res.write;
    res.end = function endSeen(this: ServerResponse, ...args: unknown[]) {
      capture.#sees(this, ...args);
      const isFirst = !capture.#isPassingOn && !capture.#hasEnded;
      if (isFirst) capture.#hasEnded = true;
      try {
        return capture.#passOn(this, end, args);
      } catch (error) {
        // Such as for a chunk that is neither text nor bytes: the response has not ended.
        if (isFirst) capture.#hasEnded = false;
        throw error;
      }
    } as typeof res.end;
  }

  get hasBegun(): boolean {
    return this.#head !== undefined;
  }

  /** Forgets what was captured and ignores later calls: from now on others write the response. */
  discard(): void {
    this.#isDiscarded = true;
    this.#forget();
  }

  failed(): void {
    if (this.#head === undefined || !this.#isOnWire) this.discard();
    // The error handler may end the response, with bytes that are not the handler's: keep no body.
    else if (!this.#hasEnded) this.#chunks = undefined;
  }

  answer(): AnswerToStore | undefined {
    if (this.#head === undefined) return undefined;
    const chunks = this.#hasEnded ? this.#chunks : undefined;
    const body = chunks?.length === 1 ? chunks[0] : chunks && Buffer.concat(chunks);
    return { ...this.#head, body };
  }

  #passOn(res: ServerResponse, method: (...args: never[]) => unknown, args: unknown[]): unknown {
    if (this.#isPassingOn || this.#isDiscarded) return Reflect.apply(method, res, args);
    this.#isPassingOn = true;
    try {
      return Reflect.apply(method, res, args);
    } catch (error) {
      // Such as for an invalid header: if no headers were sent, there is no answer yet.
      if (!res.headersSent) this.#forget();
      throw error;
    } finally {
      this.#isPassingOn = false;
    }
  }

  /** Keeps status and headers at the first call that sends any of the answer, before it is sent. */
  #readHead(res: ServerResponse, status: number, given: GivenHeaders): void {
    // A status of 1xx announces an answer, and is not one.
    if (this.#head !== undefined || this.#isDiscarded || status < 200) return;
    this.#head = { status, headers: pickHeaders(this.#wanted.storedHeaders, res, given) };
  }

  #sees(res: ServerResponse, chunk?: unknown, encoding?: unknown): void {
    this.#readHead(res, res.statusCode, undefined);
    this.#isOnWire = true;
    if (this.#isPassingOn || this.#isDiscarded || this.#hasEnded || !this.#chunks) return;
    if (typeof chunk !== "string" && !(chunk instanceof Uint8Array)) return;
    const isEncoding = typeof encoding === "string" && Buffer.isEncoding(encoding);
    const coding = isEncoding ? encoding : "utf8";
    this.#length += Buffer.byteLength(chunk, coding);
    if (this.#length > this.#wanted.maxBodyBytes) this.#chunks = undefined;
    else if (typeof chunk === "string") this.#chunks.push(Buffer.from(chunk, coding));
    // A copy, because the handler may overwrite its buffer later.
    else this.#chunks.push(Buffer.from(chunk));
  }

  #forget(): void {
    this.#head = undefined;
    this.#chunks = [];
    this.#length = 0;
    this.#hasEnded = false;
    this.#isOnWire = false;
  }
}
