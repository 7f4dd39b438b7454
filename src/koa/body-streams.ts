import { Readable } from "node:stream";

/** What of a stream is looked at, so that old streams of the registry fit. */
interface NodeStream {
  readonly closed?: boolean;
  pipe(target: unknown): unknown;
  once(event: string, listener: () => void): unknown;
}

/** Registered, so that two copies of the package watch one response together. */
const watchingOf: unique symbol = Symbol.for("submit-lock.body");

/** A response object whose `body` may be watched. */
interface Watched {
  body: unknown;
  [watchingOf]?: {
    readonly response: Watched;
    /** What somebody else has put there. */
    readonly outer: PropertyDescriptor | undefined;
    readonly watches: BodyStreams[];
  };
}

/**
 * The same two functions for all responses: with functions of its own, each response would be an
 * object of a shape of its own, and whatever reads or writes it would be slow.
 */
const watchedBody: PropertyDescriptor & ThisType<Watched> = {
  configurable: true,
  get() {
    const { response, outer } = this[watchingOf] as NonNullable<Watched[typeof watchingOf]>;
    if (outer !== undefined) return outer.get ? outer.get.call(response) : outer.value;
    return Reflect.get(Object.getPrototypeOf(response), "body", response);
  },
  set(body: unknown) {
    const { response, outer, watches } = this[watchingOf] as NonNullable<
      Watched[typeof watchingOf]
    >;
    if (outer?.set) outer.set.call(response, body);
    else Reflect.set(Object.getPrototypeOf(response), "body", body, response);
    for (const watch of watches) watch.see(body);
  },
};

/**
 * The streams that become the `body` of a response object, such as that of Koa. A later middleware
 * may replace one by another that reads from it, as koa-compress does, and it is the first that
 * still makes the order: so all of them count.
 */
export class BodyStreams {
  readonly #streams = new Set<NodeStream>();
  #hasWebStream = false;

  constructor(response: Watched) {
    this.see(response.body);
    const watching = Object.hasOwn(response, watchingOf) ? response[watchingOf] : undefined;
    if (watching !== undefined) {
      // Another guard further out is watching, too.
      watching.watches.push(this);
      return;
    }
    const outer = Object.getOwnPropertyDescriptor(response, "body");
    response[watchingOf] = { response, outer, watches: [this] };
    Object.defineProperty(response, "body", watchedBody);
  }

  /** A web stream does not tell when it is at its end. */
  get isUnseen(): boolean {
    return this.#hasWebStream;
  }

  /**
   * Calls back when every stream is at its end.
   *
   * @param disconnected whether the client has left, and nobody wants the body any more.
   */
  whenMade(disconnected: boolean, made: () => void): void {
    const open = new Set<NodeStream>();
    for (const stream of this.#streams) {
      if (stream.closed === true) continue;
      open.add(stream);
      // Koa does so too on HTTP/1; on HTTP/2 it would begin to read it, and so to make the order.
      if (disconnected && isUntouched(stream)) stream.destroy();
    }
    if (open.size === 0) made();
    for (const stream of open) {
      const ended = () => {
        if (open.delete(stream) && open.size === 0) made();
      };
      // After an abort `close` waits for a generator that is still at work; old streams may lack it.
      for (const event of ["close", "end", "error"]) stream.once(event, ended);
    }
  }

  see(body: unknown): void {
    if (body instanceof ReadableStream || body instanceof Response) this.#hasWebStream = true;
    else if (isNodeStream(body)) this.#streams.add(body);
  }
}

function isNodeStream(body: unknown): body is NodeStream {
  return typeof (body as NodeStream | null | undefined)?.pipe === "function";
}

function isUntouched(stream: NodeStream): stream is NodeStream & Readable {
  return stream instanceof Readable && !Readable.isDisturbed(stream);
}
