import { expect, test } from "vitest";
import { problemOf, type RefusalReason } from "../../src/http/refusals.ts";

const docs = "https://shop.example/docs#once";
const contended = {
  reason: "contended" as const,
  expiresInMs: 60_000,
  sameSubmission: true,
  answerUnavailable: false,
  isCooldown: false,
};
const refusals = {
  keyRequired: { reason: "key-missing" },
  keyInvalid: { reason: "key-invalid", why: "Send one key." },
  idInvalid: { reason: "id-invalid", why: "The id is a list." },
  inFlight: contended,
  ended: { ...contended, hasEnded: true },
  answerUnavailable: { ...contended, answerUnavailable: true },
  conflict: { reason: "mismatch", inFlight: false },
} as const satisfies Record<string, RefusalReason>;

const problemFor = (name: keyof typeof refusals, docs?: string, isDerived = false) =>
  problemOf(refusals[name], { docs, isDerived, prefersPage: false });

const bare = { "Content-Type": "application/problem+json", "Cache-Control": "no-store" };

/** The titles of the first three are those of the draft, section 2.7. */
test.each<[keyof typeof refusals, number, string, string, Record<string, string>]>([
  ["keyRequired", 400, "Idempotency-Key is missing", "idempotency_key_required", {}],
  ["conflict", 422, "Idempotency-Key is already used", "idempotency_conflict", {}],
  [
    "inFlight",
    409,
    "A request is outstanding for this Idempotency-Key",
    "idempotency_in_flight",
    { "Retry-After": "1" },
  ],
  ["keyInvalid", 400, "Idempotency-Key is invalid", "idempotency_key_invalid", {}],
  ["idInvalid", 400, "The id of the submission is invalid", "idempotency_id_invalid", {}],
  ["answerUnavailable", 409, "The answer is not available", "idempotency_answer_unavailable", {}],
])("%s is a problem document with or without docs", (name, status, title, code, headers) => {
  const without = problemFor(name);
  expect(without).toMatchObject({ status, headers: { ...bare, ...headers } });
  expect(Object.keys(without.headers)).toHaveLength(2 + Object.keys(headers).length);
  const detail = expect.stringMatching(/^[A-Z].+\.$/);
  expect(JSON.parse(without.body)).toEqual({ type: "about:blank", title, status, detail, code });

  const documented = problemFor(name, docs);
  const Link = `<${docs}>; rel="describedby"`;
  expect(documented).toMatchObject({ status, headers: { ...bare, ...headers, Link } });
  expect(JSON.parse(documented.body)).toEqual({ ...JSON.parse(without.body), type: docs });
});

test("problems of a submissionId do not mention an Idempotency-Key", () => {
  for (const name of Object.keys(refusals) as (keyof typeof refusals)[]) {
    const { code, title, detail } = JSON.parse(problemFor(name, docs, true).body);
    const isOfKey = code === "idempotency_key_invalid";
    expect([code, `${title} ${detail}`.includes("Idempotency-Key")]).toEqual([code, isOfKey]);
  }
});

test("no application can change the headers of a problem", () => {
  const { headers } = problemFor("inFlight", docs);
  expect(() => Object.assign(headers, { "Retry-After": "60" })).toThrow(TypeError);
});

test("the problems of the lock do not mention the docs of submissions", () => {
  const audience = { docs, isDerived: false, prefersPage: false };
  const { body, headers } = problemOf({ reason: "anonymous" }, audience);
  expect(JSON.parse(body).type).toBe("about:blank");
  expect(headers).not.toHaveProperty("Link");
});

test("the problem of a cooldown tells that the order before has ended", () => {
  const cooldown = { ...contended, sameSubmission: false, isCooldown: true };
  const { body } = problemOf(cooldown, { docs, isDerived: false, prefersPage: false });
  expect(JSON.parse(body).detail).toContain("ended a moment ago");
});
