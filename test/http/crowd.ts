import { once } from "node:events";
import { connect, type Socket } from "node:net";

/** A raw connection that is kept open, for a load that costs little beside the server. */
export async function openRaw(port: number): Promise<Socket> {
  const socket = connect({ port, host: "127.0.0.1", noDelay: true });
  await once(socket, "connect");
  return socket.setEncoding("latin1");
}

/** Writes a request, and resolves with the status of its answer. */
export function askRaw(socket: Socket, request: string): Promise<string> {
  socket.write(request);
  return new Promise((resolve, reject) => {
    let text = "";
    const more = (chunk: string): void => {
      text += chunk;
      if (text.length < lengthOf(text)) return;
      socket.off("data", more);
      socket.off("close", closed);
      resolve(text.slice(9, 12));
    };
    const closed = (): void => reject(new Error("the server closed a connection"));
    socket.on("data", more);
    socket.once("close", closed);
  });
}

/** How long the answer is that the text begins with, as every answer here says. */
function lengthOf(text: string): number {
  const head = text.indexOf("\r\n\r\n");
  if (head < 0) return Number.POSITIVE_INFINITY;
  const length = /\r\ncontent-length: (\d+)/i.exec(text)?.[1];
  if (length === undefined) throw new Error(`an answer without a length: ${text}`);
  return head + 4 + Number(length);
}

/**
 * Many connections that submit at the same moment. An HTTP client would spend more time than the
 * servers do, so these bytes are written and the answers read by hand.
 */
export class Crowd {
  readonly #sockets: Socket[] = [];
  #answered: (status: number) => void = () => {};

  /** So many connections to each port. */
  static async open(ports: readonly number[], each: number): Promise<Crowd> {
    const crowd = new Crowd();
    // Alternating, so that no process is asked first for all of its share.
    const targets = Array.from({ length: each }, () => ports).flat();
    for (const port of targets) crowd.#sockets.push(crowd.#connect(port));
    await Promise.all(crowd.#sockets.map((socket) => once(socket, "connect")));
    return crowd;
  }

  get size(): number {
    return this.#sockets.length;
  }

  /** Writes the same request on every connection. `answered` is called with the status of each answer. */
  submit(request: string, answered: (status: number) => void): void {
    this.#answered = answered;
    for (const socket of this.#sockets) socket.write(request, "latin1");
  }

  close(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  #connect(port: number): Socket {
    const socket = connect(port, "127.0.0.1").setNoDelay(true);
    let pending = "";
    socket.on("error", () => {});
    socket.on("data", (chunk: Buffer) => {
      pending += chunk.toString("latin1");
      const length = lengthOf(pending);
      if (pending.length < length) return;
      const status = Number(pending.slice(9, 12));
      pending = pending.slice(length);
      this.#answered(status);
    });
    return socket;
  }
}
