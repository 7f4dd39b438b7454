import type { Socket } from "node:net";
import { askRaw, openRaw } from "../test/http/crowd.ts";
import { pin, Samples, serve } from "./worker.ts";

export interface LoadJob {
  readonly port: number;
  readonly seconds: number;
  /** Requests a second, at random times; without it, each connection asks as soon as it was answered. */
  readonly perSecond?: number;
  /** The `Idempotency-Key`: a new one for each request, or one user's same one for all. */
  readonly key?: "new" | "same";
}

const connections = 64;
pin(1);
let users = 0;

/** The clients of a shop, in a process of their own. Each order is another user's. */
serve<LoadJob>(async ({ key, perSecond, port, seconds }) => {
  const samples = new Samples();
  let answers = 0;
  const order = async (socket: Socket): Promise<void> => {
    const user = key === "same" ? "one" : `u${users++ % 1_000_000}`;
    const id = key === undefined ? "" : `Idempotency-Key: ${key === "new" ? `${user}-1` : "1"}\r\n`;
    const from = performance.now();
    const status = await askRaw(
      socket,
      `POST /orders HTTP/1.1\r\nHost: shop\r\nX-User-Id: ${user}\r\n${id}Content-Length: 0\r\n\r\n`,
    );
    if (`${status}` !== "201") throw new Error(`answered ${status}`);
    samples.add(performance.now() - from);
    answers++;
  };
  const open = Array.from({ length: connections }, () => openRaw(port));
  const sockets = await Promise.all(open);
  const start = performance.now();
  const end = start + seconds * 1_000;
  if (perSecond === undefined) {
    const oneAfterTheOther = async (socket: Socket) => {
      while (performance.now() < end) await order(socket);
    };
    await Promise.all(sockets.map(oneAfterTheOther));
  } else await paced(perSecond, end, sockets, order);
  const elapsedMs = performance.now() - start;
  for (const socket of sockets) socket.destroy();
  return { "a second": (answers / elapsedMs) * 1_000, answers, "p50 ms": samples.percentile(50) };
});

/** A request whenever one is due, whether or not the ones before are answered. */
async function paced(
  perSecond: number,
  end: number,
  sockets: readonly Socket[],
  order: (socket: Socket) => Promise<void>,
): Promise<void> {
  const idle = [...sockets];
  const underWay = new Set<Promise<void>>();
  for (let due = performance.now(); performance.now() < end; ) {
    const socket = performance.now() >= due ? idle.shift() : undefined;
    if (socket === undefined) {
      await new Promise((resolve) => setTimeout(resolve, 1));
      continue;
    }
    // Random gaps, so that nothing is in step with a timer.
    due += (1_000 / perSecond) * 2 * Math.random();
    const request = order(socket).then(() => {
      idle.push(socket);
      underWay.delete(request);
    });
    underWay.add(request);
  }
  await Promise.all(underWay);
}
