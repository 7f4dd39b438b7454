import { describe, expect, test } from "vitest";
import type { LockStore } from "../../../src/index.ts";
import { freshUser } from "../ids.ts";
import { openLock } from "../locks.ts";
import { submit } from "../submissions.ts";

const submission = { id: "cart 7" };

/** The value of `once`: read back from JSON, kept, and repeated. */
export function keepsValues(openStore: () => LockStore): void {
  const open = () => openLock({ store: openStore() });

  describe("the value of once", () => {
    test.each<[what: string, value: unknown, said: unknown]>([
      ["an object", { number: 7, items: ["a", null] }, { number: 7, items: ["a", null] }],
      ["undefined", undefined, undefined],
      ["null", null, null],
      ["an empty string", "", ""],
      ["false", false, false],
      ["a text", '€ \u0000 \u2028 \u{1f6d2} \r\n"\\ ]}', '€ \u0000 \u2028 \u{1f6d2} \r\n"\\ ]}'],
      ["half a character", "\ud800", "\ud800"],
      ["a date", { at: new Date(0) }, { at: "1970-01-01T00:00:00.000Z" }],
      ["members that JSON leaves out", { a: undefined, b: () => 1, c: 1 }, { c: 1 }],
      ["not a number", [Number.NaN, -0], [null, 0]],
      ["toJSON", { toJSON: () => "said" }, "said"],
      ["a member called __proto__", JSON.parse('{"__proto__":{"a":1}}'), undefined],
    ])("is what JSON says of %s, for the first caller and for a repeat", async (_what, ...pair) => {
      const [value, said] = pair;
      const expected = JSON.stringify(value)?.includes("__proto__") ? value : said;
      const [lock, user] = [open(), freshUser()];
      let runs = 0;
      const call = () =>
        lock.once(user, submission, () => {
          runs++;
          return value;
        });
      const first = await call();
      expect(first).toEqual({ value: expected, replayed: false, ageMs: 0 });
      expect(Object.keys(first)).toEqual(["value", "replayed", "ageMs"]);
      const repeat = await call();
      expect(repeat).toEqual({ value: expected, replayed: true, ageMs: expect.any(Number) });
      expect(repeat.ageMs).toBeGreaterThanOrEqual(0);
      expect(runs).toBe(1);
    });

    const circle: { self?: unknown } = {};
    circle.self = circle;
    test.each<[what: string, value: unknown]>([
      ["a BigInt", { number: 7n }],
      ["a circle", circle],
      ["a function", () => 7],
      ["a symbol", Symbol("7")],
      ["a toJSON that throws", { toJSON: () => JSON.parse("{") }],
    ])("that is %s is refused, and the submission does not run again", async (_what, value) => {
      const [lock, user] = [open(), freshUser()];
      let runs = 0;
      const call = () =>
        lock.once(user, submission, () => {
          runs++;
          return value;
        });
      const status = { status: 500, statusCode: 500, expose: false };
      await expect(call()).rejects.toMatchObject({ code: "SUBMIT_LOCK_INVALID_VALUE", ...status });
      const notKept = { code: "SUBMIT_LOCK_ANSWER_UNAVAILABLE", status: 409, statusCode: 409 };
      await expect(call()).rejects.toMatchObject(notKept);
      expect(runs).toBe(1);
      // The lock is free: the user's next submission runs.
      expect(await lock.once(user, { id: "cart 8" }, () => 8)).toMatchObject({ value: 8 });
    });

    test("of 1 MiB of JSON is kept, and one of a byte more is returned and not kept", async () => {
      const [lock, user] = [open(), freshUser()];
      const most = "x".repeat(1_048_576 - 2);
      const longer = `${"x".repeat(1_048_576 - 4)}€`;
      for (const [id, text] of Object.entries({ most, longer })) {
        const first = await lock.once(user, { id }, () => text);
        expect(first.value === text && !first.replayed).toBe(true);
      }
      const never = () => expect.fail("it ran again");
      expect((await lock.once(user, { id: "most" }, never)).value === most).toBe(true);
      const repeat = lock.once(user, { id: "longer" }, never);
      await expect(repeat).rejects.toMatchObject({ code: "SUBMIT_LOCK_ANSWER_UNAVAILABLE" });
    });

    test("is shown to acquire and lookUp as returned, and not as an answer", async () => {
      const [lock, user] = [open(), freshUser()];
      await lock.once(user, submission, () => ({ number: 7 }));
      const completed = {
        outcome: "completed",
        answer: { status: 100, headers: {}, body: undefined, returned: { value: { number: 7 } } },
        ageMs: expect.any(Number),
      };
      expect(await lock.lookUp(user, { submission })).toEqual(completed);
      expect(await submit(lock, user)).toEqual(completed);
    });

    test("is not made of the HTTP answer of another caller's complete", async () => {
      const [lock, user] = [open(), freshUser()];
      const attempt = await submit(lock, user);
      if (attempt.outcome !== "acquired") throw new Error(attempt.outcome);
      await attempt.lease.complete({ status: 200, body: '{"number":7}' });
      const call = lock.once(user, submission, () => expect.fail("it ran again"));
      await expect(call).rejects.toMatchObject({ code: "SUBMIT_LOCK_ANSWER_UNAVAILABLE" });
    });

    test("is forgotten after retainMs, and the submission runs again", async () => {
      const [lock, user] = [openLock({ store: openStore(), acquireTimeoutMs: 500 }), freshUser()];
      const brief = { ...submission, retainMs: 1_000 };
      await lock.once(user, brief, () => 1);
      expect(await lock.once(user, brief, () => 2)).toMatchObject({ value: 1, replayed: true });
      await new Promise((resolve) => setTimeout(resolve, 1_100));
      expect(await lock.once(user, brief, () => 3)).toMatchObject({ value: 3, replayed: false });
    });
  });
}
