import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";

/** A way to Redis that reads nothing, for more traffic than the proxy of the tests can parse. */
export interface Pipe {
  readonly port: number;
  /** Redis has executed, and none of the open connections hears of it; reset after half a second. */
  loseReplies(): void;
  /** New connections lead to this port. */
  leadTo(port: number): void;
  stop(): void;
}

/** @param lagMs how late everything arrives that the server says; what is on its way dies with it. */
export async function startPipe(firstTarget: number, lagMs = 0): Promise<Pipe> {
  let target = firstTarget;
  const open = new Map<Socket, { isTorn: boolean; end(): void }>();
  const server = createServer((client) => {
    const upstream = connect(target, "127.0.0.1");
    const connection = {
      isTorn: false,
      end() {
        connection.isTorn = true;
        open.delete(client);
        for (const socket of [client, upstream]) socket.resetAndDestroy();
      },
    };
    open.set(client, connection);
    const say = (chunk: Buffer) => void (connection.isTorn || client.write(chunk));
    client.on("data", (chunk) => upstream.write(chunk));
    upstream.on("data", (chunk) => (lagMs === 0 ? say(chunk) : setTimeout(say, lagMs, chunk)));
    for (const socket of [client, upstream]) {
      socket.setNoDelay(true);
      socket.on("error", () => {}).on("close", connection.end);
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    loseReplies() {
      for (const connection of open.values()) {
        connection.isTorn = true;
        setTimeout(connection.end, 500);
      }
    },
    leadTo(port) {
      target = port;
    },
    stop() {
      server.close();
      for (const { end } of [...open.values()]) end();
    },
  };
}
