// A checkout on Fastify: `npm run example fastify`. Copy it with `../orders.ts`,
// and put your session and your order in.
import { randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import cookie from "@fastify/cookie";
import Fastify, { type FastifyReply, type FastifyRequest } from "fastify";
import { Redis } from "ioredis";
import { MemoryStore, RedisStore, SubmitLock } from "submit-lock";
import { submitGuard } from "submit-lock/fastify";
import { placeOrder } from "../orders.ts";

// Without REDIS_URL the locks are in this process: enough to try it, not for two processes.
const url = process.env["REDIS_URL"];
const lock = new SubmitLock({ store: url ? new RedisStore(new Redis(url)) : new MemoryStore() });

const app = Fastify();
await app.register(cookie, { secret: process.env["SECRET"] ?? randomUUID() }); // yours: a secret
app.addContentTypeParser(
  "application/x-www-form-urlencoded",
  { parseAs: "string" },
  async (_request: FastifyRequest, body: string) => Object.fromEntries(new URLSearchParams(body)),
);

const signedIn = ({ cookies }: FastifyRequest) =>
  app.unsignCookie(cookies["user"] ?? "").value ?? undefined;
const tokenOf = ({ body }: FastifyRequest) => Object(body).submissionId;

const idempotency = { submissionId: tokenOf, key: "required", waitMs: 10_000 } as const;
const guard = submitGuard({ lock, userId: signedIn, idempotency, onUnavailable: "proceed" });
// Redis may be away. A permission that is missing stays missing.
await lock.check().catch((error) => {
  if (error.code !== "SUBMIT_LOCK_UNAVAILABLE") throw error;
  console.warn(error);
});

async function checkout(request: FastifyRequest, reply: FastifyReply) {
  const { submission, submitLease } = request;
  const number = await placeOrder(signedIn(request), submission, submitLease?.signal);
  return reply.redirect(`/orders/${number}`, 303);
}

app.get("/", async (request, reply) => {
  if (!signedIn(request)) reply.setCookie("user", randomUUID(), { signed: true, httpOnly: true });
  return reply.type("text/html").send(`<!doctype html><html lang="en"><title>Checkout</title>
    <script type="module">import { protectForm } from "/browser/index.js";
    protectForm(document.forms[0]);</script>
    <main><h1>Your cart</h1><form method="post" action="/orders"><button>Place order</button>
    <input type="hidden" name="submissionId" value="${randomUUID()}"></form></main>`);
});
app.get("/browser/:file(^[\\w-]+\\.js$)", async ({ params }, reply) => {
  const file = new URL(Object(params).file, import.meta.resolve("submit-lock/browser"));
  return reply.type("text/javascript").send(await readFile(file));
});
app.post("/orders", guard.protect(checkout));
app.get("/orders/:number", async ({ params }) => {
  return `Order ${Number((params as { number: string }).number)} is placed.`;
});

const address = await app.listen({ port: Number(process.env["PORT"] ?? 3000), host: "127.0.0.1" });
console.log(`A shop on Fastify: ${address}`);
