import { createServer, type Server } from "node:http";
import { createServer as createHttp2Server } from "node:http2";
import { setTimeout as sleep } from "node:timers/promises";
import { createAdaptorServer } from "@hono/node-server";
import { type Context, Hono } from "hono";
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { type SubmitGuardOptions, submitGuard } from "../../src/fetch/index.ts";
import { RedisStore } from "../../src/index.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, openLock } from "../support/locks.ts";
import { until } from "../support/until.ts";
import { gate } from "./gate.ts";
import { listen, openClient, type Reply } from "./http-client.ts";
import { canAcquire, patientTimes, sharedRedis } from "./shop.ts";

// Hono's server tells of each failure.
beforeEach(() => void vi.spyOn(console, "error").mockImplementation(() => {}));

afterEach(async () => {
  vi.restoreAllMocks();
  await closeLocks();
});

type Handler = (c: Context) => Response | Promise<Response>;

/** `bare`: without a guard. */
type Options = Partial<SubmitGuardOptions> & { bare?: true };

/** A shop of Hono on Node's server, and one of its clients. */
async function openShop(http: 1 | 2, handler: Handler, options: Options = {}) {
  const lock = openLock({ store: new RedisStore(sharedRedis()), ...patientTimes });
  const user = freshUser();
  let runs = 0;
  const counted = (_request: Request, c: Context) => {
    runs++;
    return handler(c);
  };
  const guarded = () => submitGuard({ lock, userId: () => user, idempotency: {}, ...options });
  const answer = options.bare ? counted : guarded().protect(counted);
  const app = new Hono();
  app.onError((_error, c) => c.text("no order", 500));
  app.on(["GET", "POST"], "/orders", (c) => answer(c.req.raw, c));
  const create = { createServer: http === 1 ? createServer : createHttp2Server };
  const server = createAdaptorServer({ fetch: app.fetch, ...(create as object) });
  const client = openClient(http, await listen(server as Server));
  onTestFinished(() => {
    client.close();
    server.close();
  });
  const headers = { "idempotency-key": "a-key" };
  return {
    runs: () => runs,
    call: (method = "POST") => client.call({ method, headers }),
    /** The answer, or the loss of the connection. */
    async submit(method = "POST"): Promise<Partial<Reply>> {
      const { reply } = client.call({ method, headers });
      return await reply.catch(() => ({ body: "broken off" }));
    },
    whenFree: () => until(() => canAcquire(lock, user), { what: "a free lock" }),
  };
}

/** Each part in a turn of its own. */
function later(...parts: unknown[]): ReadableStream {
  return new ReadableStream({
    async pull(controller) {
      await sleep(5);
      if (parts.length === 0) controller.close();
      else controller.enqueue(parts.shift());
    },
  });
}

function atOnce(...parts: unknown[]): ReadableStream {
  return new ReadableStream({
    start(controller) {
      for (const part of parts) controller.enqueue(part);
      controller.close();
    },
  });
}

function failsAtEnd(): TransformStream {
  return new TransformStream({ flush: () => Promise.reject(new Error("theirs")) });
}

/** Not the one of Hono's server, which replaces the global. */
const NodesResponse = (await fetch("data:,")).constructor as typeof Response;

const bytes = new TextEncoder().encode("bytes");
const placed = { status: 201 };

async function consumed(): Promise<Response> {
  const response = new Response("placed", placed);
  await response.text();
  return response;
}

function locked(): Response {
  const response = new Response(later(bytes), placed);
  response.body?.getReader();
  return response;
}

/** What a second submit gets: the first answer, a 409, or an order of its own. */
type Repeat = "replayed" | "unavailable" | "runs";

const answers: [what: string, handler: Handler, status: number | "failed", repeat: Repeat][] = [
  ["a text", () => new Response("placed", placed), 201, "replayed"],
  ["bytes that come later", () => new Response(later(bytes, bytes), placed), 201, "replayed"],
  ["a stream of texts", () => new Response(atOnce("pla", "ced"), placed), 201, "unavailable"],
  ["texts beyond ASCII", () => new Response(atOnce("é€"), placed), 201, "unavailable"],
  ["texts that come later", () => new Response(later("a", "b"), placed), 201, "unavailable"],
  ["a text behind bytes", () => new Response(later(bytes, "b"), placed), 201, "unavailable"],
  ["a text between bytes", () => new Response(atOnce(bytes, "b", bytes)), 200, "unavailable"],
  // Hono's `Response` takes these, and Node's does not.
  ["no content with a body", (c) => c.body("", 204 as 200), 204, "replayed"],
  ["a failure of the network", () => Response.error(), "failed", "runs"],
  ["a body that was read", consumed, "failed", "runs"],
  ["a body that is locked", locked, "failed", "runs"],
  ["a proxy", () => new Proxy(new Response("placed", placed), {}), 201, "unavailable"],
  ["no Response", () => undefined as never, "failed", "runs"],
  ["Node's own Response", () => new NodesResponse("placed", placed), 201, "replayed"],
];

describe.each([1, 2] as const)("HTTP/%i", (http) => {
  test.each(answers)("%s: the client gets what it gets without a guard", async (_what, ...row) => {
    const [handler, status, repeat] = row;
    const bare = await openShop(http, handler, { bare: true });
    const expected = await bare.submit();
    const shop = await openShop(http, handler);
    const first = await shop.submit();
    expect([first.status, first.body]).toEqual([expected.status, expected.body]);
    expect(first.headers?.["content-type"]).toBe(expected.headers?.["content-type"]);
    if (status !== "failed") expect(first.status).toBe(status);
    await shop.whenFree();
    const second = await shop.submit();
    expect(shop.runs()).toBe(repeat === "runs" ? 2 : 1);
    if (repeat === "replayed") {
      expect(second).toMatchObject({ status, body: first.body });
      expect(second.headers).toHaveProperty("idempotent-replayed", "true");
    } else if (repeat === "unavailable") {
      expect(second.status).toBe(409);
      expect(second.body).toContain("idempotency_answer_unavailable");
    }
    await shop.whenFree();
  });

  const failing = () => new ReadableStream({ pull: () => Promise.reject(new Error("theirs")) });

  test.each<[when: string, stream: () => ReadableStream, runs: number]>([
    ["at once", failing, 2],
    ["behind its first part", () => later(bytes).pipeThrough(failsAtEnd()), 1],
    ["behind a text", () => later("text").pipeThrough(failsAtEnd()), 1],
  ])("a stream that fails %s frees its user", async (_when, stream, runs) => {
    const shop = await openShop(http, () => new Response(stream(), placed));
    expect((await shop.submit()).status).not.toBe(201);
    await shop.whenFree();
    await shop.submit();
    expect(shop.runs()).toBe(runs);
  });

  test.each([
    ["is cancelled", () => {}],
    ["fails to be cancelled", () => Promise.reject(new Error("theirs"))],
  ])("a stream whose client leaves %s, and its user is free", async (_how, cancel) => {
    const cancelled = gate();
    const stream = () =>
      new ReadableStream({
        start: (controller) => controller.enqueue(bytes),
        cancel() {
          cancelled.open();
          return cancel();
        },
      });
    const shop = await openShop(http, () => new Response(stream(), placed));
    const call = shop.call();
    await call.begun;
    call.abort();
    await cancelled.opened;
    await shop.whenFree();
  });

  test("a stream that answers HEAD is cancelled: its body is never read", async () => {
    const cancelled = gate();
    const over = gate();
    const stream = () =>
      new ReadableStream({
        start: (controller) => controller.enqueue(bytes),
        async cancel() {
          cancelled.open();
          await over.opened;
        },
      });
    const handler = () => new Response(stream(), { headers: { "x-order": "7" } });
    const given: Promise<unknown>[] = [];
    const waitUntil = (promise: Promise<unknown>) => void given.push(promise);
    const shop = await openShop(http, handler, { waitUntil });
    const { status, headers } = await shop.submit("HEAD");
    expect([status, headers?.["x-order"], given.length]).toEqual([200, "7", 1]);
    await cancelled.opened;
    over.open();
    await given[0];
    await shop.whenFree();
  });
});

describe("waitUntil", () => {
  test.each<[what: string, waitUntil: () => unknown]>([
    [
      "throws",
      () => {
        throw new Error("no context");
      },
    ],
    ["rejects", () => Promise.reject(new Error("no context"))],
    ["never settles", () => new Promise(() => {})],
  ])("that %s costs neither the answer nor the release", async (_what, waitUntil) => {
    for (const body of ["placed", () => later(bytes)]) {
      const handler = () => new Response(typeof body === "string" ? body : body(), placed);
      const shop = await openShop(1, handler, { waitUntil });
      expect((await shop.submit()).status).toBe(201);
      await shop.whenFree();
      expect((await shop.submit()).headers).toHaveProperty("idempotent-replayed");
    }
  });
});
