import { once } from "node:events";
import { connect, type Socket } from "node:net";

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
      const head = pending.indexOf("\r\n\r\n");
      if (head < 0) return;
      const length = Number(/^content-length: (\d+)/im.exec(pending)?.[1] ?? Number.NaN);
      if (Number.isNaN(length)) throw new Error(`An answer without a length:\n${pending}`);
      if (pending.length < head + 4 + length) return;
      const status = Number(pending.slice(9, 12));
      pending = pending.slice(head + 4 + length);
      this.#answered(status);
    });
    return socket;
  }
}
