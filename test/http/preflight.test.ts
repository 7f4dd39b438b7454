import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { allMain, type Framework } from "./frameworks.ts";
import { openOnce, orderKey } from "./once-shop.ts";
import type { Turn } from "./turn.ts";

const preflight = { origin: "https://shop.example", "access-control-request-method": "POST" };

describe.each(allMain)("OPTIONS on $name", (framework: Framework) => {
  test("is locked like any other request of a handler that takes all methods", async () => {
    const once = await openOnce({
      framework,
      handler: async (turn) => {
        await sleep(50);
        turn.answer(201, { hasLease: turn.lease !== undefined });
      },
    });
    const submit = () => once.submit({ method: "OPTIONS", key: orderKey });
    const replies = await Promise.all(Array.from({ length: 20 }, submit));
    for (const { status } of replies) expect([201, 409]).toContain(status);
    expect(once.runs).toBe(1);
  });

  test.each([
    { authorization: "Bearer a" },
    { "content-type": "application/json" },
    { cookie: "session=a" },
    { "idempotency-key": "a" },
  ])("is no preflight with %j, which no browser sends", async (header) => {
    const handler = (turn: Turn) => turn.answer(200, { hasLease: turn.lease !== undefined });
    const once = await openOnce({ framework, handler });
    const headers = { ...preflight, ...header };
    const { body } = await once.submit({ method: "OPTIONS", headers });
    expect(JSON.parse(body)).toEqual({ hasLease: true });
  });

  test("is a preflight with both headers of one, and passes without a lock", async () => {
    const once = await openOnce({
      framework,
      handler: (turn) => turn.answer(200, { hasLease: turn.lease !== undefined }),
    });
    for (const [headers, hasLease] of [
      [preflight, false],
      [{ origin: preflight.origin }, true],
      [{ "access-control-request-method": "POST" }, true],
    ] as const) {
      const { body } = await once.submit({ method: "OPTIONS", headers });
      expect(JSON.parse(body)).toEqual({ hasLease });
      await once.shop.keyIsGone();
    }
    // No other method has a preflight.
    const { body } = await once.submit({ headers: preflight });
    expect(JSON.parse(body)).toEqual({ hasLease: true });
  });
});
