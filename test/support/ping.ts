import { createConnection } from "node:net";

/**
 * Whether a server on this port answers PING, within a second. "Not authenticated" is an answer too;
 * "still loading" is not.
 */
export function answersPing(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = createConnection({ port, host: "127.0.0.1" });
    const done = (answered: boolean): void => {
      socket.destroy();
      resolve(answered);
    };
    socket.setTimeout(1_000, () => done(false));
    socket.once("error", () => done(false));
    socket.once("close", () => done(false));
    socket.once("data", (reply) => done(/^\+PONG|^-NOAUTH/.test(reply.toString())));
    socket.write("PING\r\n");
  });
}
