import type { ServerResponse } from "node:http";
import { isErrored, Readable } from "node:stream";
import { isNodeStream, type NodeStream, webStreamOf } from "../node/capture.ts";

const watchOf: unique symbol = Symbol("submit-lock.body");

interface Watched {
  body: unknown;
  readonly res: ServerResponse;
  [watchOf]?: {
    readonly response: Watched;
    /** The own property `body` that other middleware had defined on the response, if any. */
    readonly outer: PropertyDescriptor | undefined;
    readonly watchers: BodyStreams[];
  };
}

/** The property `body` of a watched response. All share it, and so keep one hidden class. */
const watchedBody: PropertyDescriptor & ThisType<Required<Watched>> = {
  configurable: true,
  get() {
    const { response, outer } = this[watchOf];
    if (outer !== undefined) return outer.get ? outer.get.call(response) : outer.value;
    return Reflect.get(Object.getPrototypeOf(response), "body", response);
  },
  set(body: unknown) {
    const { response, outer, watchers } = this[watchOf];
    if (outer?.set) outer.set.call(response, body);
    else Reflect.set(Object.getPrototypeOf(response), "body", body, response);
    for (const watcher of watchers) watcher.see(body);
  },
};

/** Every stream that was a response's `body`: one that was replaced may still write the order. */
export class BodyStreams {
  readonly #response: Watched;
  readonly #streams = new Set<NodeStream>();
  readonly #ofWeb = new Set<ReadableStream>();

  constructor(response: Watched) {
    this.#response = response;
    this.see(response.body);
    const watch = Object.hasOwn(response, watchOf) ? response[watchOf] : undefined;
    if (watch !== undefined) {
      watch.watchers.push(this);
      return;
    }
    const outer = Object.getOwnPropertyDescriptor(response, "body");
    response[watchOf] = { response, outer, watchers: [this] };
    Object.defineProperty(response, "body", watchedBody);
  }

  /** A `ReadableStream` or a `Response` was the body, and its work may go on. */
  get isUnseen(): boolean {
    return [...this.#ofWeb].some((stream) => !isErrored(stream as never));
  }

  /**
   * Calls `ended` once, when every stream has ended; at once where there is none.
   * @param isDisconnected whether the client has left, so that nothing reads the body any more.
   * @param ended `hasErrored`: a stream emitted an error. `hasFailed`: the body closed before its
   * end, and Koa 2 leaves the response open.
   */
  whenEnded(
    isDisconnected: boolean,
    ended: (how: { hasFailed: boolean; hasErrored: boolean }) => void,
  ): void {
    const how = { hasFailed: false, hasErrored: false };
    const open = new Set(this.#streams);
    const streamEnded = (stream: NodeStream, hasErrored: boolean): void => {
      if (!open.delete(stream)) return;
      if (hasErrored) how.hasErrored = true;
      if (stream.readableEnded === false && this.#response.body === stream) how.hasFailed = true;
      if (open.size === 0) ended(how);
    };
    if (open.size === 0) ended(how);
    for (const stream of this.#streams) {
      if (stream.closed === true) streamEnded(stream, stream.errored instanceof Error);
      // Destroy a stream that was never read: on HTTP/2 Koa would read it, and it would write the
      // order.
      else if (isDisconnected && stream instanceof Readable) {
        if (!Readable.isDisturbed(stream) && stream.readableFlowing !== true) stream.destroy();
      }
    }
    if (open.size === 0) return;
    // Koa destroys open streams, too, but Koa 2 misses a response that is behind a pipelined one.
    this.#response.res.once("close", () => {
      for (const stream of open) if (stream instanceof Readable) stream.destroy();
    });
    for (const stream of open) {
      // Listen for all three: `close` follows an aborted generator's work, but old streams lack it.
      for (const event of ["close", "end", "error"]) {
        stream.once(event, (error) => streamEnded(stream, error !== undefined));
      }
    }
  }

  see(body: unknown): void {
    const web = webStreamOf(body);
    if (web) this.#ofWeb.add(web);
    else if (isNodeStream(body)) this.#streams.add(body);
  }
}
