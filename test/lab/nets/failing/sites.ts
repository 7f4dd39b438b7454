import { setTimeout as sleep } from "node:timers/promises";
import type { SubmitGuardOptions } from "../../../../src/fetch/index.ts";
import type { IdempotencyOptions } from "../../../../src/http/public.ts";
import { type LockStore, MemoryStore, type SubmitLockChannels } from "../../../../src/index.ts";
import type { Framework } from "../../../http/frameworks.ts";
import type { AppParts, Turn } from "../../../http/turn.ts";
import { userOf } from "../../../http/turn.ts";
import { responseSites } from "./responses.ts";
import { acting, awaited, place, type Site, short, thrown } from "./site.ts";

/** A callback that is asked before the handler. */
const asked = (parts: NonNullable<Site["parts"]>): Site => ({
  ways: awaited,
  outcome: (way) =>
    way === "never settles" ? "hangs" : way === "settles twice" ? "order" : "error",
  parts,
});

/** A function that answers instead of the handler, in its framework's words. */
function answering(name: string, meets: NonNullable<Site["meets"]>, options: object = {}): Site {
  return {
    ways: acting,
    meets,
    // Two answers at once are the application's mistake: what its framework makes of it.
    outcome: (way) => (way === "never settles" ? "hangs" : way === "acts twice" ? "any" : "error"),
    parts: (fault, { family }) => ({
      guard: { idempotency: {}, ...options, [name]: fault.in(ownAnswers[family]) } as never,
    }),
  };
}

// biome-ignore lint/suspicious/noExplicitAny: the arguments of each framework.
const ownAnswers: Record<Framework["family"], (...args: any[]) => unknown> = {
  express: (_req, res) => res.status(299).json({}),
  koa: (ctx) => Object.assign(ctx, { status: 299, body: {} }),
  fastify: (_request, reply) => reply.code(299).send({}),
  fetch: () => Response.json({}, { status: 299 }),
};

const withId = (idempotency: object): Partial<AppParts> => ({ guard: { idempotency } });

type Options = SubmitGuardOptions & IdempotencyOptions<never>;
/** The options that are no function. */
type Settings =
  | "lock"
  | "idempotency"
  | "cooldownMs"
  | "key"
  | "retainMs"
  | "replayHeaders"
  | "maxBodyBytes"
  | "waitMs"
  | "docs";

/** A new option without a row here does not compile. */
const ofOptions: Record<Exclude<keyof Options, Settings>, Site> = {
  userId: asked((fault) => ({ guard: { idempotency: {}, userId: fault.in(userOf) } })),
  skip: asked((fault) => ({ guard: { idempotency: {}, skip: fault.in(() => false) } })),
  submissionId: asked((fault) => withId({ submissionId: fault.in(() => "cart 7") })),
  fingerprint: asked((fault) => withId({ fingerprint: fault.in(() => "a cart") })),
  store: {
    ways: awaited,
    outcome: () => "order",
    mayRunAgain: true,
    parts: (fault) => withId({ store: fault.in(() => true) }),
  },
  onAnonymous: answering("onAnonymous", "nobody"),
  onContended: answering("onContended", "a lock"),
  onUnavailable: answering("onUnavailable", "no store"),
  onKeyMissing: answering("onKeyMissing", "no key", { idempotency: { key: "required" } }),
  onMismatch: answering("onMismatch", "other content"),
  onReplay: answering("onReplay", "its answer"),
  waitUntil: {
    ways: acting,
    runsOn: ({ family }) => family === "fetch",
    outcome: () => "order",
    parts: (fault) => ({ guard: { idempotency: {}, waitUntil: fault.in(() => {}) } as never }),
  },
};

/** A request of a store that is lost, refused or answered twice, once. */
const inStore = (method: "acquire" | "extend" | "release" | "complete", more?: Partial<Site>) =>
  ({
    ways: acting,
    outcome: () => "order",
    store: (fault) => {
      const store = new MemoryStore();
      const original = store[method] as (request: object) => void;
      // biome-ignore lint/suspicious/noExplicitAny: the request of any method.
      const handle = (request: any) => {
        if (!fault.isArmed || fault.hasStruck) return Reflect.apply(original, store, [request]);
        fault.hasStruck = true;
        if (fault.way === "throws") throw fault.value;
        if (fault.way === "rejects") request.answer({ kind: "unknown", cause: new Error("lost") });
        if (fault.way !== "acts twice") return;
        const { answer } = request;
        request.answer = (reply: unknown) => {
          Reflect.apply(answer, request, [reply]);
          Reflect.apply(answer, request, [reply]);
        };
        Reflect.apply(original, store, [request]);
      };
      return Object.assign(store, { [method]: handle });
    },
    ...more,
  }) satisfies Site;

/** Those that an order needs. */
type Written = Exclude<keyof LockStore, "attach" | "inspect" | "free" | "recordsProblem">;
const ofStore: Record<Written, Site> = {
  acquire: inStore("acquire"),
  release: inStore("release", { parts: () => ({ guard: {} }) }),
  complete: inStore("complete", { mayRunAgain: true }),
  extend: inStore("extend", {
    times: { ttlMs: 600, maxHoldMs: 60_000 },
    handler: async (turn) => {
      await sleep(400);
      place(turn);
    },
  }),
};

/** What leads to a message on each channel. */
const ofChannels: Record<keyof SubmitLockChannels | "submit-lock:replay", Partial<Site>> = {
  "submit-lock:acquire": {},
  "submit-lock:release": { parts: () => ({ guard: {} }) },
  "submit-lock:complete": {},
  "submit-lock:replay": { meets: "its answer", outcome: () => "order" },
  "submit-lock:lost": { times: short, handler: untilLost, mayRunAgain: true },
  "submit-lock:retire": inStoreSilent(),
  "submit-lock:duplicate": { times: short, handler: untilLost, mayRunAgain: true },
};

async function untilLost(turn: Turn): Promise<void> {
  const { lease } = turn;
  if (lease !== undefined && !lease.signal.aborted) {
    await new Promise((lost) => lease.signal.addEventListener("abort", lost));
  }
  place(turn);
}

/** The first acquire is never answered: its owner id is retired at the end. */
function inStoreSilent(): Partial<Site> {
  return {
    store: () => {
      const store = new MemoryStore();
      const original = store.acquire.bind(store);
      let isFirst = true;
      store.acquire = (request) => {
        if (!isFirst) return original(request);
        isFirst = false;
        request.deadlineMs = performance.now() + 60_000;
      };
      return store;
    },
  };
}

const onChannel = (name: string, more: Partial<Site>): Site => ({
  ways: thrown,
  outcome: () => "order",
  isUncaught: true,
  subscribes: name,
  ...more,
});

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
    ways: thrown,
    outcome: () => "error",
    parts: (fault) => withId({ fingerprint: () => ({ toJSON: fault.in(() => "a cart") }) }),
  },
  ...Object.fromEntries(
    Object.entries(ofStore).map(([name, site]) => [`the store's ${name}`, site]),
  ),
  ...Object.fromEntries(
    Object.entries(ofChannels).map(([name, more]) => [
      `a subscriber of ${name}`,
      onChannel(name, more),
    ]),
  ),
  "a listener of the lease's signal": {
    ways: thrown,
    outcome: () => "order",
    isUncaught: true,
    mayRunAgain: true,
    times: short,
    handler: (turn, fault) => {
      turn.lease?.signal.addEventListener(
        "abort",
        fault.in(() => {}),
      );
      return untilLost(turn);
    },
  },
  ...responseSites,
};
