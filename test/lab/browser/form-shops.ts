import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { getRequestListener } from "@hono/node-server";
import Fastify, { type FastifyRequest } from "fastify";
import { Hono } from "hono";
import { submitGuard as fastifyGuard } from "../../../src/fastify/index.ts";
import { submitGuard as fetchGuard } from "../../../src/fetch/index.ts";
import type { SubmitLock } from "../../../src/index.ts";

/** A shop with one customer and a form. `lock` and `once` have an order route each. */
export interface FormShop {
  readonly url: string;
  /** How many forms have arrived. */
  readonly submissions: number;
  /** How many orders are placed, or in the middle of it. */
  readonly orders: number;
  /** No order is placed before. */
  letOrdersEnd(): void;
  close(): void;
}

/** Places an order, and returns the path of its page. */
type PlaceOrder = () => Promise<string>;
type MakeListener = (lock: SubmitLock, userId: () => string, place: PlaceOrder) => RequestListener;

export type Framework = "Hono" | "Fastify";

const listeners: Readonly<Record<Framework, MakeListener>> = {
  Hono(lock, userId, place) {
    const submissionId = async (request: Request) =>
      String((await request.clone().formData()).get("submission") ?? "");
    const handler = async () =>
      new Response(null, { status: 303, headers: { location: await place() } });
    const withLock = fetchGuard({ lock, userId }).protect(handler);
    const idempotency = { submissionId, waitMs: 10_000 };
    const withOnce = fetchGuard({ lock, userId, idempotency }).protect(handler);
    const app = new Hono();
    app.get("/checkout/:protection", (c) => c.html(checkout(c.req.param("protection"))));
    app.get("/orders/:number", (c) => c.html(placed(c.req.param("number"))));
    app.post("/lock", (c) => withLock(c.req.raw));
    app.post("/once", (c) => withOnce(c.req.raw));
    return getRequestListener(app.fetch);
  },

  Fastify(lock, userId, place) {
    const app = Fastify();
    const isForm = "application/x-www-form-urlencoded";
    app.addContentTypeParser(isForm, { parseAs: "string" }, (_request, body, done) =>
      done(null, Object.fromEntries(new URLSearchParams(String(body)))),
    );
    const submissionId = ({ body }: FastifyRequest) =>
      (body as { submission?: string } | undefined)?.submission;
    const idempotency = { submissionId, waitMs: 10_000 };
    type Params = { Params: { protection: string; number: string } };
    app.get<Params>("/checkout/:protection", async ({ params }, reply) =>
      reply.type("text/html").send(checkout(params.protection)),
    );
    app.get<Params>("/orders/:number", async ({ params }, reply) =>
      reply.type("text/html").send(placed(params.number)),
    );
    const withLock = fastifyGuard({ lock, userId });
    app.post(
      "/lock",
      withLock.protect(async (_request, reply) => reply.redirect(await place(), 303)),
    );
    const withOnce = fastifyGuard({ lock, userId, idempotency });
    app.post(
      "/once",
      withOnce.protect(async (_request, reply) => reply.redirect(await place(), 303)),
    );
    const ready = app.ready();
    return (req, res) => void ready.then(() => app.routing(req, res));
  },
};

export async function openShop(
  framework: Framework,
  lock: SubmitLock,
  user: string,
): Promise<FormShop> {
  let submissions = 0;
  let orders = 0;
  let letOrdersEnd!: () => void;
  const mayEnd = new Promise<void>((resolve) => {
    letOrdersEnd = resolve;
  });
  const place = async () => {
    orders += 1;
    const path = `/orders/${orders}`;
    await mayEnd;
    return path;
  };
  const listener = listeners[framework](lock, () => user, place);
  const server = createServer((req, res) => {
    if (req.method === "POST") submissions += 1;
    listener(req, res);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    letOrdersEnd,
    get submissions() {
      return submissions;
    },
    get orders() {
      return orders;
    },
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}

/** With JavaScript, the page stays and lists the answers. */
function checkout(protection: string): string {
  return page(`<h1>Your cart</h1>
    <form method="post" action="/${protection}">
      <input type="hidden" name="submission" value="${randomUUID()}">
      <button>Place order</button>
    </form>
    <ol></ol>
    <script>
      const form = document.querySelector("form");
      form.addEventListener("submit", async (event) => {
        event.preventDefault();
        const body = new URLSearchParams(new FormData(form));
        const answer = await fetch(form.action, { method: "POST", body });
        const item = document.createElement("li");
        item.textContent = answer.status + " " + new URL(answer.url).pathname;
        document.querySelector("ol").append(item);
      });
    </script>`);
}

function placed(number: string): string {
  return page(`<h1>Order ${number} is placed</h1>`);
}

function page(body: string): string {
  return `<!doctype html><html lang="en"><meta charset="utf-8"><title>Checkout</title>
    <link rel="icon" href="data:,">${body}</html>`;
}
