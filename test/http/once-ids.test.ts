import type { IncomingMessage } from "node:http";
import { describe, expect, test } from "vitest";
import { ioredis6 } from "../support/clients.ts";
import { freePort } from "../support/free-port.ts";
import { type Framework, hasParsers, newest } from "./frameworks.ts";
import { codeOf, openOnce, orderKey, unmarked } from "./once-shop.ts";
import type { Turn } from "./turn.ts";

const json = { "content-type": "application/json" };

const token = (req: IncomingMessage) => Reflect.get(Object(Reflect.get(req, "body")), "token");

describe.each(newest)("$name", (framework: Framework) => {
  test('with key: "ignored" a header counts for nothing, and without an id nothing runs', async () => {
    const submissionId = (req: IncomingMessage) => req.headers["x-cart"]?.toString();
    const once = await openOnce({
      framework,
      guard: { idempotency: { key: "ignored", submissionId } },
    });
    for (const key of [orderKey, "a, list"]) {
      const refused = await once.submit({ headers: { "idempotency-key": key } });
      expect([refused.status, codeOf(refused)]).toEqual([400, "idempotency_key_required"]);
    }
    const headers = { "x-cart": "7:3", "idempotency-key": "a, list" };
    expect((await once.submit({ headers })).body).toBe('{"run":1}');
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

  test("an id from the request that is no text is a 400, and nothing runs", async () => {
    const once = await openOnce({ framework, guard: { idempotency: { submissionId: token } } });
    for (const sent of [0, "secret \ud83d"]) {
      const submit = { key: orderKey, body: { token: sent } };
      const reply = await once.submit(submit);
      expect([reply.status, codeOf(reply)]).toEqual([400, "idempotency_id_invalid"]);
      expect(reply.body).not.toContain("secret");
      const page = await once.submit({ ...submit, headers: { accept: "text/html" } });
      expect([page.status, page.body]).toEqual([400, expect.stringContaining("not placed")]);
    }
    expect([once.runs, await once.everything(), once.shop.errors]).toEqual([0, [], []]);
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

  test.runIf(hasParsers(framework))(
    "JSON that is nested too deeply is the client's fault",
    async () => {
      const once = await openOnce({ framework });
      const body = `${"[".repeat(5_000)}${"]".repeat(5_000)}`;
      const reply = await once.submit({ key: orderKey, headers: json, body });
      expect([reply.status, reply.body]).toEqual([422, '{"failed":true}']);
      expect(once.shop.errors).toMatchObject([{ code: "SUBMIT_LOCK_NO_FINGERPRINT" }]);
      expect([once.runs, await once.everything()]).toEqual([0, []]);
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
  });

  test("who has no user, or no lock, is neither kept nor repeated", async () => {
    const seen: [submission: boolean, lease: boolean][] = [];
    const handler = (turn: Turn, run: number) => {
      seen.push([turn.submission !== undefined, turn.lease !== undefined]);
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
    // Without Redis the submission has its id for the transaction, and no lease.
    const [nothing, idAlone] = [
      [false, false],
      [true, false],
    ];
    expect(seen).toEqual([nothing, nothing, nothing, nothing, idAlone, idAlone]);
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

describe.each(newest.filter(hasParsers))("$name", (framework: Framework) => {
  test.each(["optional", "required"] as const)(
    "a submissionId in a body that no parser has read is a 500, with the key %s",
    async (key) => {
      const guard = { idempotency: { key, submissionId: token } };
      const once = await openOnce({ framework, guard, unparsed: true });
      expect((await once.submit({ body: { token: "7" } })).status).toBe(500);
      expect([once.runs, await once.everything()]).toEqual([0, []]);
      const [error] = once.shop.errors as [Error];
      expect(error).toMatchObject({ code: "SUBMIT_LOCK_NO_FINGERPRINT", status: 500 });
      expect(error.message).toContain("Mount the body parser before the guard");
      // Without a body there is nothing that a parser could have read.
      expect((await once.submit()).status).toBe(key === "required" ? 400 : 201);
    },
  );
});

/** What a submissionId may give is the same on every framework. */
describe("a submissionId", () => {
  const framework = newest[0] as Framework;

  test.each([["7:3"], () => "7:3", Symbol("7:3"), 7n])(
    "that gives %o goes to the error handler, and nothing runs",
    async (given) => {
      const submissionId = () => given as never;
      const once = await openOnce({ framework, guard: { idempotency: { submissionId } } });
      expect((await once.submit()).status).toBe(500);
      expect([once.runs, once.shop.errors.length]).toEqual([0, 1]);
    },
  );

  test.each<[what: string, sent: unknown]>([
    ["a number", 7],
    ["true", true],
    ["false", false],
    ["1 025 characters", "secret".padEnd(1_025, "x")],
  ])("that is %s is told to the application's own answer", async (_what, sent) => {
    const told: unknown[] = [];
    const onKeyMissing = (info: unknown) => {
      told.push(info);
      return [418, {}] as const;
    };
    const guard = { idempotency: { submissionId: token } };
    const once = await openOnce({ framework, guard, answers: { onKeyMissing } });
    expect((await once.submit({ body: { token: sent } })).status).toBe(418);
    const why = "The submission id must be a well-formed string of up to 1024 characters.";
    const problem = { body: expect.stringContaining(why) };
    expect(told).toMatchObject([{ reason: "id-invalid", why, problem }]);
    expect(JSON.stringify(told)).not.toContain("secret");
  });
});
