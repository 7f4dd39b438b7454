import { createServer } from "node:http";
import { Hono } from "hono";
import { getRequestListener } from "hono-server1";
import { FastResponse, serve } from "srvx";
import { afterEach, expect, onTestFinished, test } from "vitest";
import { submitGuard } from "../../src/fetch/index.ts";
import { LockContendedError, MemoryStore, problemOf } from "../../src/index.ts";
import { closeLocks, openLock } from "../support/locks.ts";
import { listen } from "./http-client.ts";

afterEach(closeLocks);

/** The first major of Hono's server for Node, which adds `Content-Length` to a response's headers. */
async function shop(): Promise<string> {
  const lock = openLock({ store: new MemoryStore() });
  const guard = submitGuard({ lock, userId: () => "42", idempotency: {} });
  const app = new Hono();
  app.onError((error) => {
    const problem = problemOf(error);
    return problem === undefined
      ? new Response("", { status: 500 })
      : new Response(problem.body, problem);
  });
  const place = guard.protect(() => new Response("placed", { status: 201 }));
  app.post("/orders", (c) => place(c.req.raw));
  app.post("/once", () => {
    throw new LockContendedError("another has it", 1_000);
  });
  const server = createServer(getRequestListener(app.fetch));
  onTestFinished(() => void server.close());
  return `http://127.0.0.1:${await listen(server)}`;
}

test.each([
  ["too long", "x".repeat(1_048_577), 413],
  ["nested too deep", "[".repeat(70) + "]".repeat(70), 422],
])(
  "a body that is %s is refused on the first major of Hono's server",
  async (_what, body, status) => {
    const headers = { "content-type": "application/json", "idempotency-key": "a-key" };
    const answer = await fetch(`${await shop()}/orders`, { method: "POST", headers, body });
    expect(answer.status).toBe(status);
    expect(await answer.json()).toMatchObject({ status });
  },
);

test("an error handler of the guide's answers a refusal there", async () => {
  const answer = await fetch(`${await shop()}/once`, { method: "POST" });
  expect(answer.status).toBe(409);
  expect(answer.headers.get("submit-lock-code")).toBe("submit_contended");
});

test.each([
  ["text", () => new FastResponse("order 7", { status: 201 })],
  ["bytes with a type", () => new FastResponse(new Blob(["a;b"], { type: "text/csv" }))],
])(
  "a replay on srvx, the server of h3, has the type of the first answer: %s",
  async (_of, make) => {
    const lock = openLock({ store: new MemoryStore() });
    const guard = submitGuard({ lock, userId: () => "42", idempotency: {} });
    const server = serve({
      port: 0,
      hostname: "127.0.0.1",
      silent: true,
      gracefulShutdown: false,
      fetch: guard.protect(make),
    });
    onTestFinished(() => server.close(true));
    await server.ready();
    const order = async () => {
      const headers = { "idempotency-key": "a-key" };
      const answer = await fetch(`${server.url}orders`, { method: "POST", headers });
      const type = answer.headers.get("content-type");
      return {
        type,
        text: await answer.text(),
        replayed: answer.headers.get("idempotent-replayed"),
      };
    };
    const first = await order();
    expect(first.type).toMatch(/^text/);
    expect(await order()).toEqual({ ...first, replayed: "true" });
  },
);
