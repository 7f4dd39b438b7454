import { expect, test } from "vitest";
import { resolveIdempotencyOptions } from "../../src/http/options.ts";
import { resolveStoredHeaders } from "../../src/http/stored-answer.ts";
import { invalidOption } from "./invalid-option.ts";

const resolve = (options: unknown, acquireTimeoutMs = 1_000) =>
  resolveIdempotencyOptions(options as never, acquireTimeoutMs);
const submissionId = () => "cart-7:3";

test("the defaults are those of the documentation", () => {
  const resolved = {
    key: "optional",
    submissionId: undefined,
    fingerprint: undefined,
    retainMs: 86_400_000,
    store: "success",
    storedHeaders: resolveStoredHeaders(undefined),
    maxBodyBytes: 65_536,
    waitMs: 0,
    docs: undefined,
    acquireTimeoutMs: 1_000,
  };
  expect(resolve({})).toEqual(resolved);
  const absent = Object.fromEntries(
    [
      "key",
      "submissionId",
      "fingerprint",
      "retainMs",
      "store",
      "replayHeaders",
      "maxBodyBytes",
      "waitMs",
      "docs",
    ].map((name) => [name, undefined]),
  );
  expect(resolve(absent)).toEqual(resolved);
});

test("what is given is kept", () => {
  const fingerprint = () => 7;
  const store = () => true;
  const options = { key: "ignored", submissionId, fingerprint, retainMs: 2_000, store } as const;
  const bounds = { maxBodyBytes: 1_048_576, waitMs: 30_000 };
  expect(resolve({ ...options, ...bounds, replayHeaders: ["X-Order"] })).toMatchObject({
    ...options,
    ...bounds,
    storedHeaders: resolveStoredHeaders(["x-order"]),
  });
  expect(resolve({ key: "required", store: "final", maxBodyBytes: 0 })).toMatchObject({
    key: "required",
    store: "final",
    maxBodyBytes: 0,
  });
});

test.each([
  ["https://shop.example", "https://shop.example/"],
  ["http://shop.example/docs#once", "http://shop.example/docs#once"],
  [
    'https://shop.example/a b">,<\u00e9?q="<>#">',
    "https://shop.example/a%20b%22%3E,%3C%C3%A9?q=%22%3C%3E#%22%3E",
  ],
])("the docs %s are safe within a header", (docs, href) => {
  expect(resolve({ docs }).docs).toBe(href);
  expect(href).toMatch(/^[!#-;=?-~]+$/);
});

/** What was passed, and how the message says so: option, expected, came. */
test.each<[what: string, options: unknown, parts: string[]]>([
  ["nothing", undefined, ["idempotency options", "an object", "undefined"]],
  ["true", true, ["idempotency options", "an object", "true"]],
  ["an array", [], ["idempotency options", "an object", "an array"]],
  ["an unknown option", { ttlMs: 1 }, ["key, submissionId, fingerprint, retainMs", '"ttlMs"']],
  [
    "a wrong key",
    { key: true },
    ["idempotency.key", '"optional", "required" or "ignored"', "true"],
  ],
  ["a key that every object has", { key: "toString" }, ["idempotency.key", '"toString"']],
  ["a null key", { key: null }, ["idempotency.key", "null"]],
  ["no id at all", { key: "ignored" }, ["submissionId", "nothing would identify a submission"]],
  [
    "an id for a function",
    { submissionId: "7" },
    ["idempotency.submissionId", "a function", '"7"'],
  ],
  ["null for a function", { submissionId: null }, ["idempotency.submissionId", "null"]],
  ["a fingerprint", { fingerprint: "body" }, ["idempotency.fingerprint", "a function", '"body"']],
  ["a short retention", { retainMs: 1_999 }, ["idempotency.retainMs", "from 2000 to 604800000"]],
  ["a long retention", { retainMs: 604_800_001 }, ["idempotency.retainMs", "604800001"]],
  ["a null retention", { retainMs: null }, ["idempotency.retainMs", "null"]],
  ["a wrong store", { store: "all" }, ["idempotency.store", '"success", "final"', '"all"']],
  ["a null store", { store: null }, ["idempotency.store", "null"]],
  ["a cookie", { replayHeaders: ["Set-Cookie"] }, ["idempotency.replayHeaders", '"Set-Cookie"']],
  ["-1 bytes", { maxBodyBytes: -1 }, ["idempotency.maxBodyBytes", "from 0 to 1048576", "-1"]],
  ["too many bytes", { maxBodyBytes: 1_048_577 }, ["idempotency.maxBodyBytes", "1048577"]],
  ["half a byte", { maxBodyBytes: 0.5 }, ["idempotency.maxBodyBytes", "0.5"]],
  ["bytes in words", { maxBodyBytes: "64kb" }, ["idempotency.maxBodyBytes", '"64kb"']],
  ["null bytes", { maxBodyBytes: null }, ["idempotency.maxBodyBytes", "null"]],
  ["a negative wait", { waitMs: -1 }, ["idempotency.waitMs", "from 0 to 30000", "-1"]],
  ["a long wait", { waitMs: 30_001 }, ["idempotency.waitMs", "30001"]],
  ["a null wait", { waitMs: null }, ["idempotency.waitMs", "null"]],
  ["a path", { docs: "/docs" }, ["idempotency.docs", "an absolute http or https URL", '"/docs"']],
  ["a script", { docs: "javascript:alert(1)" }, ["idempotency.docs", '"javascript:alert(1)"']],
  ["a URL object", { docs: new URL("https://a.example") }, ["idempotency.docs", "an object"]],
  ["empty docs", { docs: "" }, ["idempotency.docs", '""']],
])("%s is refused with a message that says why", (_what, options, parts) => {
  expect(() => resolve(options)).toThrow(invalidOption(parts));
});

test("an answer is kept for twice the budget of the lock's acquire at least", () => {
  expect(resolve({ retainMs: 1_000 }, 0).retainMs).toBe(1_000);
  expect(resolve({ retainMs: 300_000 }, 150_000).retainMs).toBe(300_000);
  expect(() => resolve({ retainMs: 299_999 }, 150_000)).toThrow(/from 300000 to/);
});
