import type { IncomingMessage } from "node:http";
import { afterEach, describe, expect, test } from "vitest";
import { ioredis6 } from "../support/clients.ts";
import { freePort } from "../support/free-port.ts";
import { type Framework, hasParsers } from "./frameworks.ts";
import { codeOf, type OnceShop, onAll, openOnce, orderKey, unmarked } from "./once-shop.ts";
import { closeShops } from "./shop.ts";
import type { Turn } from "./turn.ts";

afterEach(closeShops);

const json = { "content-type": "application/json" };

/** What a header field may hold beside the bytes of ASCII. */
const latin1 = Buffer.from("Bestellung-für-7", "latin1").toString("latin1");

const bad: [string, string | string[]][] = [
  ["a list", "secret, two"],
  ["two lines", ["secret", "two"]],
  ["the same twice", ["secret", "secret"]],
  ["256 characters", "x".repeat(256)],
  ["what is no ASCII", latin1],
  ["an empty string", '""'],
  ["parameters", "secret;a=1"],
  ["a string that is not closed", '"secret'],
];

describe.each(onAll)("$name", (framework: Framework) => {
  test.each(bad)(
    "a key of %s is a 400 that says so and shows nothing of it",
    async (_what, key) => {
      const once = await openOnce({ framework });
      const reply = await once.submit({ headers: { "idempotency-key": key } });
      expect([reply.status, codeOf(reply)]).toEqual([400, "idempotency_key_invalid"]);
      expect(reply.body).not.toContain("secret");
      expect([once.runs, await once.everything()]).toEqual([0, []]);
    },
  );

  test("a key is one in quotes and without, and may have 255 characters", async () => {
    const once = await openOnce({ framework });
    const key = "!".repeat(254);
    const first = await once.submit({ key: `${key}a` });
    await once.whenKept(1);
    expect(unmarked(await once.submit({ key: `"${key}a"` }))).toEqual(unmarked(first));
    expect((await once.submit({ key: `${key}A` })).body).toBe('{"run":2}');
  });

  test('without a key nothing is kept, and with key: "required" nothing runs', async () => {
    const optional = await openOnce({ framework });
    for (const headers of [{}, { "idempotency-key": "" }]) {
      expect((await optional.submit({ headers })).status).toBe(201);
      await optional.whenKept(0);
    }
    const guard = { idempotency: { key: "required" } } as const;
    const required = await openOnce({ framework, guard });
    for (const headers of [{}, { "idempotency-key": "" }]) {
      const reply = await required.submit({ headers });
      expect([reply.status, codeOf(reply)]).toEqual([400, "idempotency_key_required"]);
    }
    expect(required.runs).toBe(0);
    expect((await required.submit({ key: orderKey })).status).toBe(201);
  });

  test('with key: "ignored" the header counts for nothing', async () => {
    const guard = { idempotency: { key: "ignored", submissionId: () => undefined } } as const;
    const once = await openOnce({ framework, guard });
    await once.submit({ key: orderKey });
    await once.whenKept(0);
    expect((await once.submit({ headers: { "idempotency-key": "a, list" } })).body).toBe(
      '{"run":2}',
    );
  });

  test("an id of the application counts, whatever key the client sends", async () => {
    const sources: unknown[] = [];
    const cart = async (req: IncomingMessage) => String(req.headers["x-cart"] ?? "");
    const once = await openOnce({
      framework,
      guard: { idempotency: { submissionId: cart } },
      handler: (turn, run) => {
        sources.push(turn.submission?.source);
        turn.answer(201, { run });
      },
    });
    const headers = { "x-cart": "7:3" };
    const first = await once.submit({ headers, key: "made for this click" });
    await once.whenKept(1);
    for (const key of ["made for the next", "a, list", ""]) {
      const retry = await once.submit({ headers: { ...headers, "idempotency-key": key } });
      expect(unmarked(retry)).toEqual(unmarked(first));
    }
    // Neither another cart nor another payload, at another route, is another submission's.
    const elsewhere = await once.submit({ headers, path: "/orders?express=1", body: { gift: 1 } });
    expect(unmarked(elsewhere)).toEqual(unmarked(first));
    expect((await once.submit({ headers: { "x-cart": "7:4" } })).body).toBe('{"run":2}');
    await once.whenKept(2);
    // Without an id the header counts, and a key that looks like a cart is none.
    expect((await once.submit({ key: "7:3" })).body).toBe('{"run":3}');
    await once.whenKept(3);
    expect((await once.submit({ key: "7:3" })).body).toBe('{"run":3}');
    expect(sources).toEqual(["derived", "derived", "key"]);
  });

  test("a fingerprint of the application's own decides what is another payload", async () => {
    const total = (req: IncomingMessage) =>
      Reflect.get(Reflect.get(req, "body") as object, "total");
    for (const options of [{}, { submissionId: () => "7:3" }]) {
      const once = await openOnce({
        framework,
        guard: { idempotency: { ...options, fingerprint: total } },
      });
      const first = await once.submit({ key: orderKey, body: { total: 10, captcha: "a" } });
      await once.whenKept(1);
      const same = await once.submit({ key: orderKey, body: { total: 10, captcha: "b" } });
      expect(unmarked(same)).toEqual(unmarked(first));
      const other = await once.submit({ key: orderKey, body: { total: 20, captcha: "a" } });
      expect(codeOf(other)).toBe("idempotency_conflict");
    }
  });

  test.each([
    ["throws", () => Promise.reject(new Error("no cart"))],
    ["gives an object", () => ({ cart: 7 }) as never],
    ["gives an array", () => ["7:3"] as never],
    ["gives a function", () => (() => "7:3") as never],
    ["gives a symbol", () => Symbol("7:3") as never],
    ["gives a bigint", () => 7n as never],
  ])(
    "a submissionId that %s goes to the error handler, and nothing runs",
    async (_how, submissionId) => {
      const once = await openOnce({ framework, guard: { idempotency: { submissionId } } });
      expect((await once.submit()).status).toBe(500);
      expect([once.runs, once.shop.errors.length]).toEqual([0, 1]);
      expect(await once.everything()).toEqual([]);
    },
  );

  test.each<[what: string, sent: unknown]>([
    ["a number", 7],
    ["0", 0],
    ["true", true],
    ["false", false],
    ["1 025 characters", "secret".padEnd(1_025, "x")],
    ["a lone surrogate", "secret \ud83d"],
  ])("an id from the request that is %s is a 400, and nothing runs", async (_what, sent) => {
    const told: unknown[] = [];
    const submissionId = (req: IncomingMessage) =>
      Reflect.get(Reflect.get(req, "body") as object, "token");
    const guard = { idempotency: { submissionId } };
    const once = await openOnce({ framework, guard });
    const submit = { key: orderKey, body: { token: sent } };
    const reply = await once.submit(submit);
    expect([reply.status, codeOf(reply)]).toEqual([400, "idempotency_id_invalid"]);
    expect(reply.body).not.toContain("secret");
    const page = await once.submit({ ...submit, headers: { accept: "text/html" } });
    expect([page.status, page.body]).toEqual([400, expect.stringContaining("not placed")]);
    expect([once.runs, await once.everything(), once.shop.errors]).toEqual([0, [], []]);

    const onKeyMissing = (info: unknown) => {
      told.push(info);
      return [418, {}] as const;
    };
    const own = await openOnce({ framework, guard, answers: { onKeyMissing } });
    expect((await own.submit(submit)).status).toBe(418);
    const why = "The id of a submission has to be well-formed text of 1 to 1024 characters.";
    expect(told).toMatchObject([{ reason: "id-invalid", why }]);
    expect(JSON.parse(reply.body).detail).toContain(why);
  });

  test("an id from the request may have 1 024 characters, and anything well-formed", async () => {
    const submissionId = (req: IncomingMessage) =>
      Reflect.get(Reflect.get(req, "body") as object, "token");
    const once = await openOnce({ framework, guard: { idempotency: { submissionId } } });
    for (const token of ["x".repeat(1_024), "\ud83d\ude00", "\u0000", " "]) {
      expect((await once.submit({ body: { token } })).status).toBe(201);
    }
    expect(once.runs).toBe(4);
  });

  test("what a handler does to the body changes neither id nor fingerprint", async () => {
    const once = await openOnce({
      framework,
      handler: (turn, run) => {
        Object.assign(turn.parsed as object, { total: 99 });
        if (run === 1) throw new Error("theirs");
        turn.answer(201, { run });
      },
    });
    const body = { total: 10 };
    expect((await once.submit({ key: orderKey, body })).status).toBe(500);
    await once.whenKept(0);
    const [second, third] = await once.twice({ key: orderKey, body });
    expect([second.body, unmarked(third)]).toEqual(['{"run":2}', unmarked(second)]);
  });

  /** Refused by the error handler, with this error and without a trace. */
  async function unfingerprinted(once: OnceShop, status: number, submit: object): Promise<void> {
    const reply = await once.submit({ key: orderKey, ...submit });
    expect([reply.status, reply.body]).toEqual([status, '{"failed":true}']);
    expect(once.shop.errors.at(-1)).toMatchObject({ code: "SUBMIT_LOCK_NO_FINGERPRINT", status });
    expect([once.runs, await once.everything()]).toEqual([0, []]);
  }

  test.runIf(hasParsers(framework))(
    "a body that no parser has read goes to the error handler",
    async () => {
      const once = await openOnce({ framework, unparsed: true });
      await unfingerprinted(once, 500, { body: { cart: 7 } });
      expect(String(once.shop.errors[0])).toContain("Mount the body parser before the guard");
    },
  );

  test("without a body there is nothing to parse", async () => {
    const once = await openOnce({ framework, unparsed: true });
    const [first, second] = await once.twice();
    expect([first.status, unmarked(second)]).toEqual([201, unmarked(first)]);
  });

  test.runIf(hasParsers(framework))(
    "a multipart form that no parser has read goes to the error handler",
    async () => {
      const once = await openOnce({ framework });
      const headers = { "content-type": "multipart/form-data; boundary=x" };
      const body = '--x\r\ncontent-disposition: form-data; name="cart"\r\n\r\n7\r\n--x--\r\n';
      await unfingerprinted(once, 415, { headers, body });
      // An id of the application, or a fingerprint, needs no body.
      const guard = { idempotency: { submissionId: () => "7:3" } };
      const derived = await openOnce({ framework, guard });
      expect((await derived.submit({ headers, body })).status).toBe(201);
    },
  );

  test("JSON that would pollute a prototype is a payload like any other", async () => {
    const once = await openOnce({ framework });
    const polluting = (isAdmin: boolean) =>
      `{"__proto__":{"isAdmin":${isAdmin}},"constructor":{"prototype":{"isAdmin":${isAdmin}}}}`;
    const submit = (isAdmin: boolean) =>
      once.submit({ key: orderKey, headers: json, body: polluting(isAdmin) });
    const first = await submit(true);
    expect(first.status).toBe(201);
    await once.whenKept(1);
    expect(unmarked(await submit(true))).toEqual(unmarked(first));
    expect(codeOf(await submit(false))).toBe("idempotency_conflict");
    expect(Reflect.get({}, "isAdmin")).toBeUndefined();
  });

  test.runIf(hasParsers(framework))(
    "JSON that is nested too deeply is the client's fault",
    async () => {
      const once = await openOnce({ framework });
      const body = `${"[".repeat(5_000)}${"]".repeat(5_000)}`;
      await unfingerprinted(once, 422, { headers: json, body });
    },
  );

  test("GET and HEAD have a lock and are no submissions", async () => {
    const guard = { idempotency: { key: "required" } } as const;
    const seen: unknown[] = [];
    const once = await openOnce({
      framework,
      guard,
      handler: (turn, run) => {
        seen.push(turn.submission, turn.lease === undefined);
        turn.answer(200, { run });
      },
    });
    // On HTTP/2 Koa 2 itself answers no HEAD.
    const methods = framework.http === 2 ? ["GET"] : ["GET", "HEAD"];
    for (const method of methods) {
      for (const headers of [{}, { "idempotency-key": orderKey }]) {
        expect((await once.submit({ method, headers })).status).toBe(200);
        await once.whenKept(0);
      }
    }
    expect(seen).toEqual(methods.flatMap(() => [undefined, false, undefined, false]));
    expect((await once.submit({ method: "OPTIONS" })).status).toBe(200);
    expect(seen.slice(-2)).toEqual([undefined, true]);
  });

  test("a submission has an id that is the same on every retry and nobody else's", async () => {
    const seen: unknown[] = [];
    const handler = (turn: Turn, run: number) => {
      seen.push(turn.submission?.id);
      turn.answer(run < 3 ? 500 : 201, { run });
    };
    const once = await openOnce({ framework, handler });
    for (let i = 0; i < 4; i++) await once.submit({ key: orderKey });
    await once.submit({ key: orderKey, user: `${once.shop.user}-other` });
    const [one, ...others] = seen;
    expect(one).toMatch(/^[\w-]{22}$/);
    expect(others).toEqual([one, one, expect.not.stringMatching(String(one))]);
  });

  test("who has no user, or no lock, is neither kept nor repeated", async () => {
    const submissions: unknown[] = [];
    const handler = (turn: Turn, run: number) => {
      submissions.push(turn.submission, turn.lease);
      turn.answer(201, { run });
    };
    const guests = await openOnce({
      framework,
      handler,
      guard: { idempotency: {}, onAnonymous: "proceed", userId: () => undefined },
    });
    const skipped = await openOnce({
      framework,
      handler,
      guard: { idempotency: {}, skip: () => true },
    });
    const cutOff = await openOnce({
      framework,
      handler,
      redis: ioredis6.connect(await freePort()),
      times: { acquireTimeoutMs: 60, commandTimeoutMs: 30 },
      guard: { idempotency: {}, onUnavailable: "proceed" },
    });
    for (const once of [guests, skipped, cutOff]) {
      for (const run of [1, 2]) {
        const reply = await once.submit({ key: orderKey });
        expect([reply.status, reply.body]).toEqual([201, `{"run":${run}}`]);
        expect(reply.headers["idempotent-replayed"]).toBeUndefined();
      }
      expect(await once.everything()).toEqual([]);
    }
    expect(submissions.filter((each) => each !== undefined)).toEqual([]);
  });

  test("a guest is not repeated a user's answer", async () => {
    const once = await openOnce({
      framework,
      guard: {
        idempotency: {},
        onAnonymous: "proceed",
        userId: (req) => (req.headers["x-guest"] ? undefined : req.headers["x-user"]),
      },
    });
    await once.submit({ key: orderKey });
    await once.whenKept(1);
    const guest = await once.submit({ key: orderKey, headers: { "x-guest": "1" } });
    expect(guest.body).toBe('{"run":2}');
  });
});
