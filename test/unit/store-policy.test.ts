import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { StorePolicy } from "../../src/http/public.ts";
import { isStored } from "../../src/http/stored-answer.ts";

const statuses = Array.from({ length: 500 }, (_, i) => i + 100);
const kept = (policy: StorePolicy) =>
  statuses.filter((status) => isStored(policy, { status, headers: {} }));

describe("an answer is kept", () => {
  test("where it is 2xx or 3xx, by default", () => {
    expect(kept("success")).toEqual(statuses.filter((status) => status >= 200 && status < 400));
  });

  test('also where it is 4xx with "final", but for those that speak of the moment', () => {
    const passing = [401, 403, 407, 408, 409, 421, 423, 425, 429];
    expect(kept("final")).toEqual(
      statuses.filter((status) => status >= 200 && status < 500 && !passing.includes(status)),
    );
  });

  test("where a function says so, which is given the answer", () => {
    const answer = { status: 402, headers: { etag: "7" }, body: Buffer.from("hi") };
    const asked: unknown[] = [];
    expect(isStored((given) => asked.push(given) > 0, answer)).toBe(true);
    expect(asked).toEqual([answer]);
    expect(isStored(() => false, { ...answer, status: 201 })).toBe(false);
  });

  test("never where it is 5xx, or no answer yet, and nobody is asked", () => {
    const never = fc.oneof(fc.integer({ min: 500, max: 599 }), fc.integer({ min: 100, max: 199 }));
    fc.assert(
      fc.property(never, (status) => {
        const ask = () => {
          throw new Error("asked");
        };
        expect(isStored(ask, { status, headers: {} })).toBe(false);
      }),
    );
  });
});

test.each<[what: string, verdict: unknown, came: string]>([
  ["a promise", Promise.resolve(false), "an object"],
  ["nothing", undefined, "undefined"],
  ["a number", 1, "1"],
])("a function that returns %s is told so", (_what, verdict, came) => {
  expect(() => isStored((() => verdict) as never, { status: 200, headers: {} })).toThrow(
    `idempotency.store: expected a function that returns true or false, got ${came}`,
  );
});
