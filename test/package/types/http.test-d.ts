// Compile-only: `tsc -p test` is the test, and each `@ts-expect-error` fails it when the line compiles.
import { IncomingMessage, type ServerResponse } from "node:http";
import express, { type Request, type RequestHandler, Router } from "express";
import Koa, { type Context, type Middleware } from "koa";
import { type Lease, MemoryStore, SubmitLock } from "submit-lock";
import {
  type IdempotencyOptions,
  type RequestSubmission,
  type StorePolicy,
  type SubmitGuard,
  submitGuard,
} from "submit-lock/express";
import { submitGuard as koaGuard } from "submit-lock/koa";

type Same<A, B> =
  (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
function same<A, B>(..._proof: Same<A, B> extends true ? [] : [never]): void {}

const lock = new SubmitLock({ store: new MemoryStore() });
const app = express();
const router = Router();

// Express: a guard is one middleware for every route, and the route's own types are kept.
const guard: SubmitGuard = submitGuard({ lock, userId: (req) => req.ip });
app.use(guard);
app.use("/shop", guard, router);
app.post("/carts/:cart/orders/:order", guard, (req, res) => {
  same<typeof req.params.cart, string>();
  same<typeof req.params.order, string>();
  same<typeof req.submitLease, Lease | undefined>();
  // @ts-expect-error this route has no such parameter
  req.params.user;
  // @ts-expect-error it may be absent
  req.submitLease.signal;
  const signal: AbortSignal | undefined = req.submitLease?.signal;
  res.json({ aborted: signal?.aborted });
});
router.post("/orders/:order", guard, async (req, res) => {
  same<typeof req.params, { order: string }>();
  res.status(201).json({ order: req.params.order });
});

// Express: `protect` gives back a handler of three parameters with the types of the route.
app.post(
  "/orders/:order",
  guard.protect(async (req, res) => {
    same<typeof req.params, { order: string }>();
    // @ts-expect-error this route has no such parameter
    req.params.user;
    const remaining: number | undefined = req.submitLease?.remainingMs();
    res.json({ remaining });
  }),
  (req, _res, next) => {
    same<typeof req.params, { order: string }>();
    next();
  },
);
router.post(
  "/carts/:cart/orders",
  // A handler without parameters says nothing of the route.
  guard.protect(() => {}),
  guard.protect((req, res, next) => {
    same<typeof req.params.cart, string>();
    if (req.params.cart === "") return next("route");
    res.end();
  }),
);
app.post<"/orders/:order", { order: string }, { placed: true }, { items: string[] }>(
  "/orders/:order",
  guard.protect(async (req, res) => {
    same<typeof req.body.items, string[]>();
    res.json({ placed: true });
    // @ts-expect-error no such answer
    res.json({ placed: 1 });
  }),
);
type PlaceOrder = RequestHandler<{ order: string }, { placed: true }, { items: string[] }>;
const placeOrder: PlaceOrder = async (req, res) => {
  const items: string[] = req.body.items;
  res.json({ placed: items.length > 0 || true });
};
const protectedOrder = guard.protect(placeOrder);
same<typeof protectedOrder, PlaceOrder>();
app.post("/orders/:order", protectedOrder);

// Express: whatever a handler takes and returns, the protected one is called with all three.
const ofNothing = guard.protect(async () => {});
const ofThree = guard.protect(async (_req, answer, goOn) => (answer.headersSent ? goOn() : 42));
const ofRequest = guard.protect((req: Request) => void req.ip);
same<typeof ofRequest, RequestHandler>();
// @ts-expect-error it needs all three
void ofNothing();
app.use(
  ofNothing,
  guard.protect((_req, answer) => answer.json({})),
  guard.protect(ofThree),
);

// Express: what is no handler cannot be protected.
// @ts-expect-error an error handler
guard.protect((_error: Error, _req: Request, _res: express.Response, next: () => void) => {
  next();
});
// @ts-expect-error nothing
guard.protect(undefined);

// Express: bare Node requests and responses are enough for a guard.
declare const res: ServerResponse;
guard(new IncomingMessage(null as never), res, () => {});

// Express: a request type of one's own.
interface SignedIn extends Request {
  account?: { id: bigint };
}
app.post(
  "/orders",
  guard.protect(async (req: SignedIn, answer: express.Response) => {
    answer.json({ account: req.account?.id.toString() });
  }),
);
submitGuard<SignedIn>({ lock, userId: (req) => req.account?.id });
submitGuard({ lock, userId: (req: SignedIn) => req.account?.id });
submitGuard({ lock, userId: async (req: IncomingMessage) => req.headers["x-user"]?.toString() });
// @ts-expect-error the default request has no account
submitGuard({ lock, userId: (req) => req.account?.id });

// Express: answers. What an info holds, the API report shows.
submitGuard({
  lock,
  userId: (req) => req.get("x-user"),
  skip: async (req) => req.path === "/orders/preview",
  onAnonymous: (_req, answer) => answer.redirect("/login"),
  onContended: (_req, answer, next, { expiresInMs }) => {
    answer.status(409).json({ tryAgain: expiresInMs.toFixed() });
    // @ts-expect-error it takes an error and nothing else
    next();
  },
  onUnavailable: async (_req, _res, next, { cause }) => next(cause),
});

koaGuard({
  lock,
  userId: () => 42,
  onAnonymous: (ctx) => ctx.redirect("/login"),
  onContended: (ctx, { expiresInMs }) => ctx.throw(409, { expiresInMs }),
  onUnavailable: async (ctx, { cause }) => ctx.throw(503, cause),
}) satisfies Middleware<{ submitLease?: Lease }>;

// Koa: a request may be let through without a lease, an OPTIONS always is.
for (const options of [
  {},
  { onAnonymous: "proceed" },
  { onUnavailable: "proceed" },
  { skip: (ctx: Context) => ctx.path === "/health" },
] as const) {
  new Koa().use(koaGuard({ lock, userId: () => 42n, ...options })).use((ctx) => {
    same<typeof ctx.state.submitLease, Lease | undefined>();
    // @ts-expect-error it may be absent
    ctx.state.submitLease.signal;
    const signal: AbortSignal | undefined = ctx.state.submitLease?.signal;
    ctx.body = { aborted: signal?.aborted };
  });
}

// Koa: a context of one's own.
interface State {
  user?: { id: string };
}
type SignedInContext = Koa.ParameterizedContext<State>;
koaGuard<SignedInContext>({ lock, userId: (ctx) => ctx.state.user?.id });
new Koa<State>()
  .use(koaGuard({ lock, userId: (ctx: SignedInContext) => ctx.state.user?.id }))
  .use((ctx) => {
    same<typeof ctx.state.submitLease, Lease | undefined>();
    const user: string | undefined = ctx.state.user?.id;
    ctx.body = { user };
  });

// Express: submissions.
interface WithCart extends Request {
  cart: { id: string; version: number };
}
const onceGuard: SubmitGuard = submitGuard({
  lock,
  userId: (req: WithCart) => req.ip,
  cooldownMs: 1_500,
  idempotency: {
    key: "required",
    submissionId: (req) => `${req.cart.id}:${req.cart.version}`,
    fingerprint: async (req) => [req.body, req.query],
    retainMs: 60_000,
    store: ({ status, headers, body }) => {
      same<typeof body, Uint8Array | undefined>();
      return status === 402 && headers["location"] === undefined;
    },
    replayHeaders: ["X-Order"],
    maxBodyBytes: 0,
    waitMs: 5_000,
    docs: "https://shop.example/docs",
  },
  onReplay: (req, answer, next, { answer: first }) => {
    // @ts-expect-error it takes an error and nothing else
    next();
    answer.status(first.status).json({ cart: req.cart.id });
  },
});
app.post(
  "/orders",
  onceGuard.protect(async (req, answer) => {
    same<typeof req.submission, RequestSubmission | undefined>();
    // @ts-expect-error it may be absent
    req.submission.id;
    // @ts-expect-error it is read only
    if (req.submission !== undefined) req.submission.id = "";
    answer.sendStatus(201);
  }),
);

// Koa: the same, on a context.
new Koa()
  .use(
    koaGuard({
      lock,
      userId: (ctx) => ctx.get("x-user"),
      cooldownMs: 0,
      idempotency: { submissionId: async (ctx) => ctx.get("x-cart"), store: "final" },
      onKeyMissing: (ctx, { reason }) => ctx.throw(400, reason),
      onMismatch: (ctx, { inFlight }) => ctx.throw(422, { inFlight }),
      onReplay: (ctx, { answer }) => {
        ctx.status = answer.status;
      },
    }),
  )
  .use((ctx) => {
    same<typeof ctx.state.submission, RequestSubmission | undefined>();
    ctx.state.submission?.doNotStore();
  });

// Both: the options by themselves, for whoever makes them elsewhere.
const policies: StorePolicy[] = ["success", "final", ({ status }) => status < 300];
const byHeader: IdempotencyOptions<IncomingMessage> = { store: policies[0] };
submitGuard({ lock, userId: () => "42", idempotency: byHeader });
for (const submissionId of [() => undefined, () => null, () => ""]) {
  submitGuard({ lock, userId: () => "42", idempotency: { submissionId } });
}

// Both: a lock of another copy of the package, whose private members are others.
declare const another: Pick<SubmitLock, keyof SubmitLock>;
submitGuard({ lock: another, userId: () => "42" });
koaGuard({ lock: another, userId: () => "42" });
// @ts-expect-error an object that acquires is no lock
submitGuard({ lock: { acquire: another.acquire }, userId: () => "42" });

// Both: an option may be undefined.
submitGuard({ lock, userId: () => null, skip: undefined, onContended: undefined });
koaGuard({ lock, userId: () => "", onAnonymous: undefined, onUnavailable: undefined });

const userId = () => "42";
// @ts-expect-error the lock is required
submitGuard({ userId });
// @ts-expect-error the user is required
koaGuard({ lock });
// @ts-expect-error a store is no lock
submitGuard({ lock: new MemoryStore(), userId });
// @ts-expect-error an unknown option
submitGuard({ lock, userId, onConflict: () => {} });
// @ts-expect-error a user id is a string, a number or a bigint
submitGuard({ lock, userId: () => ({ id: 42 }) });
// @ts-expect-error contention cannot be waved through
submitGuard({ lock, userId, onContended: "proceed" });
// @ts-expect-error no such word
submitGuard({ lock, userId, onUnavailable: "open" });
// @ts-expect-error an unknown option
submitGuard({ lock, userId, idempotency: { ttlMs: 1 } });
// @ts-expect-error an id is a text
submitGuard({ lock, userId, idempotency: { submissionId: () => 42 } });
// @ts-expect-error a verdict is no promise
submitGuard({ lock, userId, idempotency: { store: async () => true } });
// @ts-expect-error an unknown option
koaGuard({ lock, userId, onConflict: () => {} });
