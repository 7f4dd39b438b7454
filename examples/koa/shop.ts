// A checkout on Koa: `npm run example koa`. Copy it with `../orders.ts`,
// and put your session and your order in.
import { randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import type { AddressInfo } from "node:net";
import { bodyParser } from "@koa/bodyparser";
import Router from "@koa/router";
import { Redis } from "ioredis";
import Koa, { type Context } from "koa";
import { MemoryStore, RedisStore, SubmitLock } from "submit-lock";
import { submitGuard } from "submit-lock/koa";
import { placeOrder } from "../orders.ts";

// Without REDIS_URL the locks are in this process: enough to try it, not for two processes.
const url = process.env["REDIS_URL"];
const lock = new SubmitLock({ store: url ? new RedisStore(new Redis(url)) : new MemoryStore() });

const signedIn = (ctx: Context) => ctx.cookies.get("user", { signed: true });
const tokenOf = (ctx: Context) => Object(ctx.request.body).submissionId;
const idempotency = { submissionId: tokenOf, key: "required", waitMs: 10_000 } as const;
const guard = submitGuard({ lock, userId: signedIn, idempotency, onUnavailable: "proceed" });
// Redis may be away. A permission that is missing stays missing.
await lock.check().catch((error) => {
  if (error.code !== "SUBMIT_LOCK_UNAVAILABLE") throw error;
  console.warn(error);
});

async function checkout(ctx: Context): Promise<void> {
  const { submission, submitLease } = ctx.state;
  ctx.redirect(`/orders/${await placeOrder(signedIn(ctx), submission, submitLease?.signal)}`);
  ctx.status = 303;
}

const browser = import.meta.resolve("submit-lock/browser");
const router = new Router();
router.get("/", (ctx) => {
  if (!signedIn(ctx)) ctx.cookies.set("user", randomUUID(), { signed: true }); // yours: the sign-in
  ctx.body = `<!doctype html><html lang="en"><title>Checkout</title><script type="module">
    import { protectForm } from "/browser/index.js"; protectForm(document.forms[0]);</script>
    <main><h1>Your cart</h1><form method="post" action="/orders"><button>Place order</button>
    <input type="hidden" name="submissionId" value="${randomUUID()}"></form></main>`;
});
router.get(/^\/browser\/([\w-]+\.js)$/, async (ctx) => {
  ctx.type = "js";
  ctx.body = await readFile(new URL(`${ctx.captures?.[0]}`, browser));
});
router.post("/orders", guard, checkout);
router.get("/orders/:number", (ctx) => {
  ctx.body = `Order ${Number(ctx.params["number"])} is placed.`;
});
const app = new Koa();
app.keys = [process.env["SECRET"] ?? randomUUID()]; // yours: a secret
app.use(bodyParser()).use(router.routes()); // the parser in front of the guard
const server = app.listen(Number(process.env["PORT"] ?? 3000), "127.0.0.1", () => {
  console.log(`A shop on Koa: http://127.0.0.1:${(server.address() as AddressInfo).port}`);
});
