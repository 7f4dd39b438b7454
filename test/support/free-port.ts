import { createSocket, type Socket } from "node:dgram";
import { once } from "node:events";
import { createServer } from "node:net";

/** The UDP ports that stand for the TCP ports that this process was given. */
const reserved = new Map<number, Socket>();

/**
 * A port on 127.0.0.1 that nobody listens on, and that no other process of ours is given before it is
 * given back, or this one ends: what listens on it may stop and start again. Below the ports that the
 * system gives to connections, one of which could take it meanwhile.
 */
export async function freePort(): Promise<number> {
  for (let left = 100; ; left--) {
    const port = 20_000 + Math.floor(Math.random() * 12_000);
    try {
      await reserve(port);
      await tryToListen(port).catch((error) => {
        giveBack(port);
        throw error;
      });
      return port;
    } catch (error) {
      if (left === 0) throw error;
    }
  }
}

/** Nobody listens on it any more: it may be anybody's. */
export function giveBack(port: number): void {
  reserved.get(port)?.close();
  reserved.delete(port);
}

/** Nobody needs the UDP port of this number, and the system gives it to one process only. */
async function reserve(port: number): Promise<void> {
  const socket = createSocket("udp4");
  socket.unref();
  socket.bind({ port, address: "127.0.0.1", exclusive: true });
  await once(socket, "listening").catch((error) => {
    socket.close();
    throw error;
  });
  reserved.set(port, socket);
}

/** Somebody who is none of ours may have it. */
async function tryToListen(port: number): Promise<void> {
  const server = createServer().listen(port, "127.0.0.1");
  await once(server, "listening");
  server.close();
  await once(server, "close");
}
