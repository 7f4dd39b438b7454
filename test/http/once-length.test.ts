import { Readable } from "node:stream";
import { describe, expect, test } from "vitest";
import { until } from "../support/until.ts";
import { all, expresses, type Framework } from "./frameworks.ts";
import { gate } from "./gate.ts";
import { openOnce, orderKey } from "./once-shop.ts";
import type { Turn } from "./turn.ts";

/** Has all of its bytes at once, and its end never: as a file of which the end is read later. */
function unended(): Readable {
  const source = new Readable({ read() {} });
  source.push("[1,2]");
  return source;
}

function declareLength({ ctx, reply, res }: Turn): void {
  if (reply !== undefined) reply.code(201).header("content-length", 5);
  else if (ctx !== undefined) Object.assign(ctx, { status: 201, length: 5 });
  else res.writeHead(201, { "content-length": 5, "content-type": "application/json" });
}

type Way = [string, answer: (turn: Turn) => unknown, fits: (it: Framework) => boolean];

const ways: Way[] = [
  [
    "a stream",
    async (turn) => {
      // Koa takes the length off for a body that is a stream.
      if (turn.ctx === undefined) declareLength(turn);
      const sent = turn.stream(unended());
      if (turn.ctx !== undefined) declareLength(turn);
      await sent;
    },
    ({ name, family }) => family !== "fetch" && name !== "Express 4, plain guard",
  ],
  [
    "a stream that is not awaited",
    (turn) => {
      declareLength(turn);
      unended().pipe(turn.res);
    },
    ({ family }) => family === "express",
  ],
  [
    "its own writes",
    (turn) => {
      declareLength(turn);
      turn.res.write("[1,2]");
    },
    ({ family }) => family === "express",
  ],
];

const cases = all
  .filter(({ http }) => http === 1)
  .flatMap((framework) =>
    ways
      .filter(([, , fits]) => fits(framework))
      .map(([name, answer]) => [framework.name, name, framework, answer] as const),
  );

// nginx closes its connection to the shop as soon as it has the declared length. A handler whose
// stream has not ended by then never calls `res.end`, and `pipeline` fails.
describe("a client that closes when it has all of the declared length", () => {
  test.each(cases)("on %s, with %s, was answered", async (_framework, _way, framework, answer) => {
    const once = await openOnce({ framework, handler: (turn) => answer(turn) });
    const { redis, user } = once.shop;
    const submit = { key: orderKey, headers: { connection: "close" } };
    expect(await once.begin(submit).reply).toMatchObject({ status: 201, body: "[1,2]" });
    await until(
      async () => {
        const value = await redis.get(`lock:submit:${user}`);
        // Neither the second of Koa after a client that has left, nor `maxHoldMs`.
        expect(value ?? "").not.toMatch(/^cooldown:/);
        return value === null;
      },
      { what: "a free lock" },
    );
    const retry = await once.begin(submit).reply;
    expect(once.runs).toBe(1);
    // Koa and Fastify keep no stream.
    if (framework.family !== "express") expect(retry.status).toBe(409);
    else expect(retry).toMatchObject({ status: 201, body: "[1,2]" });
  });
});

test.each(expresses)(
  "a byte less, and a client that closes has left, on $name",
  async (framework) => {
    const { opened: goOn, open } = gate();
    const left = gate();
    const once = await openOnce({
      framework,
      handler: async (turn) => {
        declareLength(turn);
        turn.res.write("[1,2");
        turn.res.once("close", left.open);
        await goOn;
        turn.res.end("]");
      },
    });
    const call = await once.start({ key: orderKey });
    call.abort();
    await left.opened;
    const other = await once.submit({ key: "another" });
    expect(other.headers["submit-lock-code"]).toBe("submit_contended");
    open();
    await once.whenKept(1);
    expect(once.runs).toBe(1);
  },
);

test.each(expresses)(
  "an error of the declared length is not a success behind a time-out, on $name",
  async (framework) => {
    const once = await openOnce({
      framework,
      handler: async (turn, run) => {
        if (run === 2) return turn.answer(201, { run });
        const closed = gate();
        turn.res.once("close", closed.open);
        turn.res.writeHead(500, { "content-length": 5 });
        turn.res.write("[1,2]");
        await closed.opened;
        turn.res.end();
      },
    });
    const submit = { key: orderKey, headers: { connection: "close" } };
    expect((await once.begin(submit).reply).status).toBe(500);
    await until(async () => (await once.shop.owner()) === null, { what: "a free lock" });
    expect((await once.begin(submit).reply).status).toBe(201);
  },
);
