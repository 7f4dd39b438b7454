// A checkout on Express: `npm run example express`. Copy it with `../orders.ts`,
// and put your session and your order in.
import { randomUUID } from "node:crypto";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import express, { type Request, type Response } from "express";
import session from "express-session";
import { Redis } from "ioredis";
import { MemoryStore, RedisStore, SubmitLock } from "submit-lock";
import { submitGuard } from "submit-lock/express";
import { placeOrder } from "../orders.ts";

declare module "express-session" {
  interface SessionData {
    userId: string;
  }
}

// Without REDIS_URL the locks are in this process: enough to try it, not for two processes.
const url = process.env["REDIS_URL"];
const lock = new SubmitLock({ store: url ? new RedisStore(new Redis(url)) : new MemoryStore() });

const guard = submitGuard({
  lock,
  userId: (req: Request) => req.session.userId,
  idempotency: { submissionId: (req) => req.body?.submissionId, key: "required", waitMs: 10_000 },
  onUnavailable: "proceed", // the transaction has the last word
});
// Redis may be away. A permission that is missing stays missing.
await lock.check().catch((error) => {
  if (error.code !== "SUBMIT_LOCK_UNAVAILABLE") throw error;
  console.warn(error);
});

async function checkout(req: Request, res: Response): Promise<void> {
  const { submission, submitLease } = req;
  const number = await placeOrder(req.session.userId, submission, submitLease?.signal);
  res.redirect(303, `/orders/${number}`);
}

const app = express();
const browser = new URL(".", import.meta.resolve("submit-lock/browser"));
app.use("/browser", express.static(fileURLToPath(browser)));
app.use(session({ secret: randomUUID(), resave: false, saveUninitialized: false }));
app.use(express.urlencoded({ extended: false })); // in front of the guard, which reads req.body
app.get("/", (req, res) => {
  req.session.userId ??= randomUUID(); // yours: the sign-in
  res.send(`<!doctype html><html lang="en"><title>Checkout</title><script type="module">
    import { protectForm } from "/browser/index.js"; protectForm(document.forms[0]);</script>
    <main><h1>Your cart</h1><form method="post" action="/orders"><button>Place order</button>
    <input type="hidden" name="submissionId" value="${randomUUID()}"></form></main>`);
});
app.post("/orders", guard.protect(checkout));
app.get("/orders/:id", ({ params }, res) => void res.send(`Order ${Number(params.id)} is placed.`));

const server = app.listen(Number(process.env["PORT"] ?? 3000), "127.0.0.1", (error) => {
  if (error) throw error; // the port is taken
  console.log(`A shop on Express: http://127.0.0.1:${(server.address() as AddressInfo).port}`);
});
