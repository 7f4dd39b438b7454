import { AsyncLocalStorage } from "node:async_hooks";
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import express from "express";
import { afterEach, describe, expect, onTestFinished, test } from "vitest";
import { submitGuard } from "../../src/express/index.ts";
import { RedisStore } from "../../src/index.ts";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, openLock } from "../support/locks.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { type Framework, newest, newestOnBoth, writesByHand } from "./frameworks.ts";
import { gate } from "./gate.ts";
import { listen, openClient, type Reply } from "./http-client.ts";
import { anotherCopy, sessionLayer } from "./layers.ts";
import { codeOf, everywhere, openOnce, orderKey } from "./once-shop.ts";
import { sharedRedis } from "./shop.ts";
import type { Layer, Turn } from "./turn.ts";

afterEach(closeLocks);

/** Short enough to wait for, long enough for a machine that is busy for a second. */
const times = { ttlMs: 4_000, maxHoldMs: 4_200, acquireTimeoutMs: 2_000, commandTimeoutMs: 1_000 };

/** Answers while the handler goes on: Koa does that only for a handler that writes by hand. */
function answerNow(turn: Turn, status = 201): void {
  const body = { of: turn.req.headers["x-user"] };
  if (turn.ctx === undefined) {
    turn.answer(status, body);
    return;
  }
  const res = turn.byHand();
  res.writeHead(status, { "content-type": "application/json" });
  res.end(JSON.stringify(body));
}

/** Such as a mail server that never answers. */
const forever = () => new Promise<never>(() => {});

const isLost = ({ lease }: Turn) =>
  until(() => lease?.remainingMs() === 0, { what: "the loss", boundMs: 20_000 });

interface Way {
  /** What the first client gets; `undefined` if it does not wait for the end of its answer. */
  readonly status?: number;
  readonly leaves?: boolean;
  /** What the retry gets. */
  readonly retry: "the first answer" | "no answer" | "an order";
  handle(turn: Turn): unknown;
}

/** Handlers that have answered, or begun to, and go on when their lease is lost. */
const ways: Readonly<Record<string, Way>> = {
  "waits forever": {
    status: 201,
    retry: "the first answer",
    handle(turn) {
      answerNow(turn);
      return forever();
    },
  },
  "listens to the signal": {
    status: 201,
    retry: "the first answer",
    async handle(turn) {
      turn.lease?.signal.throwIfAborted();
      answerNow(turn);
      await sleep(60_000, undefined, { signal: turn.lease?.signal, ref: false }).catch(forever);
    },
  },
  "fails later": {
    status: 201,
    retry: "the first answer",
    async handle(turn) {
      answerNow(turn);
      await isLost(turn);
      throw new Error("the mail server is away");
    },
  },
  "answers behind the loss": {
    status: 201,
    retry: "the first answer",
    async handle(turn) {
      await isLost(turn);
      answerNow(turn);
      await forever();
    },
  },
  "answers a client that has left": {
    leaves: true,
    retry: "the first answer",
    async handle(turn) {
      await new Promise((resolve) => turn.res.once("close", resolve));
      answerNow(turn);
      await forever();
    },
  },
  "has lost its key": {
    status: 201,
    retry: "the first answer",
    async handle(turn) {
      answerNow(turn);
      await command(sharedRedisPort(), "SET", turn.lease?.key ?? "", "another's", "PX", 6_000);
      await forever();
    },
  },
  "has sent a part of its answer": {
    retry: "no answer",
    handle(turn) {
      const res = turn.byHand();
      res.writeHead(201, { "content-type": "text/plain" });
      res.write("a part");
      return forever();
    },
  },
  "answers 500, and is placed": {
    status: 500,
    retry: "no answer",
    handle(turn) {
      answerNow(turn, 500);
      turn.submission?.placed();
      return forever();
    },
  },
  "answers 500": {
    status: 500,
    retry: "an order",
    handle(turn) {
      answerNow(turn, 500);
      return forever();
    },
  },
};

/** Clicks again until the order is neither in flight nor the lock another's. */
async function retried(submit: () => Promise<Reply>): Promise<Reply> {
  let retry: Reply | undefined;
  const isOver = async () => {
    retry = await submit();
    const isRefused = retry.status === 409 && codeOf(retry) !== "idempotency_answer_unavailable";
    return !isRefused && retry.status !== 503;
  };
  await until(isOver, { what: "an answer", boundMs: 30_000 });
  return retry as Reply;
}

// A handler of fetch has returned when it answers.
describe.each(newestOnBoth.filter(writesByHand))("$name", (framework: Framework) => {
  test("P9: no retry runs of an order that was answered, and is not over when its lease is lost", async () => {
    const runs = new Map<string, number>();
    const once = await openOnce({
      framework,
      times,
      handler: (turn) => {
        const user = String(turn.req.headers["x-user"]);
        runs.set(user, (runs.get(user) ?? 0) + 1);
        if (runs.get(user) === 2) return turn.answer(201, { run: 2 });
        return ways[String(turn.req.headers["x-way"])]?.handle(turn);
      },
    });
    const seen = Object.entries(ways).map(async ([name, { leaves, status }]) => {
      const user = freshUser();
      const call = once.begin({ key: orderKey, user, headers: { "x-way": name } });
      if (status !== undefined) expect((await call.reply).status).toBe(status);
      else if (!leaves) await call.begun;
      else {
        await until(() => runs.has(user), { what: "the order to start" });
        call.abort();
      }
      const {
        body,
        headers,
        status: got,
      } = await retried(() => once.submit({ key: orderKey, user }));
      const isFirst = body === JSON.stringify({ of: user }) && headers["idempotent-replayed"];
      const retry = isFirst ? "the first answer" : got === 409 ? "no answer" : "an order";
      return [name, retry, runs.get(user)];
    });
    const expected = Object.entries(ways).map(([name, { retry }]) => {
      return [name, retry, retry === "an order" ? 2 : 1];
    });
    // Middleware around the guard holds an answer back, such as a session's store that hangs.
    const heldBack = await openOnce({
      framework,
      times,
      outside: [sessionLayer(60_000)],
      handler: (turn) => turn.answer(201, { of: "a session" }),
    });
    const call = await heldBack.start({ key: orderKey });
    expect(await Promise.all(seen)).toEqual(expected);
    const records = async () => (await heldBack.records()).length;
    await until(async () => (await records()) === 1, { what: "the record", boundMs: 20_000 });
    call.abort();
  });

  test("P9: nor of one whose lock was closed while its handler went on", async () => {
    const once = await openOnce({
      framework,
      handler: (turn) => {
        answerNow(turn);
        return forever();
      },
    });
    expect((await once.submit({ key: orderKey })).status).toBe(201);
    expect(await once.records()).toEqual([]);
    await once.shop.lock.close({ timeoutMs: 0 });
    await until(async () => (await once.records()).length === 1, { what: "the record" });
  });
});

describe("rule 19: it leaves a trace until its handler returns", () => {
  const atWork = async (act: (turn: Turn) => unknown) => {
    const { opened, open } = gate();
    const once = await openOnce({
      framework: newest[0] as Framework,
      times,
      handler: async (turn) => {
        await act(turn);
        await opened;
        if (!turn.res?.headersSent) answerNow(turn);
      },
    });
    const { reply } = once.begin({ key: orderKey });
    const { lock, user } = once.shop;
    return { once, open, reply, seen: async () => (await lock.inspect(user)).outlived };
  };

  test.each<[string, (turn: Turn) => unknown]>([
    ["answered before the loss", answerNow],
    ["answered behind it", (turn) => isLost(turn).then(() => answerNow(turn))],
    ["placed behind it", (turn) => isLost(turn).then(() => turn.submission?.placed())],
  ])("where it was %s", async (_name, act) => {
    const { once, open, reply, seen } = await atWork(act);
    await until(async () => (await once.records()).length === 1, { what: "the record" });
    expect(await until(seen, { what: "the trace" })).toMatchObject([{ reason: "max-hold" }]);
    open();
    expect((await reply).status).toBe(201);
    await until(async () => (await seen()) === undefined, { what: "its end" });
  });

  test("where its lock was closed", async () => {
    const { once, open, reply } = await atWork(answerNow);
    await reply;
    await once.shop.lock.close({ timeoutMs: 0 });
    await until(async () => (await once.records()).length === 1, { what: "the record" });
    const other = openLock({ store: new RedisStore(sharedRedis()) });
    const seen = async () => (await other.inspect(once.shop.user)).outlived;
    expect(await until(seen, { what: "the trace" })).toMatchObject([{ reason: "closed" }]);
    open();
  });
});

test("P9: so it is with a lock of another copy of the package", async () => {
  const copy = await anotherCopy();
  const lock = new copy.SubmitLock({ store: new copy.Store(sharedRedis()), ...times });
  const user = freshUser();
  const guard = submitGuard({ lock, userId: () => user, idempotency: {} });
  const app = express();
  let runs = 0;
  app.post(
    "/orders",
    guard.protect(async (_req, res) => {
      res.status(201).json({ run: ++runs });
      await forever();
    }),
  );
  const server = createServer(app);
  const client = openClient(1, await listen(server));
  onTestFinished(async () => {
    client.close();
    server.close();
    await lock.close({ timeoutMs: 0 });
  });
  const submit = () => client.call({ headers: { "idempotency-key": orderKey } }).reply;
  expect((await submit()).status).toBe(201);
  const { headers, status } = await retried(submit);
  expect([status, headers["idempotent-replayed"], runs]).toEqual([201, "true", 1]);
});

test.each(everywhere)(
  "a store policy runs in its request's context, at the answer and at the loss, on $name",
  async (framework) => {
    const context = new AsyncLocalStorage<string>();
    const layer: Layer = {
      express: () => (_req, _res, next) => context.run("shop 7", next),
      koa: () => (_ctx, next) => context.run("shop 7", next),
    };
    const seen: unknown[] = [];
    const store = () => {
      seen.push(context.getStore());
      return true;
    };
    const once = await openOnce({
      ...{ framework, times, outside: [layer], guard: { idempotency: { store } } },
      async handler(turn, run) {
        if (run === 1) {
          turn.answer(201, { run });
          return;
        }
        answerNow(turn);
        await isLost(turn);
      },
    });
    expect((await once.submit({ key: randomUUID() })).status).toBe(201);
    await once.whenKept(1);
    await once.submit({ key: randomUUID() });
    await once.whenKept(2);
    expect(new Set(seen)).toEqual(new Set(["shop 7"]));
    expect(seen.length).toBeGreaterThanOrEqual(2);
  },
);
