import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { all, type Framework } from "./frameworks.ts";
import { gate } from "./gate.ts";
import { codeOf, onAll, openOnce, openWaiting, orderKey, unmarked } from "./once-shop.ts";
import type { Turn } from "./turn.ts";

/** As long as a fast order takes. */
const fast = async (turn: Turn, run: number) => {
  await sleep(50);
  turn.answer(201, { run });
};

/** How a shop tells that two clicks mean one order. */
const ids = [
  { by: "the header", guard: {}, key: orderKey },
  { by: "the cart's version", guard: { idempotency: { submissionId: () => "cart-7:3" } }, key: "" },
];

describe.each(all)("$name", (framework: Framework) => {
  test.each(ids)("two clicks that $by makes one run once, however far apart", async (by) => {
    const { guard, key } = by;
    const double = async (gapMs: number) => {
      const once = await openOnce({ framework, guard, handler: fast });
      const call = once.begin({ key });
      await sleep(gapMs);
      const replies = [await once.submit({ key }), await call.reply];
      await once.whenKept(1);
      const third = await once.submit({ key });
      expect(third).toMatchObject({ status: 201, body: '{"run":1}' });
      expect(third.headers["idempotent-replayed"]).toBe("true");
      // On a busy machine one of the two may meet the other at work, and either may come first.
      const refused = replies.filter(({ status }) => status === 409);
      expect(refused.map(codeOf)).toEqual(refused.map(() => "idempotency_in_flight"));
      const answered = replies.filter(({ status }) => status !== 409);
      expect(answered.length).toBeGreaterThan(0);
      for (const reply of answered) expect(unmarked(reply)).toEqual(unmarked(third));
      expect(once.runs).toBe(1);
    };
    await Promise.all([60, 300].map(double));
  });

  test("a second click without any id is kept out by a cooldown", async () => {
    const double = async (gapMs: number) => {
      const guard = { idempotency: {}, cooldownMs: 30_000 };
      const once = await openOnce({ framework, guard, handler: fast });
      const call = once.begin();
      await sleep(gapMs);
      const replies = [await once.submit(), await call.reply];
      const refused = replies.filter(({ status }) => status === 409);
      expect(refused.map(codeOf)).toEqual(["submit_contended"]);
      expect(once.runs).toBe(1);
    };
    await Promise.all([60, 300].map(double));
  });
});

describe.each(onAll)("$name", (framework: Framework) => {
  test("a retry while the first is at work is told so, and what it finds stays as it is", async () => {
    const { goOn, once } = await openWaiting({ framework });
    const body = { cart: 7 };
    const first = await once.start({ key: orderKey, body });
    const before = await once.everything();
    const same = await once.submit({ key: orderKey, body });
    expect([same.status, codeOf(same)]).toEqual([409, "idempotency_in_flight"]);
    expect(same.headers["retry-after"]).toBe("1");
    // Another payload is the client's mistake, whoever is at work: it is told so before the 409.
    const other = await once.submit({ key: orderKey, body: { cart: 8 } });
    expect([other.status, codeOf(other)]).toEqual([422, "idempotency_conflict"]);
    expect(other.headers["retry-after"]).toBeUndefined();
    const another = await once.submit({ key: "another-order", body });
    expect([another.status, codeOf(another)]).toEqual([409, "submit_contended"]);
    expect(await once.everything()).toEqual(before);
    goOn();
    expect((await first.reply).status).toBe(201);
    expect(once.runs).toBe(1);
  });

  test("an answer is repeated while another order of the user is at work", async () => {
    const goOn = gate();
    const once = await openOnce({
      framework,
      handler: async (turn, run) => {
        if (run === 2) await goOn.opened;
        turn.answer(201, { run });
      },
    });
    const first = await once.submit({ key: "first" });
    await once.whenKept(1);
    const second = once.begin({ key: "second" });
    while (once.runs === 1) await sleep(1);
    expect(unmarked(await once.submit({ key: "first" }))).toEqual(unmarked(first));
    goOn.open();
    expect((await second.reply).body).toBe('{"run":2}');
    expect(once.runs).toBe(2);
  });
});
