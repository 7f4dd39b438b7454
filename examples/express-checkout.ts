// A checkout on Express: `npm run demo`, or `npm run demo -- --once`.
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";
import express, { type NextFunction, type Request, type Response } from "express";
import { submitGuard } from "submit-lock/express";
import { serve } from "./serve.ts";
import { answerTo, Shop, signedIn, userOf } from "./shop.ts";

const page = fileURLToPath(new URL("./checkout.html", import.meta.url));

await serve("Express", (lock) => {
  const shop = new Shop();
  const app = express();

  const guard = submitGuard({ lock, userId: (req) => userOf(req.get("authorization")) });

  app.post(
    "/orders",
    guard.protect(async (req, res) => {
      const order = await shop.placeOrder(
        signedIn(req.get("authorization")),
        req.submitLease?.signal,
      );
      res.status(201).json(order);
    }),
  );

  app.get("/", (_req, res) => res.sendFile(page));

  app.get("/cart", (req, res) => {
    res.json(shop.view(signedIn(req.get("authorization"))));
  });

  app.put("/cart", (req, res) => {
    shop.refill(signedIn(req.get("authorization")));
    res.json(shop.view(signedIn(req.get("authorization"))));
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
