import { randomUUID } from "node:crypto";
import express from "express";
import session from "express-session";
import { Redis } from "ioredis";
import { RedisStore, SubmitLock } from "submit-lock";
import { submitGuard } from "submit-lock/express";

const { PAYMENTS_URL, PORT, REDIS_URL } = process.env;

const lock = new SubmitLock({ store: new RedisStore(new Redis(REDIS_URL)) });
await lock.check({ submissions: true });

const app = express();
app.use(express.urlencoded({ extended: false }));
// In the memory of this process, as nothing else is said; several processes need a store.
app.use(session({ secret: randomUUID(), resave: false, saveUninitialized: false }));

app.post("/sign-in", (req, res) => {
  req.session.userId = req.body.user; // where your shop verifies a password
  res.redirect(303, "/checkout");
});

app.get("/checkout", (_req, res) => {
  res
    .set("Cache-Control", "private, no-cache")
    .type("html")
    .send(`
    <form method="post" action="/orders">
      <input type="hidden" name="submission" value="${randomUUID()}">
      <button>Place the order</button>
    </form>`);
});

const guard = submitGuard({
  lock,
  userId: (req) => req.session.userId,
  idempotency: { submissionId: (req) => req.body.submission, waitMs: 10_000 },
});
app.post(
  "/orders",
  guard.protect(async (req, res) => {
    const paid = await fetch(PAYMENTS_URL, { method: "POST", signal: req.submitLease.signal });
    const { charge } = await paid.json();
    req.session.lastOrder = charge;
    res.redirect(303, `/orders/${charge}`);
  }),
);
app.get("/orders/:number", (req, res) => {
  res.send(`Order ${req.params.number}; the last one of this session: ${req.session.lastOrder}.`);
});

app.listen(Number(PORT), "127.0.0.1");
