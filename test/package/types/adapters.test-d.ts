import type { Http2Server } from "node:http2";
import Fastify, { type FastifyReply, type FastifyRequest } from "fastify";
import { Hono } from "hono";
import { type Lease, MemoryStore, SubmitLock } from "submit-lock";
import { type Contended, submitGuard as fastifyGuard } from "submit-lock/fastify";
import {
  submitGuard as fetchGuard,
  leaseOf,
  type RequestSubmission,
  submissionOf,
} from "submit-lock/fetch";
import { expectTypeOf } from "vitest";

const lock = new SubmitLock({ store: new MemoryStore() });

// Fastify: the types of the route reach the handler.
const app = Fastify();
const onFastify = fastifyGuard({
  lock,
  userId: (request) => request.headers["x-user"]?.toString(),
  idempotency: { fingerprint: ({ body }) => body },
  onContended: (request, reply, info) => {
    expectTypeOf(request).toEqualTypeOf<FastifyRequest>();
    expectTypeOf(reply).toEqualTypeOf<FastifyReply>();
    expectTypeOf(info).toEqualTypeOf<Contended>();
    return { error: info.problem.code };
  },
});
app.post<{ Body: { cart: number } }>("/orders", {
  handler: onFastify.protect(
    async (request: FastifyRequest<{ Body: { cart: number } }>, reply: FastifyReply) => {
      expectTypeOf(request.body.cart).toEqualTypeOf<number>();
      expectTypeOf(request.submitLease).toEqualTypeOf<Lease | undefined>();
      expectTypeOf(request.submission).toEqualTypeOf<RequestSubmission | undefined>();
      return reply.code(201).send({ cart: request.body.cart });
    },
  ),
});
onFastify.protect(async (request, reply) => {
  expectTypeOf(request).toEqualTypeOf<FastifyRequest>();
  expectTypeOf(reply).toEqualTypeOf<FastifyReply>();
});
app.post<{ Body: { cart: number } }>(
  "/refunds/typed",
  onFastify.protect(async (request: FastifyRequest<{ Body: { cart: number } }>) => request.body),
);
app.post(
  "/refunds",
  onFastify.protect(async () => ({ placed: true })),
);
// On HTTP/2, requests and replies are of other classes.
type Cart = { Body: { cart: number } };
Fastify({ http2: true }).post(
  "/orders",
  onFastify.protect(
    async (request: FastifyRequest<Cart, Http2Server>, reply: FastifyReply<Cart, Http2Server>) => {
      expectTypeOf(request.raw.stream.id).toEqualTypeOf<number | undefined>();
      return reply.code(201).send({ cart: request.body.cart });
    },
  ),
);
// @ts-expect-error: a handler, not its result.
onFastify.protect("placed");
// @ts-expect-error: an unknown option.
fastifyGuard({ lock, userId: () => "42", onConflict: () => {} });

// fetch: any request, and whatever follows it.
const onFetch = fetchGuard({
  lock,
  userId: (request) => request.headers.get("x-user"),
  onContended: (request, { problem }) => {
    expectTypeOf(request).toEqualTypeOf<Request>();
    return new Response(problem.body, problem);
  },
  waitUntil: (promise, _request, context) => context.waitUntil(promise),
});
class NextRequest extends Request {
  readonly ip: string = "127.0.0.1";
}
const route = onFetch.protect(async (request: NextRequest, context: { id: string }) => {
  expectTypeOf(leaseOf(request)).toEqualTypeOf<Lease | undefined>();
  expectTypeOf(submissionOf(request)).toEqualTypeOf<RequestSubmission | undefined>();
  return new Response(`${request.ip} ${context.id}`);
});
expectTypeOf(route).toEqualTypeOf<
  (request: NextRequest, context: { id: string }) => Promise<Response>
>();
const inferred = onFetch.protect((request) => Response.json({ url: request.url }));
new Hono().post("/orders", (c) => inferred(c.req.raw));
const bare = onFetch.protect(() => new Response("placed"));
new Hono().post("/orders", (c) => bare(c.req.raw, c));
// @ts-expect-error: a handler returns a Response.
onFetch.protect(() => "placed");
// @ts-expect-error: an answer is a Response.
fetchGuard({ lock, userId: () => "42", onContended: () => "later" });
// @ts-expect-error: waitUntil is a function.
fetchGuard({ lock, userId: () => "42", waitUntil: true });
