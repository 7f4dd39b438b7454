import { once } from "node:events";
import { type AddressInfo, createConnection, createServer, type Socket } from "node:net";

/** A line to Redis that can be cut and mended, so that the page can show what happens then. */
export class RedisLine {
  readonly url: string;
  readonly #sockets: Set<Socket>;
  readonly #close: () => void;
  #isAway = false;

  private constructor(url: string, sockets: Set<Socket>, close: () => void) {
    this.url = url;
    this.#sockets = sockets;
    this.#close = close;
  }

  /** @param url `redis://`: a line cannot be put into TLS. */
  static async to(url: string): Promise<RedisLine> {
    const { hostname, port } = new URL(url);
    const sockets = new Set<Socket>();
    let line: RedisLine | undefined;
    const server = createServer((client) => {
      const redis = createConnection(Number(port || 6379), hostname || "127.0.0.1");
      for (const [from, to] of [
        [client, redis],
        [redis, client],
      ] as const) {
        sockets.add(from);
        from.on("data", (chunk) => void to.write(chunk));
        from.once("close", () => {
          sockets.delete(from);
          to.destroy();
        });
        from.on("error", () => {});
        if (line?.isAway) from.pause();
      }
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const own = new URL(url);
    own.hostname = "127.0.0.1";
    own.port = String((server.address() as AddressInfo).port);
    line = new RedisLine(own.href, sockets, () => server.close());
    return line;
  }

  get isAway(): boolean {
    return this.#isAway;
  }

  /** Away: connections stay open, and nothing comes through, in neither direction. */
  setAway(isAway: boolean): void {
    this.#isAway = isAway;
    for (const socket of this.#sockets) {
      if (isAway) socket.pause();
      else socket.resume();
    }
  }

  close(): void {
    this.#close();
    for (const socket of this.#sockets) socket.destroy();
  }
}
