import { type ClientRequest, type IncomingMessage, request } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { type Order, textOf } from "./shop.ts";

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

/** In a word what a client was told; a number is the status of a refusal or an error. */
export type Told =
  | "first answer"
  | "new order"
  | "another user's answer"
  | "another payload's answer"
  | "altered answer"
  | "empty answer"
  | "no answer"
  | number;

/** A success that is not the answer to what this client asked for. */
const wrongAnswers: readonly Told[] = [
  "another user's answer",
  "another payload's answer",
  "altered answer",
  "empty answer",
];

export function isWrong(told: Told): boolean {
  return wrongAnswers.includes(told);
}

/** Worth asking again: in flight, or the shop is in trouble. */
export function isRefusal(told: Told): boolean {
  return told === "no answer" || told === 409 || (typeof told === "number" && told >= 500);
}

/** More than one client can cause within its patience. */
const mostRuns = 20;

/**
 * Reads a reply to `asked`. `others` is what else was asked for under the same key: a success that
 * is theirs is told as such.
 */
export function toldBy(reply: Reply, asked: Asked, others: readonly Asked[] = []): Told {
  if ("failure" in reply) return "no answer";
  if (reply.status >= 300) return reply.status;
  if (reply.body === "") return "empty answer";
  for (const one of [asked, ...others]) {
    const run = runIn(reply, one);
    if (run === undefined) continue;
    if (one.user !== asked.user) return "another user's answer";
    if (one.order !== asked.order) return "another payload's answer";
    return run === 1 ? "first answer" : "new order";
  }
  return "altered answer";
}

/** Which run of the handler made exactly this answer: each run makes another order. */
function runIn(
  reply: Exclude<Reply, { failure: string }>,
  { order, user }: Asked,
): number | undefined {
  for (let run = 1; run <= mostRuns; run++) {
    const { type, body } = textOf(order, user, run);
    if (reply.status === 201 && reply.type === type && reply.body === body) return run;
  }
  return undefined;
}
