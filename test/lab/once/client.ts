import { type ClientRequest, type IncomingMessage, request } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import type { Order } from "./order.ts";

/** Who asks for what, under which key. */
export interface Asked {
  readonly order: Order;
  readonly user: string;
  readonly key: string;
}

/** What a client got; `failure`: no whole answer came. */
export type Reply =
  | { readonly status: number; readonly type: string; readonly body: string }
  | { readonly failure: string };

const patienceMs = 5_000;

/** Each request on a connection of its own, as from another device or a browser that was closed. */
export function post(port: number, asked: Asked): Promise<Reply> {
  return new Promise((resolve) => {
    const req = open(port, asked);
    const late = setTimeout(() => req.destroy(new Error("no answer")), patienceMs);
    const end = (reply: Reply): void => {
      clearTimeout(late);
      resolve(reply);
    };
    req.once("error", (error) => end({ failure: error.message }));
    req.once("response", (res: IncomingMessage) => {
      const chunks: Buffer[] = [];
      res.on("data", (chunk: Buffer) => chunks.push(chunk));
      res.once("error", (error) => end({ failure: error.message }));
      res.once("end", () => {
        const type = (res.headers["content-type"] ?? "").split(";")[0] as string;
        end({ status: res.statusCode ?? 0, type, body: Buffer.concat(chunks).toString() });
      });
    });
  });
}

/** The client leaves `ms` after it has sent the request, before any answer. */
export async function postAndLeave(port: number, asked: Asked, ms: number): Promise<void> {
  const req = open(port, asked);
  req.once("error", () => {});
  await new Promise((resolve) => req.once("finish", resolve).once("close", resolve));
  await sleep(ms);
  req.destroy();
}

function open(port: number, { order, user, key }: Asked): ClientRequest {
  const body = JSON.stringify(order);
  const req = request({
    host: "127.0.0.1",
    port,
    method: "POST",
    path: "/orders",
    agent: false,
    headers: {
      "content-type": "application/json",
      "content-length": Buffer.byteLength(body),
      "idempotency-key": key,
      "x-user-id": user,
    },
  });
  req.end(body);
  return req;
}
