// The same checkout on Koa: `npm run build`, then `npx tsx examples/demo/koa.ts`.
import { createServer } from "node:http";
import { bodyParser } from "@koa/bodyparser";
import Router from "@koa/router";
import Koa, { type Context } from "koa";
import { type Problem, submitGuard } from "submit-lock/koa";
import { serve } from "./serve.ts";
import { refillCart, seenCart, submissionOf, viewOf } from "./shop/carts.ts";
import { signedIn, userOf } from "./shop/customers.ts";
import { answerTo } from "./shop/errors.ts";
import { bodyOf, refusalPage } from "./shop/pages.ts";
import { placeOrder } from "./shop/place-order.ts";

await serve("Koa", (shop, lock) => {
  const app = new Koa();

  app.use(async (ctx, next) => {
    try {
      await next();
    } catch (error) {
      const { status, body } = answerTo(error);
      ctx.status = status;
      ctx.body = ctx.accepts("json", "html") === "html" ? refusalPage(body.code) : body;
    }
  });
  app.use(bodyParser());

  const userId = (ctx: Context) => userOf(ctx.headers);
  const idempotency = {
    submissionId: (ctx: Context) => submissionOf(ctx.request.body),
    // A second click on a form, or in another tab, shows the order and no error.
    waitMs: 10_000,
    // A day in a real shop.
    retainMs: 600_000,
  };
  const refuse = (ctx: Context, { problem }: { problem: Problem }) => {
    ctx.status = problem.status;
    ctx.set(problem.headers);
    ctx.body = bodyOf(problem);
  };
  const refusals = {
    onAnonymous: refuse,
    onContended: refuse,
    onKeyMissing: refuse,
    onMismatch: refuse,
    onUnavailable: refuse,
  };
  const once = submitGuard({ lock, userId, idempotency, ...refusals });
  const lockOnly = submitGuard({ lock, userId, ...refusals });

  const order = async (ctx: Context): Promise<void> => {
    const order = await placeOrder(shop, {
      userId: signedIn(ctx.headers),
      seen: seenCart(ctx.request.body),
      submission: ctx.state["submission"],
      lease: ctx.state["submitLease"],
    });
    if (ctx.is("urlencoded")) {
      ctx.redirect(`/orders/${order.number}`);
      ctx.status = 303;
    } else {
      ctx.body = order;
      ctx.status = 201;
    }
  };

  const cart = async (ctx: Context): Promise<void> => {
    ctx.body = await viewOf(shop.db, signedIn(ctx.headers));
  };
  const router = new Router();
  router.post("/orders", once, order);
  // To compare: the lock alone, and nothing.
  router.post("/lock/orders", lockOnly, order);
  router.post("/nothing/orders", order);
  router.get("/cart", cart);
  router.put("/cart", async (ctx) => {
    await refillCart(shop.db, signedIn(ctx.headers));
    await cart(ctx);
  });
  app.use(router.routes());

  return createServer(app.callback());
});
