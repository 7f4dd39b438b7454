import { once } from "node:events";
import { type RequestOptions, request } from "node:http";
import { connect as connectHttp2, constants } from "node:http2";
import { type AddressInfo, connect } from "node:net";
import { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import type { FastifyReply, FastifyRequest, FastifyServerOptions } from "fastify";
import { describe, expect, onTestFinished, test } from "vitest";
import { until } from "../support/until.ts";
import { openOrdersForTest } from "./fastify-orders.ts";
import { gate } from "./gate.ts";

type App = FastifyServerOptions & { http?: object; http2?: boolean };

/** A server whose order waits at a gate. */
async function openServer(
  ofApp: App = {},
  answer = (reply: FastifyReply): unknown => reply.send({ a: 1 }),
) {
  const app = { forceCloseConnections: true, ...ofApp } as never;
  const orders = openOrdersForTest({ app, guard: { idempotency: { waitMs: 0 } } });
  const [begun, goOn] = [gate(), gate()];
  const seen = { runs: 0, ended: 0, aborted: false };
  orders.place(async (request, reply) => {
    seen.runs++;
    begun.open();
    await goOn.opened;
    seen.aborted = request.signal.aborted;
    seen.ended++;
    return answer(reply.code(201));
  });
  const listen = async () => {
    await orders.app.listen({ port: 0, host: "127.0.0.1" });
    return (orders.app.server.address() as AddressInfo).port;
  };
  /** One click over the network; `0` for a connection that was cut. */
  const click = (port: number, more: RequestOptions = {}) =>
    new Promise<{ status: number; body: string; trailers: object }>((resolve) => {
      const cut = () => resolve({ status: 0, body: "", trailers: {} });
      const headers = { ...orders.headers, ...more.headers };
      const to = { host: "127.0.0.1", port, path: "/orders", method: "POST", agent: false };
      request({ ...to, ...more, headers } as RequestOptions)
        .on("error", cut)
        .on("response", async (res) => {
          const body = await text(res).catch(() => "");
          resolve({ status: res.statusCode ?? 0, body, trailers: res.trailers });
        })
        .end();
    });
  return { ...orders, begun: begun.opened, goOn: goOn.open, seen, listen, click };
}

const codeOf = (body: string) => JSON.parse(body).code;

describe("Fastify's own times", () => {
  // Without a body: Fastify 5.12 stops this clock when a body has been read.
  test("handlerTimeout answers 503, and the lock is held until the handler is done", async () => {
    const server = await openServer({ handlerTimeout: 1_000 });
    const port = await server.listen();
    await server.isFree();
    expect((await server.click(port)).status).toBe(503);
    expect([server.seen.runs, server.seen.ended]).toEqual([1, 0]);
    expect(codeOf((await server.click(port)).body)).toBe("idempotency_in_flight");
    server.goOn();
    await server.whenFree();
    expect([server.seen.ended, server.seen.aborted]).toEqual([1, true]);
    // The 503 was not the handler's, which has placed the order.
    expect(await server.records()).toHaveLength(1);
    const retried = async () =>
      codeOf((await server.click(port)).body) === "idempotency_answer_unavailable";
    await until(retried, { what: "a retry that a busy machine answers in time" });
    expect(server.seen.runs).toBe(1);
  });

  test("handlerTimeout during the guard's own work: nothing runs", async () => {
    const userId = async ({ headers }: FastifyRequest) => {
      await sleep(80);
      return `${headers["x-user"]}`;
    };
    const orders = openOrdersForTest({ app: { handlerTimeout: 20 }, guard: { userId } });
    let runs = 0;
    orders.place(async () => ({ run: ++runs }));
    expect((await orders.submit()).statusCode).toBe(503);
    await sleep(120);
    expect([runs, await orders.records()]).toEqual([0, []]);
  });

  test("connectionTimeout cuts the connection, the order goes on under the lock, and is repeated", async () => {
    const server = await openServer({ connectionTimeout: 150 });
    const port = await server.listen();
    expect((await server.click(port)).status).toBe(0);
    expect(await server.isFree()).toBe(false);
    server.goOn();
    await server.whenFree();
    const again = await server.click(port);
    expect([again.status, again.body, server.seen.runs]).toEqual([201, '{"a":1}', 1]);
  });

  test("requestTimeout ends a body that the handler reads, and frees its user", async () => {
    const http = { connectionsCheckingInterval: 20, headersTimeout: 50 };
    const app = { requestTimeout: 150, http, forceCloseConnections: true } as never;
    const orders = openOrdersForTest({ app, guard: { idempotency: undefined } });
    orders.app.addContentTypeParser("application/octet-stream", (_request, _payload, done) =>
      done(null),
    );
    let runs = 0;
    orders.place(async (incoming) => {
      runs++;
      for await (const _chunk of incoming.raw);
      return { a: 1 };
    });
    await orders.app.listen({ port: 0, host: "127.0.0.1" });
    const { port } = orders.app.server.address() as AddressInfo;
    const socket = connect(port, "127.0.0.1").on("error", () => {});
    const type = "Content-Type: application/octet-stream";
    const lines = ["POST /orders HTTP/1.1", "Host: shop", type, `X-User: ${orders.user}`];
    socket.write([...lines, "Content-Length: 10", "", "abc"].join("\r\n"));
    await once(socket.resume(), "close");
    await orders.whenFree();
    expect(runs).toBe(1);
  });
});

describe("close", () => {
  test("waits for an order, answers it, and refuses the next one without a lock", async () => {
    const server = await openServer({ forceCloseConnections: false });
    const port = await server.listen();
    const socket = connect(port, "127.0.0.1");
    const order = server.click(port);
    await server.begun;
    const lines = [`X-User: ${server.user}-2`, "Content-Length: 0", "Connection: close", "", ""];
    // Its head has begun, so that closing does not end the connection.
    socket.write("POST /orders HTTP/1.1\r\nHost: shop\r\n");
    await sleep(50);
    const closed = server.app.close();
    await sleep(50);
    socket.write(lines.join("\r\n"));
    expect(await text(socket)).toContain("503 Service Unavailable");
    server.goOn();
    expect([(await order).status, server.seen.runs]).toEqual([201, 1]);
    await closed;
    await server.whenFree();
    expect(await server.records()).toHaveLength(1);
  });
});

test("a request whose connection was upgraded before the guard frees its user", async () => {
  const orders = openOrdersForTest({ app: { forceCloseConnections: true } });
  let runs = 0;
  orders.place(async (_request, reply) => {
    runs++;
    reply.hijack();
    reply.raw.socket?.end("HTTP/1.1 101 Switching Protocols\r\n\r\n");
  });
  await orders.app.listen({ port: 0, host: "127.0.0.1" });
  const { port } = orders.app.server.address() as AddressInfo;
  const socket = connect(port, "127.0.0.1");
  const lines = ["POST /orders HTTP/1.1", "Host: shop", `X-User: ${orders.user}`];
  socket.write([...lines, "Content-Length: 0", "", ""].join("\r\n"));
  expect(await text(socket)).toContain("101");
  await orders.whenFree();
  expect(runs).toBe(1);
});

test("a client on HTTP/2 that resets its stream has an order, and its retry is repeated", async () => {
  const server = await openServer({ http2: true });
  const session = connectHttp2(`http://127.0.0.1:${await server.listen()}`);
  onTestFinished(() => session.destroy());
  const click = () =>
    session.request({ ":method": "POST", ":path": "/orders", ...server.headers }).end();
  const left = click().on("error", () => {});
  await server.begun;
  left.close(constants.NGHTTP2_CANCEL);
  const other = await text(click());
  expect([codeOf(other), await server.isFree()]).toEqual(["idempotency_in_flight", false]);
  server.goOn();
  await server.whenFree();
  expect([await text(click()), server.seen.runs]).toEqual(['{"a":1}', 1]);
});

describe("trailers", () => {
  const withTrailer = (body: unknown) => (reply: FastifyReply) =>
    reply
      .trailer("x-sum", (_reply, payload, done) => done(null, `${payload}`.length.toString()))
      .send(body);

  test("are sent once, and the body is repeated without them", async () => {
    const server = await openServer({}, withTrailer({ a: 1 }));
    server.goOn();
    const port = await server.listen();
    const first = await server.click(port);
    expect(first).toEqual({ status: 201, body: '{"a":1}', trailers: { "x-sum": "7" } });
    await server.whenFree();
    expect(await server.click(port)).toEqual({ ...first, trailers: {} });
    expect(server.seen.runs).toBe(1);
  });

  test.each(["a text", "a stream"])("of %s free their user on HTTP/2", async (what) => {
    const body = what === "a text" ? "x".repeat(200_000) : Readable.from(["a", "b"]);
    const server = await openServer({ http2: true }, withTrailer(body));
    server.goOn();
    const session = connectHttp2(`http://127.0.0.1:${await server.listen()}`);
    onTestFinished(() => session.destroy());
    const stream = session.request({ ":method": "POST", ":path": "/orders", ...server.headers });
    let trailers: object = {};
    stream.on("trailers", (received) => {
      trailers = received;
    });
    stream.end();
    const received = await text(stream);
    expect(received).toBe(what === "a text" ? body : "ab");
    await until(() => "x-sum" in trailers, { what: "the trailers" });
    await server.whenFree();
    expect(await server.records()).toHaveLength(1);
  });
});
