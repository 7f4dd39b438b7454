import { createServer } from "node:http";
import { afterEach, describe, expect, test, vi } from "vitest";
import { submitGuard } from "../../src/express/index.ts";
import { ioredis6 } from "../support/clients.ts";
import { freePort } from "../support/free-port.ts";
import { acquired } from "../support/locks.ts";
import { until } from "../support/until.ts";
import { type Framework, newest } from "./frameworks.ts";
import { gate } from "./gate.ts";
import { listen, openClient, type Reply } from "./http-client.ts";
import { layerThatWaits } from "./layers.ts";
import {
  codeOf,
  type OnceOptions,
  type OnceSubmit,
  openOnce,
  openWaiting,
  orderKey,
} from "./once-shop.ts";
import { type Told, userOf } from "./turn.ts";

afterEach(() => {
  vi.restoreAllMocks();
});

const docs = "https://shop.example/docs/submissions";

/** A shop in a state, and a submit that it refuses. */
interface Refusing {
  readonly code: string;
  readonly status: number;
  readonly retryAfter: RegExp | undefined;
  readonly told: Told;
  arrange(
    options: OnceOptions,
  ): Promise<(headers?: Record<string, string>, method?: string) => Promise<Reply>>;
}

const contended = { sameSubmission: false, answerUnavailable: false, isCooldown: false };
const after =
  (first: OnceSubmit, second: OnceSubmit, given: Partial<OnceOptions> = {}) =>
  async (options: OnceOptions) => {
    const once = await openOnce({
      ...options,
      ...given,
      guard: { ...options.guard, ...given.guard },
    });
    await once.submit(first);
    await until(async () => (await once.records()).length === 1, { what: "the answer to be kept" });
    return (headers = {}, method = "POST") => once.submit({ ...second, headers, method });
  };
/** While an order of the key is at work. */
const during = (second: OnceSubmit) => async (options: OnceOptions) => {
  const goOn = gate();
  const idempotency = { ...options.guard?.idempotency, waitMs: 0 };
  const guard = { ...options.guard, idempotency };
  const once = await openOnce({ ...options, guard, handler: () => goOn.opened });
  await once.start({ key: orderKey });
  return (headers = {}, method = "POST") => once.submit({ ...second, headers, method });
};

const refusals: Refusing[] = [
  {
    status: 401,
    code: "submit_anonymous",
    retryAfter: undefined,
    told: { reason: "anonymous" },
    arrange: async (options) => {
      const guard = { ...options.guard, userId: () => undefined };
      const once = await openOnce({ ...options, guard });
      return (headers = {}, method = "POST") => once.submit({ key: orderKey, headers, method });
    },
  },
  {
    status: 409,
    code: "submit_contended",
    retryAfter: /^1$/,
    told: { reason: "contended", expiresInMs: expect.any(Number), ...contended },
    arrange: during({ key: "another" }),
  },
  {
    status: 409,
    code: "submit_contended",
    retryAfter: /^(29|30)$/,
    told: { reason: "contended", expiresInMs: expect.any(Number), ...contended, isCooldown: true },
    arrange: after({ key: orderKey }, { key: "another" }, { guard: { cooldownMs: 30_000 } }),
  },
  {
    status: 409,
    code: "idempotency_in_flight",
    retryAfter: /^1$/,
    told: {
      reason: "contended",
      expiresInMs: expect.any(Number),
      ...contended,
      sameSubmission: true,
    },
    arrange: during({ key: orderKey }),
  },
  {
    status: 409,
    code: "idempotency_answer_unavailable",
    retryAfter: undefined,
    told: {
      reason: "contended",
      expiresInMs: 0,
      sameSubmission: true,
      answerUnavailable: true,
      isCooldown: false,
    },
    arrange: async (options) => {
      const idempotency = { ...options.guard?.idempotency, maxBodyBytes: 0 };
      return after(
        { key: orderKey },
        { key: orderKey },
      )({ ...options, guard: { ...options.guard, idempotency } });
    },
  },
  {
    status: 422,
    code: "idempotency_conflict",
    retryAfter: undefined,
    told: { reason: "mismatch", inFlight: false },
    arrange: after({ key: orderKey }, { key: orderKey, body: { cart: 8 } }),
  },
  {
    status: 422,
    code: "idempotency_conflict",
    retryAfter: undefined,
    told: { reason: "mismatch", inFlight: true },
    arrange: during({ key: orderKey, body: { cart: 8 } }),
  },
  {
    status: 400,
    code: "idempotency_key_required",
    retryAfter: undefined,
    told: { reason: "key-missing" },
    arrange: async (options) => {
      const idempotency = { ...options.guard?.idempotency, key: "required" as const };
      const once = await openOnce({ ...options, guard: { ...options.guard, idempotency } });
      return (headers = {}, method = "POST") => once.submit({ headers, method });
    },
  },
  {
    status: 400,
    code: "idempotency_key_invalid",
    retryAfter: undefined,
    told: { reason: "key-invalid", why: expect.any(String) },
    arrange: async (options) => {
      const once = await openOnce(options);
      return (headers = {}, method = "POST") =>
        once.submit({ key: "secret, list", headers, method });
    },
  },
  {
    status: 400,
    code: "idempotency_id_invalid",
    retryAfter: undefined,
    told: { reason: "id-invalid", why: expect.any(String) },
    arrange: async (options) => {
      const idempotency = { ...options.guard?.idempotency, submissionId: () => 7 as never };
      const once = await openOnce({ ...options, guard: { ...options.guard, idempotency } });
      return (headers = {}, method = "POST") => once.submit({ headers, method });
    },
  },
  {
    status: 503,
    code: "submit_unavailable",
    retryAfter: /^1$/,
    told: { reason: "unavailable", cause: expect.any(Error) },
    arrange: async (options) => {
      const redis = ioredis6.connect(await freePort());
      const once = await openOnce({
        ...options,
        redis,
        times: { acquireTimeoutMs: 60, commandTimeoutMs: 30 },
      });
      return (headers = {}, method = "POST") => once.submit({ key: orderKey, headers, method });
    },
  },
];

const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

/** Sets a header before the guard, as CORS does. */
const stamping = layerThatWaits(async (_req, res) => void res.setHeader("x-shop", "eu"));

/** Neither a key, an id or an owner id in any form, nor what Redis or the network said. */
const leak = /lock:|redis|ECONN|127\.0\.0\.1|secret|8e03978e|[0-9a-f]{8}-[0-9a-f]{4}-|[\w-]{22}\b/i;

describe.each(newest)("$name", (framework: Framework) => {
  describe.each(refusals)("$status $code ($told.reason)", (refusing) => {
    const { arrange, code, retryAfter, status, told } = refusing;

    test("is a problem document, or a page for who prefers HTML, and leaks nothing", async () => {
      const logged = [vi.spyOn(console, "error"), vi.spyOn(console, "log")];
      const errors: unknown[] = [];
      const submit = await arrange({
        framework,
        guard: { idempotency: { docs } },
        outside: [stamping],
        onError: (error) => errors.push(error),
      });
      const problem = await submit();
      expect(problem).toMatchObject({
        status,
        headers: { "content-type": "application/problem+json", "cache-control": "no-store" },
      });
      expect(codeOf(problem)).toBe(code);
      expect(problem.headers["submit-lock-code"]).toBe(code);
      expect(problem.headers["x-shop"]).toBe("eu");
      expect(problem.headers["content-length"]).toBe(`${Buffer.byteLength(problem.body)}`);
      expect(JSON.parse(problem.body)).toMatchObject({
        status,
        detail: expect.stringMatching(/^[A-Z].*\.$/),
      });
      expect(String(problem.headers["retry-after"] ?? "")).toMatch(retryAfter ?? /^$/);
      const isOfSubmissions = code.startsWith("idempotency");
      const link = isOfSubmissions ? `<${docs}>; rel="describedby"` : undefined;
      expect(problem.headers["link"]).toBe(link);
      expect(JSON.parse(problem.body).type).toBe(isOfSubmissions ? docs : "about:blank");

      const page = await submit({ accept: browser });
      const notCompared = { "content-type": "", "content-length": "", "retry-after": "" };
      expect({ ...page.headers, ...notCompared }).toEqual({ ...problem.headers, ...notCompared });
      expect(page.status).toBe(status);
      expect(page.headers["content-type"]).toBe("text/html; charset=utf-8");
      expect(page.body).toMatch(/^<!doctype html>\n<html lang="en">/);
      expect(page.body).toContain(code);
      expect(page.body).not.toMatch(/<script|<style|<form|http-equiv|href/);

      for (const reply of [problem, page]) {
        expect(`${JSON.stringify(reply.headers)}${reply.body}`.replaceAll(code, "")).not.toMatch(
          leak,
        );
      }
      for (const spy of logged) expect(spy).not.toHaveBeenCalled();
      expect(errors).toEqual([]);

      // No submission has a HEAD, and the lock has.
      if (isOfSubmissions) return;
      const head = await submit({}, "HEAD");
      expect([head.status, head.body]).toEqual([status, ""]);
      const names = ["content-type", "cache-control"];
      // On fetch, the platform counts the body, and a HEAD has none.
      if (framework.family !== "fetch") names.push("content-length");
      for (const name of names) expect(head.headers[name]).toBe(problem.headers[name]);
    });

    test("is answered by the application where it has an answer of its own, and told the default one", async () => {
      const infos: Told[] = [];
      const answer = (info: Told) => {
        infos.push(info);
        return [418, { brewing: true }] as const;
      };
      const names = ["onAnonymous", "onContended", "onUnavailable", "onKeyMissing", "onMismatch"];
      const answers = Object.fromEntries(names.map((name) => [name, answer]));
      const byDefault = await arrange({ framework });
      const submit = await arrange({ framework, answers });
      for (const accept of ["*/*", browser]) {
        const usual = await byDefault({ accept });
        const reply = await submit({ accept });
        expect([reply.status, reply.body]).toEqual([418, '{"brewing":true}']);
        // Also where the application's answer sends no header of the problem's.
        expect(reply.headers["submit-lock-code"]).toBe(code);
        const [info = { reason: "none" }] = infos.splice(0);
        const given = Object(Object(info["problem"]).headers);
        const texts = { title: expect.any(String), detail: expect.any(String) };
        const problem = { status, code, headers: given, body: usual.body, ...texts };
        expect(info).toEqual({ ...told, problem, prefersPage: accept === browser });
        const names = Object.keys(given).map((name) => name.toLowerCase());
        expect(names).toContain("cache-control");
        expect(names.includes("retry-after")).toBe(retryAfter !== undefined);
        for (const [name, value] of Object.entries(given)) {
          const isSeconds = name === "Retry-After";
          if (isSeconds) expect(value).toMatch(retryAfter as RegExp);
          else expect([name, usual.headers[name.toLowerCase()]]).toEqual([name, value]);
        }
      }
    });
  });
});

describe.each(newest)("$name", (framework: Framework) => {
  test("a refusal is a problem document for a client that does not prefer HTML", async () => {
    const once = await openOnce({ framework, guard: { idempotency: { key: "required" } } });
    for (const accept of [
      "*/*",
      "application/json",
      "application/problem+json, text/html",
      "text/plain",
      "text/html;q=0.5, */*",
    ]) {
      const { headers } = await once.submit({ headers: { accept } });
      expect([accept, headers["content-type"]]).toEqual([accept, "application/problem+json"]);
    }
  });

  test("the problems of a submissionId's submissions speak of no Idempotency-Key", async () => {
    const fingerprint = (req: object) => Reflect.get(Reflect.get(req, "body") as object, "cart");
    const idempotency = { submissionId: () => "7:3", fingerprint, maxBodyBytes: 0, waitMs: 0 };
    const { goOn, once } = await openWaiting({
      framework,
      guard: { idempotency },
      handler: (turn) => {
        turn.answer(201, { placed: true });
      },
    });
    await once.start({ body: { cart: 7 } });
    const inFlight = await once.submit({ body: { cart: 7 } });
    const conflict = await once.submit({ body: { cart: 8 } });
    goOn();
    await once.whenKept(1);
    const unavailable = await once.submit({ body: { cart: 7 } });
    const replies = [inFlight, conflict, unavailable];
    expect(replies.map(codeOf)).toEqual([
      "idempotency_in_flight",
      "idempotency_conflict",
      "idempotency_answer_unavailable",
    ]);
    for (const { body } of replies) expect(body).not.toMatch(/key/i);
  });
});

test("a request of Node's own is answered with a page where its client prefers one", async () => {
  const { shop } = await openOnce({ framework: newest[0] as Framework });
  acquired(await shop.lock.acquire(shop.user));
  const guard = submitGuard({ lock: shop.lock, userId: userOf });
  const server = createServer((req, res) => guard(req, res, () => res.end()));
  const client = openClient(1, await listen(server));
  const headers = { "x-user": shop.user };
  const document = await client.call({ headers }).reply;
  expect([document.status, codeOf(document)]).toEqual([409, "submit_contended"]);
  const page = await client.call({ headers: { ...headers, accept: browser } }).reply;
  expect([page.status, page.headers["content-type"]]).toEqual([409, "text/html; charset=utf-8"]);
  client.close();
  server.close();
});
