import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2Stream } from "node:http2";
import { Socket } from "node:net";
import type { Exchange } from "../http/port.ts";
import { performance, setTimeout } from "../time.ts";
import { Timer, TimerWheel, within } from "../timers.ts";

/** How long outer middleware may work, or hold the end back, after the client has left, in ms. */
export const heldBackMs = 1_000;

/** How long a replay waits for its session, in ms. */
const reloadedWithinMs = 1_000;

const pollEveryMs = 1_000;
const pollTimers = new TimerWheel<NodeExchange>(100, false);

/**
 * A request and a response of Node.js. Watches when the response is over: `isAnswered` when code
 * has ended it, `clientLeft` when its connection or stream has closed before the end.
 *
 * No single event shows this (Node 20, 22 and 24, HTTP/1 unless said otherwise):
 *
 * | event                  | after a normal end      | after the client has left                  |
 * | ---------------------- | ----------------------- | ------------------------------------------ |
 * | `finish`               | when all was written;   | never; HTTP/2: at once, in the middle of   |
 * |                        | a slow reader delays it | the order                                  |
 * | `close`                | after `finish`          | at once, in the middle of the order; on 20 |
 * |                        |                         | and 22 never for a response that is queued |
 * |                        |                         | behind a pipelined one                     |
 * | `prefinish`            | within `res.end()`      | within `res.end()`, but never between      |
 * |                        | HTTP/2: never           | `socket.end()` and the socket's `close`    |
 * | `close` of the request | once its body is parsed; from then on `req.destroyed` is true        |
 * | `res.writableEnded`    | from `res.end()` on     | the same; HTTP/2: stays false              |
 *
 * So `writableEnded` is read at each event of the response, and the call of `res.end` itself is
 * watched where `prefinish` may be missing. Where a response has an HTTP/1 connection to itself,
 * `prefinish` is enough, except while an ended connection is not closed yet: so the response is
 * polled. An HTTP/2 stream is polled, too: if it is reset without an error code while bytes are
 * unwritten, it emits no `close` until it is destroyed.
 */
export class NodeExchange extends Timer implements Exchange {
  readonly request: IncomingMessage;
  readonly method: string | undefined;
  readonly #res: ServerResponse;
  watcher: { responseChanged(): void } | undefined;
  #isAnswered: boolean;
  clientLeft: boolean;
  #endCalled = false;
  #stopWatchingSocket: (() => void) | undefined;
  /** Set on HTTP/1 only, if the response has its connection alone and its `end` is the original. */
  readonly #connection: Socket | undefined;
  /** How many bytes earlier responses have written to the connection; `undefined` if not known. */
  readonly #writtenBefore: number | undefined;
  readonly #stream: Http2Stream | undefined;

  constructor(req: IncomingMessage, res: ServerResponse & { readonly stream?: Http2Stream }) {
    super();
    this.request = req;
    this.method = req.method;
    this.#res = res;
    this.#isAnswered = res.writableEnded;
    this.clientLeft = isDisconnected(req, res);
    this.#stream = res.stream;
    // Undefined on HTTP/2, on serverless platforms, and for a response behind a pipelined one.
    const socket =
      req.httpVersionMajor < 2 && res.socket instanceof Socket ? res.socket : undefined;
    this.#connection = Object.hasOwn(res, "end") ? undefined : socket;
    this.#writtenBefore = socket?.bytesWritten;
  }

  header(name: string): string | undefined {
    return this.request.headers[name]?.toString();
  }

  /** Reads `rawHeaders`, because `req.headers` has the lines of a header joined. */
  headerLines(name: string): readonly string[] {
    const lines: string[] = [];
    // An adapter for serverless functions may make its requests without `rawHeaders`.
    const { headers, rawHeaders = [] } = this.request;
    for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
      const each = rawHeaders[i];
      // The length first: `toLowerCase` copies the name, and nearly all names have another length.
      if (each?.length === name.length && each.toLowerCase() === name) {
        lines.push(rawHeaders[i + 1] ?? "");
      }
    }
    if (lines.length > 0) return lines;
    const joined = headers[name];
    return joined === undefined ? [] : [joined].flat();
  }

  watch(): void {
    const { request: req } = this;
    const res = this.#res;
    // Do not trust an event: HTTP/2 emits `finish` for a stream that was reset, too.
    const update = () => {
      if (res.writableEnded || this.#isStreamEnded()) this.#end();
      else this.close();
    };
    res.on("prefinish", update);
    res.on("close", update);
    this.#setPollTimer();
    // A response with an HTTP/1 connection to itself needs only `prefinish` and `close`. To replace
    // `end` is slow: Express gives each response a prototype, and so a hidden class, of its own.
    if (this.#connection === undefined) {
      // On HTTP/1 `finish` shows the end: serverless adapters may emit it before `writableEnded`.
      res.on("finish", req.httpVersionMajor < 2 ? () => this.#end() : update);
      const watch = this;
      // Outer middleware has replaced `end`, and may end the response some time after the call.
      const mayDefer = Object.hasOwn(res, "end");
      const { end } = res;
      res.end = function watchedEnd(this: ServerResponse, ...args: never[]) {
        if (mayDefer) watch.#endCalled = true;
        // The original is called first: if it throws, the response has not ended.
        const result = Reflect.apply(end, this, args);
        // On a closed HTTP/2 stream `writableEnded` stays false: only this call shows the end.
        if (!mayDefer || res.writableEnded) watch.#end();
        else watch.willEnd();
        return result;
      } as typeof res.end;
      // Adapters of serverless platforms make requests without a real socket.
      if (req.httpVersionMajor >= 2 || typeof req.socket?.once !== "function") return;
      this.#stopWatchingSocket = onSocketClose(req.socket, () => {
        this.close();
        // On Node.js 20 and 22 a queued response gets no `close`: a `pipeline` to it would hang.
        if (res.destroyed || res.socket !== null) return;
        res.destroy();
        res.emit("close");
      });
    }
  }

  get isAnswered(): boolean {
    return this.#isAnswered || this.#res.writableEnded;
  }

  /** True also while outer middleware holds the end back. */
  get mayStillChange(): boolean {
    return !this.isAnswered && (!this.clientLeft || this.#endCalled);
  }

  /** The end was called, and outer middleware or hooks may hold it back. */
  willEnd(): void {
    this.#endCalled = true;
    if (this.clientLeft) setTimeout(() => this.#end(), heldBackMs).unref();
  }

  /** The handler has answered by HTTP/2's stream, without the response's methods. */
  #isStreamEnded(): boolean {
    const stream = this.#stream;
    return stream?.writableEnded === true && !stream.aborted && this.#res.headersSent;
  }

  stop(): void {
    pollTimers.clear(this);
    this.#stopWatchingSocket?.();
    this.#stopWatchingSocket = undefined;
  }

  /** Does nothing once the connection is destroyed: polling would keep the response in memory. */
  #setPollTimer(): void {
    if ((this.#connection ?? this.#stream)?.destroyed === false) {
      pollTimers.set(this, performance.now() + pollEveryMs);
    }
  }

  override onDue(): void {
    this.#setPollTimer();
    // Destroy a closed stream: until then it does not emit `close`. The handler had until this poll
    // to read the request.
    if (this.#stream?.closed) this.#stream.destroy();
    if (this.#res.writableEnded) this.#end();
    // The connection was ended: an answer can no longer be sent.
    else if (this.#connection?.writable === false) this.close();
  }

  #end(): void {
    if (this.#isAnswered) return;
    this.#isAnswered = true;
    this.watcher?.responseChanged();
  }

  /**
   * Whether the handler has written all of the length that it declared. A client that closes the
   * connection after each answer, as nginx does by default, may do so before `res.end()` is called.
   */
  #isComplete(): boolean {
    const { _header: head, req } = this.#res as ServerResponse & { readonly _header?: string };
    const [, length] = /\r\ncontent-length: *(\d+)\r\n/i.exec(head ?? "") ?? [];
    if (head === undefined || length === undefined || this.#writtenBefore === undefined)
      return false;
    return req.socket.bytesWritten - this.#writtenBefore === head.length + Number(length);
  }

  /** Called when no answer can arrive: the client has left, or a body stream failed. */
  close(): void {
    if (this.clientLeft) return;
    if (this.#isComplete()) {
      this.#end();
      return;
    }
    this.clientLeft = true;
    this.watcher?.responseChanged();
    if (this.#endCalled) this.willEnd();
  }
}

export function isDisconnected(
  req: IncomingMessage,
  { stream }: ServerResponse & { readonly stream?: Http2Stream },
): boolean {
  if (req.httpVersionMajor < 2) return req.socket?.destroyed === true;
  // On HTTP/2 the request and the response share one stream.
  return stream?.closed === true || stream?.destroyed === true;
}

/**
 * Reads the session anew before a replay, as express-session and @fastify/session can. A repeat
 * that waited has read its session before the first order ended. If the old session were saved
 * after the answer, the cart would be full again, and the customer's next click would order again.
 */
export async function reloadSession(session: unknown): Promise<void> {
  const { reload } = Object(session);
  if (typeof reload !== "function") return;
  const reloaded = new Promise<unknown>((done, failed) => {
    // A wrapper may be async, and reject.
    Promise.resolve(Reflect.apply(reload, session, [done])).catch(failed);
  });
  await within(
    reloadedWithinMs,
    reloaded.catch(() => {}),
  );
}

/** One listener for each socket: it may have many requests. */
const socketListeners = new WeakMap<Socket, Set<() => void>>();

function onSocketClose(socket: Socket, listener: () => void): () => void {
  const listeners = socketListeners.get(socket) ?? new Set();
  if (!socketListeners.has(socket)) {
    socketListeners.set(socket, listeners);
    socket.once("close", () => {
      for (const each of listeners) each();
    });
  }
  listeners.add(listener);
  return () => listeners.delete(listener);
}
