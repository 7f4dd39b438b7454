// A checkout on Hono: `npm run example hono`. Copy it with `../orders.ts`,
// and put your session and your order in.
import { randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import { serve } from "@hono/node-server";
import { Hono } from "hono";
import { setSignedCookie } from "hono/cookie";
import { parseSigned } from "hono/utils/cookie";
import { Redis } from "ioredis";
import { MemoryStore, problemOf, RedisStore, SubmitLock } from "submit-lock";
import { leaseOf, submissionOf, submitGuard } from "submit-lock/fetch";
import { placeOrder } from "../orders.ts";

// Without REDIS_URL the locks are in this process: enough to try it, not for two processes.
const url = process.env["REDIS_URL"];
const lock = new SubmitLock({ store: url ? new RedisStore(new Redis(url)) : new MemoryStore() });

const secret = process.env["SECRET"] ?? randomUUID(); // yours: a secret
const signedIn = async ({ headers }: Request) =>
  (await parseSigned(headers.get("cookie") ?? "", secret))["user"] || undefined;
const tokenOf = async (request: Request) =>
  (await request.clone().formData()).get("submissionId")?.toString();
const idempotency = { submissionId: tokenOf, key: "required", waitMs: 10_000 } as const;
const guard = submitGuard({ lock, userId: signedIn, idempotency, onUnavailable: "proceed" });
// Redis may be away. A permission that is missing stays missing.
await lock.check().catch((error) => {
  if (error.code !== "SUBMIT_LOCK_UNAVAILABLE") throw error;
  console.warn(error);
});

const checkout = guard.protect(async (request: Request) => {
  const buyer = await signedIn(request);
  const number = await placeOrder(buyer, submissionOf(request), leaseOf(request)?.signal);
  return new Response(null, { status: 303, headers: { location: `/orders/${number}` } });
});

const app = new Hono();
app.get("/", async (c) => {
  // Yours: the sign-in.
  if (!(await signedIn(c.req.raw))) await setSignedCookie(c, "user", randomUUID(), secret);
  return c.html(`<!doctype html><html lang="en"><title>Checkout</title><script type="module">
    import { protectForm } from "/browser/index.js"; protectForm(document.forms[0]);</script>
    <main><h1>Your cart</h1><form method="post" action="/orders"><button>Place order</button>
    <input type="hidden" name="submissionId" value="${randomUUID()}"></form></main>`);
});
app.get("/browser/:file{[\\w-]+\\.js}", async (c) => {
  const file = new URL(c.req.param("file"), import.meta.resolve("submit-lock/browser"));
  return c.body(await readFile(file), 200, { "content-type": "text/javascript" });
});
app.post("/orders", (c) => checkout(c.req.raw));
app.get("/orders/:number", (c) => c.text(`Order ${Number(c.req.param("number"))} is placed.`));
// Hono itself answers 500 to every error, also to a lost lock.
app.onError((error, c) => {
  const problem = problemOf(error, c.req.header("accept")) ?? { status: 500, body: "no order" };
  if (problem.status >= 500) console.error(error);
  return new Response(problem.body, problem);
});
const port = Number(process.env["PORT"] ?? 3000);
serve({ fetch: app.fetch, port, hostname: "127.0.0.1" }, (at) => {
  console.log(`A shop on Hono: http://127.0.0.1:${at.port}`);
});
