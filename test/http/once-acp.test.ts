import type { IncomingMessage } from "node:http";
import { describe, expect, test } from "vitest";
import {
  agentic,
  agenticOnFastify,
  agenticOnFetch,
  agenticOnKoa,
  echoKey,
  echoKeyOnFastify,
  echoKeyOnHono,
  echoKeyOnKoa,
  lockName,
} from "../../examples/agentic-checkout.ts";
import { freshUser } from "../support/ids.ts";
import { until } from "../support/until.ts";
import { newest } from "./frameworks.ts";
import { gate } from "./gate.ts";
import { type OnceOptions, type OnceSubmit, openOnce } from "./once-shop.ts";
import type { Layer, Turn } from "./turn.ts";

/**
 * Section 6 of the Agentic Commerce Protocol's checkout, with the recipe of
 * examples/agentic-checkout.ts. Each test quotes the sentence that it holds the recipe to, as released on
 * 2026-04-17.
 */

const sessions = "/checkout_sessions";
const steps = ["", "/complete", "/cancel"];
const paths = [
  sessions,
  ...["cs_1", "cs_2"].flatMap((id) => steps.map((step) => `${sessions}/${id}${step}`)),
];

/** In front of the guard. */
const echo: Layer = {
  express: () => echoKey,
  koa: () => echoKeyOnKoa,
  hono: () => echoKeyOnHono,
  fastify(app, handler) {
    app.addHook("onRequest", echoKeyOnFastify);
    return handler;
  },
};

const lockOf = ({ headers, url = "" }: Pick<IncomingMessage, "headers" | "url">) =>
  lockName(
    headers["x-user"]?.toString(),
    new URL(url, "http://shop").pathname.split("/")[2],
    headers["idempotency-key"]?.toString(),
  );

/** The recipe for each framework, with more options of `idempotency`. */
function recipeWith(more: object): NonNullable<OnceOptions["recipe"]> {
  const withMore = <Recipe extends { idempotency: object }>(recipe: Recipe, userId: unknown) => ({
    ...recipe,
    idempotency: { ...recipe.idempotency, ...more },
    userId,
  });
  return {
    express: withMore(agentic, lockOf),
    koa: withMore(agenticOnKoa, ({ req }: { req: IncomingMessage }) => lockOf(req)),
    fastify: withMore(agenticOnFastify, ({ raw }: { raw: IncomingMessage }) => lockOf(raw)),
    fetch: withMore(agenticOnFetch, ({ headers, url }: Request) =>
      lockOf({ headers: Object.fromEntries(headers), url }),
    ),
  };
}

/** `key`: null for none. */
type Sent = Omit<OnceSubmit, "key"> & { key?: string | null };

describe.each(newest)("on $name", (framework) => {
  /** A shop, and an agent who sends the same request again and again, but for what is said. */
  async function openAgent(
    handler: OnceOptions["handler"] = (turn, run) => turn.answer(201, { id: `cs_${run}` }),
    idempotency: object = {},
    times: object = {},
  ) {
    const recipe = recipeWith(idempotency);
    const shop = await openOnce({ framework, handler, times, paths, recipe, outside: [echo] });
    const agent = async ({ headers, key = "k-1", ...given }: Sent) => {
      const keyed = key === null ? {} : { key };
      const json = { "content-type": "application/json", ...headers };
      const reply = await shop.submit({
        path: sessions,
        body: {},
        ...given,
        ...keyed,
        headers: json,
      });
      return { ...reply, json: JSON.parse(reply.body) as Record<string, unknown> };
    };
    return { shop, agent };
  }

  // "Clients MUST include an `Idempotency-Key` header on every POST request"; "A POST request
  // without an `Idempotency-Key` header MUST be rejected with" 400 `idempotency_key_required`.
  test("section 6.1: a POST without an Idempotency-Key is rejected with 400, and is not run", async () => {
    const { shop, agent } = await openAgent();
    for (const path of paths) {
      expect(await agent({ path, key: null })).toMatchObject({
        status: 400,
        json: {
          type: "invalid_request",
          code: "idempotency_key_required",
          message: "Idempotency-Key header is required on all POST requests",
        },
      });
    }
    expect(shop.runs).toBe(0);
  });

  // "The key is an opaque string, max 255 characters; UUID v4 is RECOMMENDED." Printable ASCII
  // here, and bare without space, comma, semicolon and double quote.
  test("section 6.1: a key has up to 255 characters", async () => {
    const { agent } = await openAgent();
    const key = "k".repeat(255);
    expect((await agent({ key })).json).toEqual({ id: "cs_1" });
    expect((await agent({ key })).json).toEqual({ id: "cs_1" });
    expect(await agent({ key: "k".repeat(256) })).toMatchObject({
      status: 400,
      json: { type: "invalid_request", code: "idempotency_key_invalid" },
    });
  });

  // "Servers MUST scope keys to the authenticated identity + endpoint path"; "the same key on
  // different endpoints is treated independently".
  test("section 6.1: a key is scoped to the identity and to the endpoint's path", async () => {
    const { agent } = await openAgent();
    const sent: Sent[] = [...paths.map((path) => ({ path })), { user: freshUser() }];
    for (const _times of [1, 2]) {
      for (const [i, each] of sent.entries()) {
        expect((await agent(each)).json).toEqual({ id: `cs_${i + 1}` });
      }
    }
  });

  const body =
    '{"currency":"usd","items":[{"id":"a","quantity":1},{"id":"b","quantity":2}],"note":null}';

  test.each([
    [
      // "Servers MUST treat the following as equivalent": "Different key ordering": yes.
      "keys in another order are equivalent",
      '{"note":null,"items":[{"quantity":1,"id":"a"},{"quantity":2,"id":"b"}],"currency":"usd"}',
      201,
    ],
    [
      // "`null` value vs absent key": different.
      "an absent key is not null",
      '{"currency":"usd","items":[{"id":"a","quantity":1},{"id":"b","quantity":2}]}',
      422,
    ],
    [
      // "Trailing zeros in numbers (`1.0` vs `1`)": yes.
      "1.0 is 1",
      '{"currency":"usd","items":[{"id":"a","quantity":1.0},{"id":"b","quantity":2.00}],"note":null}',
      201,
    ],
    [
      // "Array element ordering": no.
      "arrays are ordered",
      '{"currency":"usd","items":[{"id":"b","quantity":2},{"id":"a","quantity":1}],"note":null}',
      422,
    ],
    [
      // Section 6.7: "extension-defined fields in the request body MUST participate in body comparison".
      "fields of an extension are compared",
      '{"currency":"usd","items":[{"id":"a","quantity":1},{"id":"b","quantity":2}],"note":null,"discounts":{}}',
      422,
    ],
  ])("sections 6.2 and 6.7: %s", async (_what, other, status) => {
    const { shop, agent } = await openAgent();
    expect((await agent({ body })).status).toBe(201);
    expect((await agent({ body: other })).status).toBe(status);
    expect(shop.runs).toBe(1);
  });

  // "Equivalence is determined by semantic JSON equality of the request body only; headers are
  // excluded."
  test("section 6.2: neither headers nor the query count", async () => {
    const { agent } = await openAgent();
    await agent({ body, headers: { "request-id": "1", "accept-language": "en" } });
    const path = "/checkout_sessions?trace=1";
    const headers = { "request-id": "2", "accept-language": "de" };
    expect((await agent({ body, path, headers })).json).toEqual({ id: "cs_1" });
  });

  // "Same key + identical body → server MUST return the original response with the same HTTP status
  // code." "Servers MUST NOT re-execute side effects (e.g., payment capture, inventory reservation) on
  // replay." "The replayed response SHOULD include the header `Idempotent-Replayed: true`." Also a large
  // answer, up to `maxBodyBytes`: a larger one is 409 `idempotency_answer_unavailable`.
  test.each([200, 201, 303, 400, 404, 405, 422])(
    "section 6.3: an answer of status %i is returned again as it was, and says so",
    async (status) => {
      const large = "x".repeat(1_000_000);
      const { agent, shop } = await openAgent((turn, run) => turn.answer(status, { run, large }));
      const first = await agent({});
      const replay = await agent({});
      expect(first.status).toBe(status);
      expect([replay.status, replay.body === first.body]).toEqual([status, true]);
      expect(replay.headers["content-type"]).toBe(first.headers["content-type"]);
      expect(first.headers["idempotent-replayed"]).toBeUndefined();
      expect(replay.headers["idempotent-replayed"]).toBe("true");
      expect(shop.runs).toBe(1);
    },
  );

  // Also answers that `"final"` does not keep, with `store: () => true`.
  test("section 6.3: a conflict of the handler's own is returned again where store keeps it", async () => {
    const refused = (turn: Turn, attempt: number) => turn.answer(409, { attempt });
    const { agent } = await openAgent(refused, { store: () => true });
    expect((await agent({})).json).toEqual({ attempt: 1 });
    expect(await agent({})).toMatchObject({ status: 409, json: { attempt: 1 } });
    const final = await openAgent(refused);
    await final.agent({});
    expect((await final.agent({})).json).toEqual({ attempt: 2 });
  });

  // "Update endpoints (`POST /checkout_sessions/{id}`) follow the same replay semantics as create"
  test("section 6.3: an update follows the same rules as a create", async () => {
    const { agent } = await openAgent((turn, version) => turn.answer(200, { version }));
    const path = "/checkout_sessions/cs_1";
    const update = (sent: Sent) => agent({ path, ...sent });
    expect((await update({ body: { items: [1] } })).json).toEqual({ version: 1 });
    expect((await update({ body: { items: [2] }, key: "k-2" })).json).toEqual({ version: 2 });
    expect((await update({ body: { items: [1] } })).json).toEqual({ version: 1 });
    expect((await update({ body: { items: [2] } })).status).toBe(422);
  });

  // "Same key, different body": 422 `idempotency_conflict`, not retryable.
  test("section 6.4: the same key with a different body is 422, not to be retried", async () => {
    const { agent } = await openAgent();
    await agent({ body: { items: [1] } });
    const conflict = await agent({ body: { items: [2] } });
    expect(conflict).toMatchObject({
      status: 422,
      json: {
        type: "invalid_request",
        code: "idempotency_conflict",
        message: "Idempotency-Key has already been used with a different request body",
      },
    });
    expect(conflict.headers["retry-after"]).toBeUndefined();
  });

  // "Same key, original request still in flight": 409 `idempotency_in_flight`. "Servers SHOULD
  // include a `Retry-After` header (in seconds)."
  test("section 6.4: the same key in flight is 409 with Retry-After, and 422 with a different body", async () => {
    const over = gate();
    const { shop, agent } = await openAgent(async (turn) => {
      await over.opened;
      turn.answer(201, {});
    });
    const first = agent({ body: { items: [1] } });
    await until(() => shop.runs === 1, { what: "the first run" });
    const concurrent = await agent({ body: { items: [1] } });
    expect(concurrent).toMatchObject({
      status: 409,
      json: {
        type: "invalid_request",
        code: "idempotency_in_flight",
        message: "A request with this Idempotency-Key is currently being processed",
      },
    });
    expect(concurrent.headers["retry-after"]).toMatch(/^\d+$/);
    // Both cases at once.
    expect((await agent({ body: { items: [2] } })).status).toBe(422);
    over.open();
    expect((await first).status).toBe(201);
  });

  // "Responses with HTTP 5xx status codes MUST NOT be cached against the idempotency key. A retry
  // with the same key after a 5xx MUST be processed as a fresh request."
  test.each([500, 502, 503])(
    "section 6.5: an answer of status %i is not cached, and the retry is a fresh request",
    async (status) => {
      const { shop, agent } = await openAgent((turn, run) =>
        turn.answer(run === 1 ? status : 201, { run }),
      );
      expect((await agent({})).status).toBe(status);
      const fresh = await agent({});
      expect(fresh).toMatchObject({ status: 201, json: { run: 2 } });
      expect(fresh.headers["idempotent-replayed"]).toBeUndefined();
      expect((await agent({})).headers["idempotent-replayed"]).toBe("true");
      expect(shop.runs).toBe(2);
    },
  );

  // "Servers MUST retain idempotency key → response mappings for at least 24 hours." In a Redis
  // that keeps what it is given.
  test("section 6.6: what was answered is kept for at least 24 hours", async () => {
    const { shop, agent } = await openAgent();
    await agent({});
    const { redis, user } = shop.shop;
    const [record = ""] = await redis.keys(`{*${user}*}:*`);
    const leftMs = await redis.pttl(record);
    expect(leftMs).toBeGreaterThan(24 * 3_600_000);
  });

  // "After expiry, a reused key is treated as a new request (no error)."
  test("section 6.6: a key that has expired is a new one, without an error", async () => {
    const { shop, agent } = await openAgent(
      undefined,
      { retainMs: 2_000 },
      { acquireTimeoutMs: 1_000, commandTimeoutMs: 500 },
    );
    expect((await agent({ body: { items: [1] } })).status).toBe(201);
    const isNew = async () => (await agent({ body: { items: [2] } })).status === 201;
    await until(isNew, { what: "the key to expire" });
    expect(shop.runs).toBe(2);
  });

  // "`Idempotency-Key` — echo on all POST responses". The recipe's `echoKey`.
  test("section 3.1: every answer echoes the key", async () => {
    const { agent } = await openAgent((turn, run) => turn.answer(run === 2 ? 500 : 201, {}));
    const replies = [
      await agent({ body: { items: [1] } }),
      await agent({ body: { items: [1] } }),
      await agent({ body: { items: [2] } }),
      await agent({ key: "k-2" }),
    ];
    expect(replies.map(({ status }) => status)).toEqual([201, 201, 422, 500]);
    expect(replies.map(({ headers }) => headers["idempotency-key"])).toEqual([
      "k-1",
      "k-1",
      "k-1",
      "k-2",
    ]);
  });

  test("two sessions of one agent are not in each other's way", async () => {
    const { shop, agent } = await openAgent((turn, run) =>
      run === 1 ? new Promise(() => {}) : turn.answer(200, {}),
    );
    void agent({ path: "/checkout_sessions/cs_1/complete" }).catch(() => {});
    await until(() => shop.runs === 1, { what: "the first run" });
    expect((await agent({ path: "/checkout_sessions/cs_2/complete" })).status).toBe(200);
    expect((await agent({ path: "/checkout_sessions" })).status).toBe(200);
    const same = await agent({ path: "/checkout_sessions/cs_1/cancel", key: "k-2" });
    expect(same).toMatchObject({ status: 409, json: { code: "submit_contended" } });
  });
});
