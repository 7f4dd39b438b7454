import { connect as connectHttp2, constants } from "node:http2";
import { connect, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import type { Random } from "../simulation/time/random.ts";
import type { HandlerName } from "./handlers.ts";

/** One request, and how its handler answers. */
interface Order {
  readonly user: string;
  readonly key: string;
  readonly handler: HandlerName;
  readonly workMs: number;
  readonly body: "none" | "parsed" | "unread" | "cut off";
}

/** The requests of one connection, and how its client behaves. */
export interface Visit {
  readonly orders: readonly Order[];
  readonly reads: boolean;
  /** The share of the bytes that is written at once, and the share that is written at all. */
  readonly firstShare: number;
  readonly writtenShare: number;
  /** Whether it stays until an order of it has begun, or another answer could have come. */
  readonly isPatient: boolean;
  /** For how long it stays then. */
  readonly stayMs: number;
  readonly leaves: "destroy" | "reset" | "half-close" | "cancel" | "close";
}

export function planVisit(
  users: readonly [string, string],
  handlers: readonly HandlerName[],
  random: Random,
): Visit {
  const orders = Array.from({ length: random.pick([1, 1, 2, 3]) }, (): Order => {
    return {
      user: random.pick([users[0], users[0], users[1]]),
      key: random.pick(["cart 1", "cart 2"]),
      handler: random.pick(handlers),
      workMs: random.pick([0, 1, 5, 20, 50, 100]),
      body: random.pick(["none", "parsed", "unread", "unread", "cut off"]),
    };
  });
  return {
    orders,
    reads: random.next() < 0.6,
    firstShare: random.next(),
    writtenShare: random.next() < 0.15 ? random.next() : 1,
    isPatient: random.next() < 0.8,
    stayMs: random.pick([0, 1, 2, 5, 10, 20, 50]),
    leaves: random.pick(["destroy", "reset", "half-close", "cancel", "close"]),
  };
}

/** How long a patient client waits that may never get an answer, or does not read it. */
const patienceMs = 300;
/** How long one waits whose answer will come, on a machine that is busy, too. */
const boundMs = 30_000;

/** Waits as long as the client stays, which wants nothing more when this is resolved. */
type Stay = (answered: Promise<unknown>) => Promise<void>;

/**
 * Resolves when the client wants nothing any more. Its connection may stay open until the returned
 * function is called, as that of a stream that was reset does.
 *
 * @param begun resolves when an order of the visit has begun.
 */
export async function visit(
  http: 1 | 2,
  port: number,
  plan: Visit,
  begun: Promise<void>,
): Promise<() => void> {
  const socket = connect(port, "127.0.0.1").setNoDelay(true);
  socket.on("error", () => {});
  const isWhole = plan.writtenShare === 1 && plan.orders.every(({ body }) => body !== "cut off");
  const patience = plan.reads && isWhole ? boundMs : patienceMs;
  const stay = async (answered: Promise<unknown>) => {
    const bored = sleep(patience, undefined, { ref: false });
    if (plan.isPatient) await Promise.race([begun, answered, bored]);
    await sleep(plan.stayMs);
  };
  await (http === 1 ? visitOnHttp1(socket, plan, stay) : visitOnHttp2(socket, plan, stay));
  return () => socket.destroy();
}

const bodies: Record<Order["body"], readonly [type: string, text: string, length: number]> = {
  none: ["text/plain", "", 0],
  parsed: ["application/json", "[1]", 3],
  unread: ["application/octet-stream", "[1]", 3],
  "cut off": ["application/json", "[1", 3],
};

function headersOf({ body, handler, key, user, workMs }: Order): Record<string, string> {
  const headers = { "x-user": user, "x-key": key, "x-handler": handler, "x-work-ms": `${workMs}` };
  return { ...headers, "content-type": bodies[body][0], "content-length": `${bodies[body][2]}` };
}

async function visitOnHttp1(socket: Socket, plan: Visit, stay: Stay): Promise<void> {
  const answered = new Promise((resolve) => {
    if (plan.reads) socket.once("data", resolve).resume();
    socket.once("close", resolve);
  });
  const text = plan.orders.map(bytesOf).join("");
  const written = text.slice(0, Math.ceil(plan.writtenShare * text.length));
  const first = Math.ceil(plan.firstShare * written.length);
  socket.write(written.slice(0, first));
  await sleep(1);
  socket.write(written.slice(first));
  await stay(answered);
  if (plan.leaves === "destroy") socket.destroy();
  else if (plan.leaves === "reset") socket.resetAndDestroy();
  else {
    socket.end();
    await sleep(50);
    socket.destroy();
  }
}

function bytesOf(order: Order): string {
  const lines = Object.entries(headersOf(order)).map(([name, value]) => `${name}: ${value}\r\n`);
  return `POST /orders HTTP/1.1\r\nHost: shop\r\n${lines.join("")}\r\n${bodies[order.body][1]}`;
}

async function visitOnHttp2(socket: Socket, plan: Visit, stay: Stay): Promise<void> {
  const session = connectHttp2("http://127.0.0.1", { createConnection: () => socket });
  session.on("error", () => {});
  const streams = plan.orders.map((order) => {
    const stream = session.request({ ":method": "POST", ":path": "/orders", ...headersOf(order) });
    stream.on("error", () => {});
    if (plan.reads) stream.resume();
    if (order.body === "cut off") stream.write(bodies[order.body][1]);
    else stream.end(bodies[order.body][1]);
    return stream;
  });
  // Answered or ended.
  await stay(
    Promise.race(
      streams.map(
        (stream) =>
          new Promise((resolve) => {
            stream.once("response", resolve).once("close", resolve);
          }),
      ),
    ),
  );
  if (plan.leaves === "destroy") for (const stream of streams) stream.destroy();
  else if (plan.leaves === "cancel") {
    for (const stream of streams) stream.close(constants.NGHTTP2_CANCEL);
  } else if (plan.leaves === "reset") socket.resetAndDestroy();
  else {
    if (plan.leaves === "close") session.close();
    else socket.end();
    await sleep(50);
    session.destroy();
  }
}
