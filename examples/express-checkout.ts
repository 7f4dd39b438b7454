// A checkout on Express: `npm run demo`, or `npm run demo -- --once`.
import { createServer } from "node:http";
import express, { type NextFunction, type Request, type Response } from "express";
import { submitGuard } from "submit-lock/express";
import { serve } from "./demo/serve.ts";
import { refillCart, seenCart, submissionOf, viewOf } from "./shop/carts.ts";
import { signedIn, userOf } from "./shop/customers.ts";
import { answerTo } from "./shop/errors.ts";
import { placeOrder } from "./shop/place-order.ts";

await serve("Express", (shop, lock) => {
  const app = express();
  app.use(express.json(), express.urlencoded({ extended: false }));

  const userId = (req: Request) => userOf(req.headers);
  const idempotency = {
    submissionId: (req: Request) => submissionOf(req.body),
    // A second click on a form, or in another tab, shows the order and no error.
    waitMs: 10_000,
    // A day in a real shop.
    retainMs: 600_000,
  };

  const order = async (req: Request, res: Response): Promise<void> => {
    const order = await placeOrder(shop, {
      userId: signedIn(req.headers),
      seen: seenCart(req.body),
      submission: req.submission,
      lease: req.submitLease,
    });
    if (req.is("urlencoded")) res.redirect(303, `/orders/${order.number}`);
    else res.status(201).json(order);
  };

  app.post("/orders", submitGuard({ lock, userId, idempotency }).protect(order));
  // To compare: the lock alone, and nothing.
  app.post("/lock/orders", submitGuard({ lock, userId }).protect(order));
  app.post("/nothing/orders", order);

  app.get("/cart", async (req, res) => {
    res.json(await viewOf(shop.db, signedIn(req.headers)));
  });

  app.put("/cart", async (req, res) => {
    await refillCart(shop.db, signedIn(req.headers));
    res.json(await viewOf(shop.db, signedIn(req.headers)));
  });

  app.use((error: unknown, _req: Request, res: Response, next: NextFunction) => {
    if (res.headersSent) {
      next(error);
      return;
    }
    const { status, body } = answerTo(error);
    res.status(status).json(body);
  });

  return createServer(app);
});
