import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import type { Lease } from "../../src/lock/lease.ts";
import { until } from "../support/until.ts";
import type { Framework } from "./frameworks.ts";
import { gate } from "./gate.ts";
import { codeOf, type OnceOptions, onAll, openOnce, orderKey } from "./once-shop.ts";
import { shortTimes } from "./shop.ts";
import type { Turn } from "./turn.ts";

const key = orderKey;
const failure = () => Object.assign(new Error("the mail server is away"), { status: 502 });

/** Ways to end an order that is placed, in which no answer can be kept. */
const endings: [how: string, end: (turn: Turn) => unknown, status: number][] = [
  ["throws", () => Promise.reject(failure()), 502],
  ["passes an error on", (turn) => turn.fail(failure()), 502],
  ["answers 500", (turn) => turn.answer(500, { failed: true }), 500],
  ["answers 422", (turn) => turn.answer(422, { failed: true }), 422],
  [
    "keeps no answer",
    (turn) => {
      turn.submission?.doNotStore();
      turn.answer(201, { order: 7 });
    },
    201,
  ],
];

const placed = (end: (turn: Turn) => unknown) => async (turn: Turn) => {
  await sleep(1);
  turn.submission?.placed();
  return await end(turn);
};

describe.each(onAll)("P9: behind placed(), no retry runs, on $name", (framework: Framework) => {
  const open = (options: Omit<OnceOptions, "framework">) => openOnce({ framework, ...options });

  test.each(endings)("when the handler %s", async (_how, end, status) => {
    const once = await open({ handler: placed(end) });
    const first = await once.submit({ key });
    expect(first.status).toBe(status);
    await once.whenKept(1);
    const retry = await once.submit({ key });
    expect(retry.status).toBe(409);
    expect(codeOf(retry)).toBe("idempotency_answer_unavailable");
    expect(once.runs).toBe(1);
  });

  test("and an answer that can be kept is repeated", async () => {
    const once = await open({ handler: placed((turn) => turn.answer(201, { order: 7 })) });
    const [first, retry] = await once.twice({ key });
    expect(first.status).toBe(201);
    expect(retry).toMatchObject({ status: 201, body: first.body });
    expect(once.runs).toBe(1);
  });

  test.each([
    ["releases its lease", (lease: Lease) => lease.release()],
    ["disposes of its lease", (lease: Lease) => lease[Symbol.asyncDispose]()],
  ])("when the handler %s, as `await using` does", async (_how, end) => {
    const once = await open({
      handler: placed(async (turn) => {
        await end(turn.lease as Lease);
        return await turn.answer(201, { order: 7 });
      }),
    });
    expect((await once.submit({ key })).status).toBe(201);
    await once.whenKept(1);
    expect(codeOf(await once.submit({ key }))).toBe("idempotency_answer_unavailable");
    expect(once.runs).toBe(1);
  });

  test("when the client leaves, and the handler answers nothing", async () => {
    const left = gate();
    const once = await open({
      handler: (turn) => {
        turn.res.once("close", left.open);
        return placed(async () => {
          await left.opened;
          throw failure();
        })(turn);
      },
    });
    (await once.start({ key })).abort();
    await once.whenKept(1);
    expect(codeOf(await once.submit({ key }))).toBe("idempotency_answer_unavailable");
    expect(once.runs).toBe(1);
  });

  test("when nothing is ever answered, and the lease is lost", async () => {
    const once = await open({ times: shortTimes, handler: placed(() => new Promise(() => {})) });
    const call = await once.start({ key });
    const isKept = async () => (await once.records()).length === 1;
    await until(isKept, { what: "the order to be recorded", boundMs: 20_000 });
    expect(codeOf(await once.submit({ key }))).toBe("idempotency_answer_unavailable");
    expect(once.runs).toBe(1);
    call.abort();
  });

  test("and without it, a retry runs", async () => {
    const once = await open({
      handler: (turn, run) =>
        run === 1 ? Promise.reject(failure()) : turn.answer(201, { order: 7 }),
    });
    expect((await once.submit({ key })).status).toBe(502);
    await once.whenKept(0);
    expect((await once.submit({ key })).status).toBe(201);
  });
});
