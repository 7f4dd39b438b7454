// A form, its cart and "once", on Koa, without JavaScript: the version that the customer saw is the id.
// A double click shows the second answer, which waits for the first one and is the same.
// `./express.ts` is the same on Express.
import { bodyParser } from "@koa/bodyparser";
import Router from "@koa/router";
import type { Context, Middleware } from "koa";
import type { SubmitLock } from "submit-lock";
import { submitGuard } from "submit-lock/koa";
import { cartOf, placeOrder } from "./shop.ts"; // yours

const userId = (ctx: Context) => ctx.get("x-user-id"); // yours: from the session

/** What the form has sent; nothing where a part is missing. */
function sentBy(ctx: Context): string | undefined {
  const { cart, version } = Object(ctx.request.body);
  return cart && version && `${cart}:${version}`;
}

export function checkout(lock: SubmitLock): Middleware {
  const guard = submitGuard({ lock, userId, idempotency: { submissionId: sentBy } });
  const router = new Router();
  router.use(bodyParser()); // in front of the guard, which reads the body

  router.get("/checkout", async (ctx) => {
    const { id, version } = await cartOf(userId(ctx));
    // Back and a reload show the cart as it is.
    ctx.set("Cache-Control", "private, no-cache");
    ctx.body = `
      <form method="post" action="/orders">
        <input type="hidden" name="cart" value="${id}">
        <input type="hidden" name="version" value="${version}">
        <button>Place the order</button>
      </form>`;
  });

  router.post("/orders", guard, async (ctx) => {
    const cart = await cartOf(userId(ctx)); // under the lock
    if (`${cart.id}:${cart.version}` !== sentBy(ctx)) {
      ctx.status = 409;
      ctx.body = "Your cart has changed. Please look at it again.";
      return;
    }
    const order = await placeOrder(cart, ctx.state.submitLease?.signal);
    ctx.redirect(`/orders/${order.number}`);
    ctx.status = 303;
  });
  return router.routes() as Middleware;
}
