// A checkout on Express: `npm run example express`. Copy it, and put your session and your order in.
import { randomUUID } from "node:crypto";
import type { AddressInfo } from "node:net";
import { setTimeout } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { PGlite } from "@electric-sql/pglite";
import express, { type Request, type Response } from "express";
import session from "express-session";
import { Redis } from "ioredis";
import { MemoryStore, RedisStore, SubmitLock } from "submit-lock";
import { submitGuard } from "submit-lock/express";

declare module "express-session" {
  interface SessionData {
    userId: string;
  }
}

// Without REDIS_URL the locks are in this process: enough to try it, not for two processes.
const url = process.env["REDIS_URL"];
const lock = new SubmitLock({ store: url ? new RedisStore(new Redis(url)) : new MemoryStore() });
await lock.check();
const db = new PGlite(); // yours: PostgreSQL
await db.exec("CREATE TABLE orders (number serial, buyer text, token text, UNIQUE (buyer, token))");

const guard = submitGuard({
  lock,
  userId: (req: Request) => req.session.userId,
  idempotency: { submissionId: (req) => req.body?.submissionId, key: "required", waitMs: 10_000 },
});

async function placeOrder(req: Request, res: Response): Promise<void> {
  await setTimeout(500); // yours: the payment
  req.submitLease?.signal.throwIfAborted(); // the lock was lost: 503, and no order
  const { rows } = await db.query<{ number: number }>(
    `INSERT INTO orders (buyer, token) VALUES ($1, $2)
     ON CONFLICT (buyer, token) DO UPDATE SET token = excluded.token RETURNING number`,
    [req.session.userId, req.submission?.id],
  );
  res.redirect(303, `/orders/${rows[0]?.number}`);
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
app.post("/orders", guard.protect(placeOrder));
app.get("/orders/:id", ({ params }, res) => void res.send(`Order ${Number(params.id)} is placed.`));

const server = app.listen(Number(process.env["PORT"] ?? 3000), "127.0.0.1", () => {
  console.log(`A shop on Express: http://127.0.0.1:${(server.address() as AddressInfo).port}`);
});
