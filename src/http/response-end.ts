import type { IncomingMessage, ServerResponse } from "node:http";
import { Socket } from "node:net";
import { Timer, TimerWheel } from "../timer-wheel.ts";

/**
 * How long an end that somebody further out holds back may take once nobody is there to read it.
 * express-session saves the session meanwhile; compression never comes to the end.
 */
const heldBackMs = 1_000;

/** How often a response on an open connection is looked at, in case that its end was not heard. */
const lookEveryMs = 1_000;
const looks = new TimerWheel<ResponseEnd>(100, false);

/**
 * Watches when a response is over: `ended` when the handler has ended it, `closed` when its
 * connection or stream has closed without that.
 *
 * Which events can be relied on differs more than it should: `finish` never comes after a client
 * has left an HTTP/1 request, and comes in the middle of the order on HTTP/2; `close` comes in the
 * middle of the order on both; a response that is queued behind a pipelined one emits nothing at
 * all on Node 20 and 22; `req.destroyed` and the `close` of a request are ordinary once its body is
 * parsed. What remains is the call of `res.end` itself, and `writableEnded` at each event. Where a
 * response has the connection of HTTP/1 to itself, `prefinish` is emitted within that very call,
 * also after the client has left; except while the connection has been ended and is not closed yet,
 * as after the answer of a `clientError` listener, and so it is looked at once a second, too.
 */
export class ResponseEnd extends Timer {
  readonly #res: ServerResponse;
  readonly #changed: () => void;
  #ended: boolean;
  #closed: boolean;
  #endCalled = false;
  #stopWatchingSocket: (() => void) | undefined;
  #connection: Socket | undefined;

  /** @param changed called whenever `ended` or `isOver` may have become true. */
  constructor(req: IncomingMessage, res: ServerResponse, changed: () => void) {
    super();
    this.#res = res;
    this.#changed = changed;
    this.#ended = res.writableEnded;
    this.#closed = isDisconnected(req, res);
    const look = () => this.#look();
    res.on("prefinish", look);
    res.on("close", look);
    // Two listeners are all that most requests cost. Express gives every response a shape of its
    // own, so that replacing its `end` is dear.
    const connection = isHttp1(req) && !Object.hasOwn(res, "end") ? connectionOf(res) : undefined;
    if (connection !== undefined) {
      this.#connection = connection;
      this.#lookLater();
      return;
    }
    res.on("finish", look);
    this.#watchEnd();
    const socket = isHttp1(req) ? req.socket : undefined;
    // Adapters of serverless platforms make requests without a real socket.
    if (typeof socket?.once === "function") {
      this.#stopWatchingSocket = onSocketClose(socket, () => this.#close());
    }
  }

  /** The handler has ended the response, whether or not anybody is there to read it. */
  get ended(): boolean {
    return this.#ended || this.#res.writableEnded;
  }

  /** Nobody is there any more. */
  get closed(): boolean {
    return this.#closed;
  }

  /**
   * Whether nothing will happen to the response any more once the work is done. Not while somebody
   * further out holds its end back, as express-session does until the session is saved.
   */
  get isOver(): boolean {
    return this.ended || (this.#closed && !this.#endCalled);
  }

  stop(): void {
    looks.clear(this);
    this.#stopWatchingSocket?.();
    this.#stopWatchingSocket = undefined;
  }

  /** Not once its connection has closed: an abandoned response would be kept for ever. */
  #lookLater(): void {
    if (this.#connection?.destroyed === false) looks.set(this, performance.now() + lookEveryMs);
  }

  override onDue(): void {
    if (this.#res.writableEnded) {
      this.#end();
      return;
    }
    // Whatever is answered now will not be read.
    if (this.#connection?.writable === false) this.#close();
    this.#lookLater();
  }

  #watchEnd(): void {
    const res = this.#res;
    // Somebody further out has replaced it already, and may end the response later than the call.
    const mayDefer = Object.hasOwn(res, "end");
    const end = res.end;
    const watch = this;
    res.end = function endSeen(this: ServerResponse, ...args: never[]) {
      if (mayDefer) watch.#endCalled = true;
      // Never delayed, and called first: it may throw, and then nothing has ended.
      const result = Reflect.apply(end, this, args);
      // On a closed HTTP/2 stream the call itself is the only trace that it leaves.
      if (!mayDefer || res.writableEnded) watch.#end();
      else if (watch.#closed) watch.#waitForHeldBackEnd();
      return result;
    } as typeof res.end;
  }

  #look(): void {
    // HTTP/2 emits `finish` for a stream that was reset.
    if (this.#res.writableEnded) this.#end();
    else this.#close();
  }

  #end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#changed();
  }

  #close(): void {
    if (this.#closed) return;
    this.#closed = true;
    looks.clear(this);
    this.#changed();
    if (this.#endCalled) this.#waitForHeldBackEnd();
  }

  #waitForHeldBackEnd(): void {
    setTimeout(() => this.#end(), heldBackMs).unref();
  }
}

/** Whether the client has left, as far as can be seen without an event. */
export function isDisconnected(req: IncomingMessage, res: ServerResponse): boolean {
  if (isHttp1(req)) return req.socket?.destroyed === true;
  // The request and the response of HTTP/2 are two faces of one stream.
  const { stream } = res as {
    stream?: { readonly closed?: boolean; readonly destroyed?: boolean };
  };
  return stream?.closed === true || stream?.destroyed === true;
}

function isHttp1(req: IncomingMessage): boolean {
  return req.httpVersionMajor < 2;
}

/** None while it is queued behind a pipelined one, or in the hands of a serverless platform. */
function connectionOf(res: ServerResponse): Socket | undefined {
  return res.socket instanceof Socket ? res.socket : undefined;
}

/** One listener a socket: a client may have many pipelined requests on one. */
const watchers = new WeakMap<Socket, Set<() => void>>();

function onSocketClose(socket: Socket, listener: () => void): () => void {
  let listeners = watchers.get(socket);
  if (listeners === undefined) {
    const made = new Set<() => void>();
    listeners = made;
    watchers.set(socket, made);
    socket.once("close", () => {
      for (const each of made) each();
    });
  }
  const here = listeners;
  here.add(listener);
  return () => here.delete(listener);
}
