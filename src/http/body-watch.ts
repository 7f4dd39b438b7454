import { Readable } from "node:stream";

/** What of a stream is looked at, so that old streams of the registry fit. */
interface NodeStream {
  readonly closed?: boolean;
  pipe(target: unknown): unknown;
  once(event: string, listener: () => void): unknown;
}

/**
 * The streams that become the `body` of a response object, such as that of Koa. A later middleware
 * may replace one by another that reads from it, as koa-compress does, and it is the first that
 * still makes the order: so all of them count.
 */
export class BodyWatch {
  readonly #streams = new Set<NodeStream>();
  #hasWebStream = false;

  constructor(response: { body: unknown }) {
    // Another guard further out may be watching, too.
    const outer = Object.getOwnPropertyDescriptor(response, "body");
    const prototype = Object.getPrototypeOf(response);
    this.#see(response.body);
    Object.defineProperty(response, "body", {
      configurable: true,
      get: () => (outer?.get ? outer.get() : Reflect.get(prototype, "body", response)),
      set: (body: unknown) => {
        if (outer?.set) outer.set(body);
        else Reflect.set(prototype, "body", body, response);
        this.#see(body);
      },
    });
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

  #see(body: unknown): void {
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
