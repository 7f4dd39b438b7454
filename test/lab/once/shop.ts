import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import express, { type ErrorRequestHandler, type RequestHandler } from "express";
import { Redis } from "ioredis";

/** The body of `POST /orders`. A retry sends the same one. */
export interface Order {
  /** The handler's runs are counted under this name. */
  readonly cart: string;
  readonly item: string;
  /** How the handler answers; `throw`: the first run throws, the others answer as `json`. */
  readonly answer: "json" | "large" | "stream" | "throw";
  readonly workMs: number;
  /** How long the first run works, where it is another time. */
  readonly firstRunMs?: number;
  /** Neither counted nor waited for: the order of a measurement of speed. */
  readonly uncounted?: boolean;
}

export interface Receipt {
  readonly order: string;
  readonly user: string;
  readonly item: string;
  readonly note?: string;
}

interface Text {
  readonly type: "application/json" | "text/plain";
  readonly body: string;
}

/** Also outside ASCII, so that a body that was decoded and encoded again would show. */
const largeNote = "Größe 42, grün. ".repeat(5_400);

/** Each run of the handler makes another order, so its answer tells whose and which one it is. */
export function receiptOf({ cart, item, answer }: Order, user: string, run: number): Receipt {
  const receipt = { order: `${cart}/${run}`, user, item };
  return answer === "large" ? { ...receipt, note: largeNote } : receipt;
}

/** The three writes of an order that is answered as a stream. */
export function linesOf(order: Order, user: string, run: number): string[] {
  return Object.entries(receiptOf(order, user, run)).map(([name, value]) => `${name}: ${value}\n`);
}

/** What the client has to receive, whatever stands before the handler. */
export function textOf(order: Order, user: string, run: number): Text {
  return order.answer === "stream"
    ? { type: "text/plain", body: linesOf(order, user, run).join("") }
    : { type: "application/json", body: JSON.stringify(receiptOf(order, user, run)) };
}

export const runsKey = (cart: string): string => `runs:${cart}`;

/** The handler's runs are counted beside the library's keys, in another database of the same server. */
export const countsDb = 1;

/** A way to protect `POST /orders`, as the laboratory knows it: a shop in a process of its own. */
export interface Library {
  readonly name: string;
  /** How it is set up, for the page. */
  readonly settings: string;
  /** What is to be said of its result in a scenario, by the scenario's name. */
  readonly notes?: Readonly<Record<string, string>>;
  /** Resolves when the shop listens on 127.0.0.1:`port`. What it must not forget is in that Redis. */
  start(port: number, redisUrl: string): Promise<void>;
}

/** What a shop says of itself when it listens. */
export type Hello = Pick<Library, "name" | "settings" | "notes">;

/** What an order does, whatever framework it is called from. */
export class Work {
  readonly #counts: Redis;

  constructor(redisUrl: string) {
    this.#counts = new Redis(redisUrl, { db: countsDb });
  }

  /** Resolves with the number of this run of the order. */
  async run(order: Order): Promise<number> {
    if (order.uncounted) return 1;
    const run = await this.#counts.incr(runsKey(order.cart));
    await sleep(run === 1 ? (order.firstRunMs ?? order.workMs) : order.workMs);
    if (order.answer === "throw" && run === 1) throw new Error("The warehouse does not answer.");
    return run;
  }
}

/** An Express shop; `protect` gives what stands on the route, the handler included. */
export async function serveShop(
  port: number,
  redisUrl: string,
  protect: (placeOrder: RequestHandler) => RequestHandler[],
): Promise<void> {
  const app = express();
  app.use(express.json());
  app.post("/orders", ...protect(placeOrderWith(new Work(redisUrl))));
  app.use(answerError);
  const server = createServer(app as RequestListener).listen(port, "127.0.0.1");
  await once(server, "listening");
}

function placeOrderWith(work: Work): RequestHandler {
  return async (req, res) => {
    const order = req.body as Order;
    const user = req.get("x-user-id") ?? "";
    const run = await work.run(order);
    res.status(201);
    if (order.answer !== "stream") {
      res.json(receiptOf(order, user, run));
      return;
    }
    res.type("text/plain");
    for (const line of linesOf(order, user, run)) {
      res.write(line);
      await sleep(5);
    }
    res.end();
  };
}

/**
 * As most shops have one: it answers with `res.json`, where the libraries that wrap `res.send` see
 * it. Express's own would answer past them.
 */
const answerError: ErrorRequestHandler = (error: unknown, _req, res, next) => {
  if (res.headersSent) {
    next(error);
    return;
  }
  const { status } = error as { status?: number };
  res.status(status ?? (res.statusCode >= 400 ? res.statusCode : 500));
  res.json({ error: error instanceof Error ? error.message : String(error) });
};
