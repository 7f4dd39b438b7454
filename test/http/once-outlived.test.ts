import { describe, expect, test } from "vitest";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { type Framework, newestOnBoth, writesByHand } from "./frameworks.ts";
import type { Reply } from "./http-client.ts";
import { codeOf, type OnceShop, openOnce, orderKey } from "./once-shop.ts";
import type { Turn } from "./turn.ts";

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

/** Handlers that have answered, and go on when their lease is lost. */
const ways: Record<string, (turn: Turn) => unknown> = {
  "waits forever": (turn) => {
    answerNow(turn);
    return forever();
  },
  "fails later": async (turn) => {
    answerNow(turn);
    await isLost(turn);
    throw new Error("the mail server is away");
  },
  "returns later": async (turn) => {
    answerNow(turn);
    await isLost(turn);
  },
  "answers behind the loss": async (turn) => {
    await isLost(turn);
    answerNow(turn);
    await forever();
  },
  "answers a client that has left": async (turn) => {
    await new Promise((resolve) => turn.res.once("close", resolve));
    answerNow(turn);
    await forever();
  },
  "has lost its key": async (turn) => {
    answerNow(turn);
    await command(sharedRedisPort(), "SET", turn.lease?.key ?? "", "somebody else", "PX", 6_000);
    await forever();
  },
  "answers 500, and is placed": async (turn) => {
    answerNow(turn, 500);
    turn.submission?.placed();
    await forever();
  },
  "answers 500": (turn) => {
    answerNow(turn, 500);
    return forever();
  },
};

/** Clicks again until the order is neither in flight nor the lock another's. */
async function retried({ submit }: OnceShop, user: string): Promise<Reply> {
  let retry: Reply | undefined;
  const isOver = async () => {
    retry = await submit({ key: orderKey, user });
    const isRefused = retry.status === 409 && codeOf(retry) !== "idempotency_answer_unavailable";
    return !isRefused && retry.status !== 503;
  };
  await until(isOver, { what: "an answer", boundMs: 30_000 });
  return retry as Reply;
}

// A handler of fetch has returned when it answers.
describe.each(newestOnBoth.filter(writesByHand))("$name", (framework: Framework) => {
  test("P9: no retry runs of an order that was answered, and whose handler goes on beyond its lease", async () => {
    const runs = new Map<string, number>();
    const once = await openOnce({
      framework,
      times: { ttlMs: 4_000, maxHoldMs: 4_200, acquireTimeoutMs: 2_000, commandTimeoutMs: 1_000 },
      handler: (turn) => {
        const user = String(turn.req.headers["x-user"]);
        runs.set(user, (runs.get(user) ?? 0) + 1);
        if (runs.get(user) === 2) return turn.answer(201, { run: 2 });
        return ways[String(turn.req.headers["x-way"])]?.(turn);
      },
    });
    const seen = Object.keys(ways).map(async (way) => {
      const user = freshUser();
      const call = once.begin({ key: orderKey, user, headers: { "x-way": way } });
      if (way === "answers a client that has left") {
        await until(() => runs.has(user), { what: "the order to start" });
        call.abort();
      } else expect((await call.reply).status).toBe(way.startsWith("answers 500") ? 500 : 201);
      const { body, headers, status } = await retried(once, user);
      const isFirst = body === JSON.stringify({ of: user }) && headers["idempotent-replayed"];
      return [way, runs.get(user), isFirst ? "the first answer" : status];
    });
    expect(await Promise.all(seen)).toEqual(
      Object.keys(ways).map((way) => {
        if (way === "answers 500") return [way, 2, 201];
        return [way, 1, way === "answers 500, and is placed" ? 409 : "the first answer"];
      }),
    );
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
