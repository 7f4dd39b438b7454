import { Readable } from "node:stream";
import type { Work } from "./settlement.ts";

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

  /**
   * Reports the work as done when every stream is at its end. A web stream does not tell when it is.
   *
   * @param disconnected whether the client has left: a body that nobody has begun to read then, nobody will.
   */
  whenMade(work: Work, disconnected: boolean): void {
    if (this.#hasWebStream) {
      work.unseen();
      return;
    }
    const open = new Set<NodeStream>();
    for (const stream of this.#streams) {
      if (stream.closed !== true && !(disconnected && isUntouched(stream))) open.add(stream);
    }
    if (open.size === 0) work.done();
    for (const stream of open) {
      const ended = () => {
        open.delete(stream);
        if (open.size === 0) work.done();
      };
      // After an abort `close` waits for a generator that is still at work; old streams may lack it.
      for (const event of ["close", "end", "error"]) stream.once(event, ended);
    }
  }

  #see(body: unknown): void {
    if (body instanceof ReadableStream) this.#hasWebStream = true;
    else if (isNodeStream(body)) this.#streams.add(body);
  }
}

function isNodeStream(body: unknown): body is NodeStream {
  return typeof (body as NodeStream | null | undefined)?.pipe === "function";
}

function isUntouched(stream: NodeStream): boolean {
  return stream instanceof Readable && !Readable.isDisturbed(stream);
}
