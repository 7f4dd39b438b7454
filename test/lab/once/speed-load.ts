import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { serveJobs } from "../../../bench/process/serve.ts";
import type { Order } from "./order.ts";

/** `replay`: each connection repeats one order, which it has placed before the measurement. */
export interface SpeedJob {
  readonly port: number;
  readonly connections: number;
  readonly seconds: number;
  readonly kind: "fresh" | "replay";
}

export interface SpeedResult {
  readonly requestsPerSecond: number;
}

/** The clients of a measurement, in a process of their own: raw sockets that are kept open. */
let orders = 0;

serveJobs<SpeedJob, SpeedResult, null>(null, async ({ port, connections, seconds, kind }) => {
  const sockets = await Promise.all(Array.from({ length: connections }, () => open(port)));
  const own = sockets.map(() => requestFor(orders++));
  // What a library records after its answer must be there before it is asked for.
  if (kind === "replay") {
    await Promise.all(sockets.map((socket, index) => ask(socket, own[index] ?? "")));
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  const start = performance.now();
  const end = start + seconds * 1_000;
  let answers = 0;
  const clients = sockets.map(async (socket, index) => {
    while (performance.now() < end) {
      await ask(socket, kind === "replay" ? (own[index] ?? "") : requestFor(orders++));
      answers++;
    }
  });
  await Promise.all(clients);
  const elapsedMs = performance.now() - start;
  for (const socket of sockets) socket.destroy();
  return { requestsPerSecond: (answers / elapsedMs) * 1_000 };
});

async function open(port: number): Promise<Socket> {
  const socket = connect({ port, host: "127.0.0.1", noDelay: true });
  await once(socket, "connect");
  return socket.setEncoding("latin1");
}

function requestFor(number: number): string {
  const order: Order = {
    cart: `cart-${number}`,
    item: "bicycle",
    answer: "json",
    workMs: 0,
    uncounted: true,
  };
  const body = JSON.stringify(order);
  const head = [
    "POST /orders HTTP/1.1",
    "Host: shop",
    "Content-Type: application/json",
    `Content-Length: ${body.length}`,
    `Idempotency-Key: key-of-${order.cart}`,
    `X-User-Id: user-of-${order.cart}`,
  ];
  return `${head.join("\r\n")}\r\n\r\n${body}`;
}

function ask(socket: Socket, request: string): Promise<void> {
  socket.write(request);
  return new Promise((resolve, reject) => {
    let text = "";
    const more = (chunk: string): void => {
      text += chunk;
      if (!isWhole(text)) return;
      socket.off("data", more);
      socket.off("close", closed);
      // Anything else would be another measurement.
      if (text.slice(9, 12) === "201") resolve();
      else reject(new Error(`expected 201, got ${text}`));
    };
    const closed = (): void => reject(new Error("the shop closed a connection"));
    socket.on("data", more);
    socket.once("close", closed);
  });
}

/** Every answer of these routes says how long it is. */
function isWhole(text: string): boolean {
  const head = text.indexOf("\r\n\r\n");
  if (head < 0) return false;
  const length = /\r\ncontent-length: (\d+)/i.exec(text)?.[1];
  if (length === undefined) throw new Error(`an answer without a length: ${text}`);
  return text.length >= head + 4 + Number(length);
}
