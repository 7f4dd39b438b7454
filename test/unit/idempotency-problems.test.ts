import { expect, test } from "vitest";
import { parseIdempotencyKey } from "../../src/http/idempotency-key.ts";
import {
  type IdempotencyProblems,
  idempotencyProblems,
} from "../../src/http/idempotency-problems.ts";
import { problemsFor } from "../../src/http/problems.ts";

const docs = "https://shop.example/docs#once";
const all = ({ keyInvalid, idInvalid, ...rest }: IdempotencyProblems) => ({
  ...rest,
  keyInvalid: keyInvalid("is a list"),
  idInvalid: idInvalid("The id is a list."),
});
const bare = { "Content-Type": "application/problem+json", "Cache-Control": "no-store" };

/** The titles of the first three are those of the draft, section 2.7. */
test.each<[keyof IdempotencyProblems, number, string, string, Record<string, string>]>([
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
  const without = all(idempotencyProblems(undefined, false))[name];
  expect(without).toMatchObject({ status, headers: { ...bare, ...headers } });
  expect(Object.keys(without.headers)).toHaveLength(2 + Object.keys(headers).length);
  const detail = expect.stringMatching(/^[A-Z].+\.$/);
  expect(JSON.parse(without.body)).toEqual({ type: "about:blank", title, status, detail, code });

  const documented = all(idempotencyProblems(docs, false))[name];
  const Link = `<${docs}>; rel="describedby"`;
  expect(documented).toMatchObject({ status, headers: { ...bare, ...headers, Link } });
  expect(JSON.parse(documented.body)).toEqual({ ...JSON.parse(without.body), type: docs });
});

test("problems of a submissionId speak of no Idempotency-Key", () => {
  for (const { body } of Object.values(all(idempotencyProblems(docs, true)))) {
    const { code, title, detail } = JSON.parse(body);
    const isOfKey = code.startsWith("idempotency_key_");
    expect([code, `${title} ${detail}`.includes("Idempotency-Key")]).toEqual([code, isOfKey]);
  }
});

test("no application can change the headers of the next problem", () => {
  const { headers } = idempotencyProblems(docs, false).inFlight;
  expect(() => Object.assign(headers, { "Retry-After": "60" })).toThrow(TypeError);
});

test("an invalid key is told why, and nothing of itself", () => {
  const parsed = parseIdempotencyKey(["secret; a=1"]);
  const why = parsed.kind === "invalid" ? parsed.why : "";
  const { body } = idempotencyProblems(undefined, false).keyInvalid(why);
  expect(JSON.parse(body).detail).toMatch(/^The Idempotency-Key header has parameters\. Send one/);
  expect(body).not.toContain("secret");
});

test("the problems of the lock are what they were", () => {
  const telling = { prefersPage: false, isDerived: false };
  const { body } = problemsFor(docs)({ reason: "anonymous" }, telling);
  expect(JSON.parse(body).type).toBe("about:blank");
});
