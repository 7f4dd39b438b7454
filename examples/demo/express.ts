// A checkout on Express: `npm run demo`, or `npm run demo -- --once`.
import { createServer } from "node:http";
import express, { type NextFunction, type Request, type Response } from "express";
import { type Problem, submitGuard } from "submit-lock/express";
import { serve } from "./serve.ts";
import { refillCart, seenCart, submissionOf, viewOf } from "./shop/carts.ts";
import { signedIn, userOf } from "./shop/customers.ts";
import { answerTo } from "./shop/errors.ts";
import { bodyOf, refusalPage } from "./shop/pages.ts";
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

  type Info = { readonly problem: Problem };
  const refuse = (_req: Request, res: Response, _next: NextFunction, { problem }: Info) => {
    res.status(problem.status).set(problem.headers).end(bodyOf(problem));
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

  app.post("/orders", once.protect(order));
  // To compare: the lock alone, and nothing.
  app.post("/lock/orders", lockOnly.protect(order));
  app.post("/nothing/orders", order);

  app.get("/cart", async (req, res) => {
    res.json(await viewOf(shop.db, signedIn(req.headers)));
  });

  app.put("/cart", async (req, res) => {
    await refillCart(shop.db, signedIn(req.headers));
    res.json(await viewOf(shop.db, signedIn(req.headers)));
  });

  app.use((error: unknown, req: Request, res: Response, next: NextFunction) => {
    if (res.headersSent) {
      next(error);
      return;
    }
    const { status, body } = answerTo(error);
    res.status(status);
    if (req.accepts(["json", "html"]) === "html") res.send(refusalPage(body.code));
    else res.json(body);
  });

  return createServer(app);
});
