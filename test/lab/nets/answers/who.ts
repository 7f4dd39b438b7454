import { setTimeout as sleep } from "node:timers/promises";
import fc from "fast-check";
import { MemoryStore, SubmitLock } from "../../../../src/index.ts";
import type { Framework } from "../../../http/frameworks.ts";
import type { Layer, Turn } from "../../../http/turn.ts";
import { freshUser } from "../../../support/ids.ts";
import { until } from "../../../support/until.ts";
import { serve } from "./play.ts";
import { type Answer, ask, textOf } from "./wire.ts";

/*
 * A handler has placed an order, refused it or failed, and something else answers: a time-out around
 * it, a serialiser or a view behind it, or a callback behind its promise. A retry runs if and only if
 * no order can be placed as far as the guard can know.
 */

const whos = ["the handler", "a time-out", "a serialiser", "a view", "a callback"] as const;
type Who = (typeof whos)[number];
const ends = ["places", "refuses", "throws"] as const;

/** A handler, and who answers for it. */
export interface WhoProgram {
  readonly framework: string;
  readonly family: Framework["family"];
  readonly who: Who;
  readonly ends: (typeof ends)[number];
  /** Whether it calls `placed()`, and where the order is refused, too early. */
  readonly placed: boolean;
  readonly status: number;
  /** Fastify: whether it returns its payload, or sends it. */
  readonly returns: boolean;
  readonly pause: boolean;
  /** Whether the handler goes on behind its answer, and has not returned when the retry comes. */
  readonly lingers: boolean;
}

export function whoProgramsOf({ family, name }: Framework): fc.Arbitrary<WhoProgram> {
  return (
    fc
      .record<WhoProgram>({
        framework: fc.constant(name),
        family: fc.constant(family),
        who: fc.constantFrom(...whos),
        ends: fc.constantFrom(...ends),
        placed: fc.boolean(),
        status: fc.constantFrom(200, 201, 202, 303),
        returns: fc.boolean(),
        pause: fc.boolean(),
        lingers: fc.boolean(),
      })
      // Elsewhere the framework itself answers as soon as the promise has resolved.
      .filter(({ who }) => who !== "a callback" || family === "express")
      .map((program) => {
        const { returns, who } = program;
        const mayLinger = family === "express" || (family === "fastify" && !returns);
        return { ...program, lingers: program.lingers && mayLinger && who === "the handler" };
      })
  );
}

/** Where the framework shows that the handler has ended well, whoever answers. */
const seen: Readonly<Record<Framework["family"], readonly Who[]>> = {
  express: ["the handler", "a callback"],
  koa: ["the handler", "a time-out", "a serialiser"],
  fastify: ["the handler", "a time-out", "a serialiser", "a view"],
  // Nothing around the guard can take its answer away; a serialiser runs in the handler.
  fetch: ["the handler", "a time-out", "a view"],
};

const failure = () => Object.assign(new Error("it has failed"), { status: 503 });
const late = "out of time";

/** Answers 503 when the handler says so, in the words of each framework. */
const timeOut: Layer = {
  express: () => (_req, res, next) => {
    res.once(late, () => res.status(503).json({ late: true }));
    next();
  },
  koa: () => (ctx, next) => {
    const over = new Promise((_resolve, reject) => ctx.res.once(late, () => reject(failure())));
    return Promise.race([next(), over]);
  },
  fastify(app, handler) {
    app.addHook("preHandler", async (_request, reply) => {
      reply.raw.once(late, () => reply.code(503).send({ late: true }));
    });
    return handler;
  },
  hono: () => async (c, next) => {
    const { outgoing } = c.env as { outgoing: NodeJS.EventEmitter };
    const over = new Promise<string>((resolve) => outgoing.once(late, () => resolve(late)));
    const work = next();
    work.catch(() => {});
    if ((await Promise.race([work, over])) !== late) return undefined;
    return c.json({ late: true }, 503);
  },
};

/** Fails once, behind the handler. */
function view(): Layer {
  let fails = true;
  const failOnce = () => {
    if (!fails) return;
    fails = false;
    throw failure();
  };
  return {
    express: () => (_req, _res, next) => next(),
    koa: () => async (_ctx, next) => {
      await next();
      failOnce();
    },
    fastify(app, handler) {
      app.addHook("preSerialization", async (_request, reply, payload) => {
        if (reply.statusCode < 500) failOnce();
        return payload;
      });
      return handler;
    },
    hono: () => async (_c, next) => {
      await next();
      failOnce();
    },
  };
}

function answer(turn: Turn, { returns, who }: WhoProgram, status: number): unknown {
  const body = who === "a serialiser" ? { big: 1n } : { order: 7 };
  const { hono, reply } = turn;
  if (hono !== undefined) return hono.respond(hono.c.json(body as object, status as 200));
  if (reply !== undefined && returns) {
    reply.code(status);
    return body;
  }
  turn.answer(status, body);
  return undefined;
}

async function perform(turn: Turn, program: WhoProgram): Promise<unknown> {
  const { ends, family, pause, placed, status, who } = program;
  if (pause) await sleep(1);
  if (placed) turn.submission?.placed();
  if (who === "a time-out") {
    turn.res.emit(late);
    await sleep(3);
  }
  if (ends === "throws") throw failure();
  if (who === "a view" && family === "express") return turn.fail(failure());
  const end = () => answer(turn, program, ends === "refuses" ? 422 : status);
  if (who !== "a callback") return end();
  setTimeout(end, 30);
  return undefined;
}

/** Whether a retry has to run, must not, or may. */
function retryOf(program: WhoProgram): "runs" | "never" | "any" {
  const { ends, family, framework, placed, who } = program;
  // Under Express' plain guard, the response's end is the end of the lease.
  const isProtected = who === "a time-out" && framework.includes("protect");
  const isSeen = isProtected || seen[family].includes(who);
  if (placed || (ends === "places" && isSeen)) return "never";
  // A view that answers 5xx in place of a refusal, or of an order that the guard cannot see.
  return who === "a callback" ? "any" : "runs";
}

export async function whoFails(program: WhoProgram, frameworks: readonly Framework[]) {
  const id = freshUser();
  const ttlMs = program.lingers ? 100 : 60_000;
  const lock = new SubmitLock({ store: new MemoryStore(), ttlMs, maxHoldMs: ttlMs });
  const { listener } = frameworks.find(({ name }) => name === program.framework) as Framework;
  let runs = 0;
  let settled: () => void = () => {};
  const hasSettled = new Promise<void>((resolve) => {
    settled = resolve;
  });
  let end: () => void = () => {};
  const isOver = new Promise<void>((resolve) => {
    end = resolve;
  });
  const isOfView = program.who === "a view";
  const isInside = isOfView && program.family === "koa";
  const layers = isOfView ? [view()] : program.who === "a time-out" ? [timeOut] : [];
  const app = listener({
    lock,
    guard: { idempotency: {} },
    outside: isInside ? [] : layers,
    inside: isInside ? layers : [],
    handler: async (turn) => {
      if (++runs > 1) return turn.answer(200, { run: runs });
      try {
        const result = await perform(turn, program);
        if (!program.lingers) return result;
        await until(() => turn.lease?.remainingMs() === 0, { what: "the loss of the lease" });
      } finally {
        setImmediate(settled);
      }
      return await isOver;
    },
  });
  const { close, port } = serve(id, app);
  const submit = (leaves?: Promise<void>): Promise<Answer> =>
    ask(port, {
      method: "POST",
      headers: {
        ...{ "x-app": id, "x-user": "user", "idempotency-key": "order-7" },
        ...{ "content-type": "application/json", accept: "application/json" },
      },
      patienceMs: 8_000,
      leaves,
    });
  const isFree = async () => {
    const attempt = await lock.acquire("user");
    if (attempt.outcome === "acquired") await attempt.lease.release();
    return attempt.outcome === "acquired";
  };
  try {
    const isCallback = program.who === "a callback" && program.ends !== "throws";
    const first = await submit(isCallback ? hasSettled : undefined);
    await hasSettled;
    // A callback is still at work, and its client has left.
    if (!isCallback) await until(isFree, { what: "the user to be free", boundMs: 8_000 });
    const before = runs;
    const retry = await submit();
    await until(isFree, { what: "the user to be free again", boundMs: 8_000 });
    const ran = runs - before;
    const expected = retryOf(program);
    if (ran > 0 && expected === "never") return `a retry ran (${first.status}, ${retry.status})`;
    if (ran === 0 && expected === "runs") return `no retry ran (${retry.status})`;
    // A repeat that waited for the run of a callback is told its answer, also a refusal (rule 25).
    const mayBeRefusal = expected === "any";
    const isReplay =
      retry.headers.has("idempotent-replayed") && (retry.status < 400 || mayBeRefusal);
    const isTold = /idempotency_(answer_unavailable|in_flight)/.test(textOf(retry));
    if (ran === 0 && !isReplay && !isTold) return `the retry got ${retry.line}: ${textOf(retry)}`;
    return isReplay && retry.body.length === 0 && program.status !== 303
      ? "a 2xx with less than the first"
      : undefined;
  } finally {
    end();
    close();
    await lock.close({ timeoutMs: 0 });
  }
}
