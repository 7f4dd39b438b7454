import type { Socket } from "node:net";
import { serveJobs } from "../../../bench/process/serve.ts";
import { askRaw, openRaw } from "../../http/crowd.ts";
import type { Order } from "./shop.ts";

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
  const sockets = await Promise.all(Array.from({ length: connections }, () => openRaw(port)));
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

async function ask(socket: Socket, request: string): Promise<void> {
  const status = await askRaw(socket, request);
  // Anything else would be another measurement.
  if (status !== "201") throw new Error(`expected 201, got ${status}`);
}
