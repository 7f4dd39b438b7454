import type { ServerResponse } from "node:http";
import { Socket } from "node:net";

/**
 * Calls `end`, and lets the bytes that it leaves on the connection go when this turn's code has run
 * to its end and what it asked the store for has been written. Where the order ends with its answer,
 * the record is so on its way first: a client that has seen its answer and asks again finds it.
 * Nothing is waited for but code that runs at this moment.
 *
 * Only on HTTP/1. HTTP/2 writes later by itself, and so does a response behind a pipelined one.
 */
export function endBehindRecord<Result>(res: ServerResponse, end: () => Result): Result {
  const { socket } = res;
  if (!(socket instanceof Socket)) return end();
  const { uncork } = socket;
  // Within `end`, Node.js uncorks the connection completely.
  socket.uncork = stayCorked;
  try {
    return end();
  } finally {
    socket.uncork = uncork;
    // Once more, because a `write` before has left a tick that uncorks.
    socket.cork();
    process.nextTick(inOneTick, socket);
  }
}

function stayCorked(): void {}

/** A handler that returns now has its complete written in the next tick. */
function inOneTick(socket: Socket): void {
  process.nextTick(letGo, socket);
}

function letGo(socket: Socket): void {
  while (socket.writableCorked > 0) socket.uncork();
}
