// A form, its cart and "once", on Express, without JavaScript: the version that the customer saw is the
// id. A double click shows the second answer, which waits for the first one and is the same.
// `./koa.ts` is the same on Koa.
import express, { type Request, type Router } from "express";
import type { SubmitLock } from "submit-lock";
import { submitGuard } from "submit-lock/express";
import { cartOf, placeOrder } from "./shop.ts"; // yours

const userId = (req: Request) => req.get("x-user-id"); // yours: from the session

/** What the form has sent; nothing where a part is missing. */
const sentBy = ({ body }: Request): string | undefined =>
  body?.cart && body.version && `${body.cart}:${body.version}`;

export function checkout(lock: SubmitLock): Router {
  const guard = submitGuard({ lock, userId, idempotency: { submissionId: sentBy } });
  const router = express.Router();
  router.use(express.urlencoded({ extended: false })); // in front of the guard, which reads the body

  router.get("/checkout", async (req, res) => {
    const { id, version } = await cartOf(userId(req));
    // Back and a reload show the cart as it is.
    res
      .set("Cache-Control", "private, no-cache")
      .type("html")
      .send(`
      <form method="post" action="/orders">
        <input type="hidden" name="cart" value="${id}">
        <input type="hidden" name="version" value="${version}">
        <button>Place the order</button>
      </form>`);
  });

  router.post(
    "/orders",
    guard.protect(async (req, res) => {
      const cart = await cartOf(userId(req)); // under the lock
      if (`${cart.id}:${cart.version}` !== sentBy(req)) {
        res.status(409).send("Your cart has changed. Please look at it again.");
        return;
      }
      const order = await placeOrder(cart, req.submitLease?.signal);
      res.redirect(303, `/orders/${order.number}`);
    }),
  );
  return router;
}
