// The shop that `your-shop.test.ts` tests, on Express. Yours takes the lock as well, or makes it.
import express, { type Express } from "express";
import type { SubmitLock } from "submit-lock";
import { submitGuard } from "submit-lock/express";

/** What the payment provider's refusal is in your shop. */
export class DeclinedError extends Error {}

export function createApp(
  lock: SubmitLock,
  charge: (signal?: AbortSignal) => Promise<void>,
  { retainMs }: { retainMs: number },
): Express {
  const guard = submitGuard({
    lock,
    userId: (req) => req.get("x-user-id"),
    idempotency: { retainMs },
  });
  let orders = 0;
  const app = express();
  app.use(express.json());
  app.post(
    "/orders",
    guard.protect(async (req, res) => {
      try {
        await charge(req.submitLease?.signal);
        res.status(201).json({ order: ++orders });
      } catch (error) {
        if (!(error instanceof DeclinedError)) throw error;
        res.status(402).json({ message: "Your card was declined." });
      }
    }),
  );
  return app;
}
