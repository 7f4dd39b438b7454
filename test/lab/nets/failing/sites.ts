import { setTimeout as sleep } from "node:timers/promises";
import type { SubmitGuardOptions } from "../../../../src/fetch/index.ts";
import type { IdempotencyOptions } from "../../../../src/http/public.ts";
import type { LockStore, MemoryStore, SubmitLockChannels } from "../../../../src/index.ts";
import type { Framework } from "../../../http/frameworks.ts";
import { type Turn, userOf } from "../../../http/turn.ts";
import type { Fault } from "./fault.ts";
import { responseSites } from "./responses.ts";
import { acting, awaited, named, place, type Site, short, thrown } from "./site.ts";

/** A callback that is asked before the handler. */
const asked = (guard: (fault: Fault) => object): Site => ({
  ways: awaited,
  outcome: (way) =>
    way === "never settles" ? "hangs" : way === "settles twice" ? "order" : "error",
  parts: (fault) => ({ guard: { idempotency: {}, ...guard(fault) } }),
});

// biome-ignore lint/suspicious/noExplicitAny: the arguments of each framework.
const ownAnswers: Record<Framework["family"], (...args: any[]) => unknown> = {
  express: (_req, res) => res.status(299).json({}),
  koa: (ctx) => Object.assign(ctx, { status: 299, body: {} }),
  fastify: (_request, reply) => reply.code(299).send({}),
  fetch: () => Response.json({}, { status: 299 }),
};

/** A function that answers instead of the handler, in its framework's words. */
const answering = (name: string, meets: NonNullable<Site["meets"]>, idempotency = {}): Site => ({
  ways: acting,
  meets,
  // Two answers at once are the application's mistake.
  outcome: (way) => (way === "never settles" ? "hangs" : way === "acts twice" ? "any" : "error"),
  parts: (fault, { family }) => ({
    guard: { idempotency, [name]: fault.in(ownAnswers[family]) } as never,
  }),
});

type Options = SubmitGuardOptions & IdempotencyOptions<never>;
/** The options that are no function. */
type Settings = "lock" | "idempotency" | "cooldownMs" | "key" | "retainMs" | "replayHeaders";
type MoreSettings = "maxBodyBytes" | "waitMs" | "docs";

/** An option that is added without a row here does not compile. */
const ofOptions: Record<Exclude<keyof Options, Settings | MoreSettings>, Site> = {
  userId: asked((fault) => ({ userId: fault.in(userOf) })),
  skip: asked((fault) => ({ skip: fault.in(() => false) })),
  submissionId: asked((fault) => ({ idempotency: { submissionId: fault.in(() => "cart 7") } })),
  fingerprint: asked((fault) => ({ idempotency: { fingerprint: fault.in(() => "a cart") } })),
  store: {
    ...asked((fault) => ({ idempotency: { store: fault.in(() => true) } })),
    outcome: () => "order",
    mayRunAgain: true,
  },
  onAnonymous: answering("onAnonymous", "nobody"),
  onContended: answering("onContended", "a lock"),
  onUnavailable: answering("onUnavailable", "no store"),
  onKeyMissing: answering("onKeyMissing", "no key", { key: "required" }),
  onMismatch: answering("onMismatch", "other content"),
  onReplay: answering("onReplay", "its answer"),
  waitUntil: {
    ...asked((fault) => ({ waitUntil: fault.in(() => {}) })),
    ways: acting,
    runsOn: ({ family }) => family === "fetch",
    outcome: () => "order",
  },
};

/** The methods of a store that an order needs. */
type Written = Exclude<
  keyof LockStore,
  "attach" | "inspect" | "free" | "forget" | "outlive" | "recordsProblem"
>;

const ofStore: Record<Written, Partial<Site>> = {
  acquire: {},
  release: { parts: () => ({ guard: {} }) },
  complete: { mayRunAgain: true },
  extend: {
    times: { ttlMs: 600, maxHoldMs: 60_000 },
    handler: async (turn, fault) => {
      await sleep(400 * fault.pace);
      place(turn);
    },
  },
};

/** A request of a store that fails, gets lost or is answered twice, once. */
const inStore = (more: Partial<Site>, method: string): Site => ({
  ways: acting,
  outcome: () => "order",
  store: (store, fault) =>
    change(store, method as Written, (request, original) => {
      if (!fault.strikes()) return original(request);
      if (fault.way === "throws") throw fault.value;
      if (fault.way === "rejects") request.answer({ kind: "unknown", cause: new Error("lost") });
      if (fault.way !== "acts twice") return;
      const { answer } = request;
      request.answer = (reply) => {
        Reflect.apply(answer, request, [reply]);
        Reflect.apply(answer, request, [reply]);
      };
      original(request);
    }),
  ...more,
});

interface AnyRequest {
  answer(reply: object): void;
  deadlineMs?: number | undefined;
}

function change(
  store: MemoryStore,
  method: Written,
  handle: (request: AnyRequest, original: (request: AnyRequest) => void) => void,
): void {
  const original = (store[method] as (request: object) => void).bind(store);
  Object.assign(store, { [method]: (request: AnyRequest) => handle(request, original) });
}

/** Not of retires, which end long after their orders, of refusals, of outages and of forgets. */
type Heard = Exclude<
  keyof SubmitLockChannels,
  "submit-lock:retire" | "submit-lock:refusal" | "submit-lock:store" | "submit-lock:forget"
>;

const ofChannels: Record<Heard, Partial<Site>> = {
  "submit-lock:acquire": {},
  "submit-lock:release": { parts: () => ({ guard: {} }) },
  "submit-lock:complete": {},
  "submit-lock:replay": { meets: "its answer" },
  "submit-lock:lost": { times: short, handler: untilLost, mayRunAgain: true },
  "submit-lock:duplicate": {
    mayRunAgain: true,
    store: (store) =>
      change(store, "complete", ({ answer, ...request }, original) => {
        const storeTimeMs = performance.now();
        original({ ...request, answer: () => answer({ kind: "duplicate", storeTimeMs }) });
      }),
  },
};

const onChannel = (more: Partial<Site>, name: string): Site => ({
  ways: thrown,
  outcome: () => "order",
  subscribes: name,
  ...more,
});

async function untilLost(turn: Turn): Promise<void> {
  const { lease } = turn;
  if (lease !== undefined && !lease.signal.aborted) {
    await new Promise((lost) => lease.signal.addEventListener("abort", lost));
  }
  place(turn);
}

/** Everything foreign that a guard calls. */
export const sites: Readonly<Record<string, Site>> = {
  ...ofOptions,
  "the handler": {
    ways: awaited,
    outcome: (way) =>
      way === "never settles" ? "held" : way === "settles twice" ? "order" : "error",
    handler: (turn, fault) => fault.in(() => place(turn))(),
  },
  "a handler without a promise": {
    ways: thrown,
    outcome: () => "error",
    isSync: true,
    handler: (turn, fault) => fault.in(() => place(turn))(),
  },
  "a fingerprint's toJSON": {
    ...asked((fault) => ({
      idempotency: { fingerprint: () => ({ toJSON: fault.in(() => "a cart") }) },
    })),
    ways: thrown,
  },
  "a listener of the lease's signal": {
    ...onChannel({ times: short, mayRunAgain: true }, "none"),
    handler: (turn, fault) => {
      const listener = fault.in(() => {});
      turn.lease?.signal.addEventListener("abort", listener);
      return untilLost(turn);
    },
  },
  ...named(ofStore, (name) => `the store's ${name}`, inStore),
  ...named(ofChannels, (name) => `a subscriber of ${name}`, onChannel),
  ...responseSites,
};
