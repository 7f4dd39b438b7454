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
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import {
  type Answer,
  type ConformingShop,
  frameworks,
  openConformingShop,
  type Reply,
  type Run,
  type Submit,
} from "./conforming-shop.ts";

/**
 * Section 6 of the Agentic Commerce Protocol's checkout, with the recipe of
 * examples/agentic-checkout.ts. Each test quotes the sentence that it holds the recipe to, as of June
 * 2026.
 */

type Incoming = Pick<import("node:http").IncomingMessage, "headers" | "url">;
type Koa = import("koa").Context;
type Fastify = import("fastify").FastifyRequest;

const created = ({ earlier }: Run): Answer => ({ status: 201, body: { id: `cs_${earlier + 1}` } });

describe.each(frameworks)("on $name", (framework) => {
  function openShop(
    handler: (run: Run) => Answer | Promise<Answer> = created,
    idempotency: object = {},
    lock: object = {},
  ): Promise<ConformingShop> {
    const optionsOf = (recipe: { idempotency: object }, nodeOf: (given: never) => Incoming) => ({
      ...recipe,
      idempotency: { ...recipe.idempotency, ...idempotency },
      userId: (given: never) => {
        const { headers, url = "" } = nodeOf(given);
        const key = headers["idempotency-key"]?.toString();
        return lockName(headers["x-user"]?.toString(), url.split("?")[0]?.split("/")[2], key);
      },
    });
    return openConformingShop(framework, {
      express: { before: echoKey, options: optionsOf(agentic, (req) => req) },
      koa: {
        before: echoKeyOnKoa,
        options: optionsOf(agenticOnKoa, ({ req }: Koa) => req),
      },
      fastify: {
        before: echoKeyOnFastify,
        options: optionsOf(agenticOnFastify, ({ raw }: Fastify) => raw),
      },
      fetch: {
        before: echoKeyOnHono,
        options: optionsOf(agenticOnFetch, ({ headers, url }: Request) => ({
          headers: Object.fromEntries(headers),
          url: new URL(url).pathname,
        })),
      },
      handler,
      lock,
    });
  }

  /** An agent that sends the same request again and again, but for what is said. */
  function agentOf(shop: ConformingShop, user = freshUser()): (submit: Submit) => Promise<Reply> {
    return (submit) => shop.submit({ user, key: "k-1", path: "/checkout_sessions", ...submit });
  }

  async function openAgent(...given: Parameters<typeof openShop>) {
    const shop = await openShop(...given);
    return { shop, agent: agentOf(shop) };
  }

  // "Clients MUST include an `Idempotency-Key` header on every POST request"; "A POST request
  // without an `Idempotency-Key` header MUST be rejected with" 400 `idempotency_key_required`.
  test("section 6.1: a POST without an Idempotency-Key is rejected with 400, and is not run", async () => {
    const { shop, agent } = await openAgent();
    for (const path of [
      "/checkout_sessions",
      "/checkout_sessions/cs_1",
      "/checkout_sessions/cs_1/complete",
      "/checkout_sessions/cs_1/cancel",
    ]) {
      expect(await agent({ path, key: undefined })).toMatchObject({
        status: 400,
        json: {
          type: "invalid_request",
          code: "idempotency_key_required",
          message: "Idempotency-Key header is required on all POST requests",
        },
      });
    }
    expect(shop.runs).toHaveLength(0);
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

  // "Servers MUST scope keys to the authenticated identity + endpoint path"
  test("section 6.1: a key is scoped to the authenticated identity", async () => {
    const shop = await openShop();
    const [one, other] = [agentOf(shop), agentOf(shop)];
    expect((await one({})).json).toEqual({ id: "cs_1" });
    expect((await other({})).json).toEqual({ id: "cs_2" });
    expect((await one({})).json).toEqual({ id: "cs_1" });
  });

  // "the same key on different endpoints is treated independently"
  test("section 6.1: a key is scoped to the endpoint's path", async () => {
    const { agent } = await openAgent();
    const paths = [
      "/checkout_sessions",
      "/checkout_sessions/cs_1",
      "/checkout_sessions/cs_1/complete",
      "/checkout_sessions/cs_2",
    ];
    const first = await inTurn(paths, (path) => agent({ path }));
    expect(first.map(({ json }) => json["id"])).toEqual(["cs_1", "cs_2", "cs_3", "cs_4"]);
    const again = await inTurn(paths, (path) => agent({ path }));
    expect(again.map(({ json }) => json["id"])).toEqual(["cs_1", "cs_2", "cs_3", "cs_4"]);
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
  ])("section 6.2: %s", async (_what, other, status) => {
    const { shop, agent } = await openAgent();
    expect((await agent({ body })).status).toBe(201);
    expect((await agent({ body: other })).status).toBe(status);
    expect(shop.runs).toHaveLength(1);
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
  // code."
  test.each([200, 201, 303, 400, 404, 405, 422])(
    "section 6.3: an answer of status %i is returned again as it was",
    async (status) => {
      const shop = await openShop(({ earlier }) => ({
        status,
        body: { id: `cs_${earlier + 1}` },
      }));
      const agent = agentOf(shop);
      const first = await agent({});
      const replay = await agent({});
      expect(first.status).toBe(status);
      expect(replay).toMatchObject({ status, text: first.text });
      expect(replay.headers["content-type"]).toBe(first.headers["content-type"]);
    },
  );

  // Also answers that `"final"` does not keep, with `store: () => true`.
  test("section 6.3: a conflict of the handler's own is returned again where store keeps it", async () => {
    const refused = ({ earlier }: Run): Answer => ({
      status: 409,
      body: { attempt: earlier + 1 },
    });
    const { agent } = await openAgent(refused, { store: () => true });
    expect((await agent({})).json).toEqual({ attempt: 1 });
    expect(await agent({})).toMatchObject({ status: 409, json: { attempt: 1 } });

    const final = await openShop(refused);
    const other = agentOf(final);
    await other({});
    expect((await other({})).json).toEqual({ attempt: 2 });
  });

  // Also a large answer, up to `maxBodyBytes`. A larger one is 409
  // `idempotency_answer_unavailable`.
  test("section 6.3: an answer of 1 MB is returned again as it was", async () => {
    const large = "x".repeat(1_000_000);
    const { agent } = await openAgent(({ earlier }) => ({ status: 200, body: { earlier, large } }));
    const first = await agent({});
    expect((await agent({})).text).toBe(first.text);
  });

  // "The replayed response SHOULD include the header `Idempotent-Replayed: true`."
  test("section 6.3: a replay says Idempotent-Replayed: true, and a first answer does not", async () => {
    const agent = agentOf(await openShop());
    expect((await agent({})).headers["idempotent-replayed"]).toBeUndefined();
    expect((await agent({})).headers["idempotent-replayed"]).toBe("true");
  });

  // "Update endpoints (`POST /checkout_sessions/{id}`) follow the same replay semantics as create"
  test("section 6.3: an update follows the same rules as a create", async () => {
    const { agent } = await openAgent(({ earlier }) => ({
      status: 200,
      body: { version: earlier + 1 },
    }));
    const path = "/checkout_sessions/cs_1";
    const update = (submit: Submit) => agent({ path, ...submit });
    expect((await update({ body: { items: [1] } })).json).toEqual({ version: 1 });
    expect((await update({ body: { items: [2] }, key: "k-2" })).json).toEqual({ version: 2 });
    expect((await update({ body: { items: [1] } })).json).toEqual({ version: 1 });
    expect((await update({ body: { items: [2] } })).status).toBe(422);
  });

  // "Servers MUST NOT re-execute side effects (e.g., payment capture, inventory reservation) on
  // replay."
  test("section 6.3: side effects are not executed again", async () => {
    let captured = 0;
    const { agent } = await openAgent(() => {
      captured++;
      return { status: 200, body: { status: "completed" } };
    });
    const path = "/checkout_sessions/cs_1/complete";
    for (let times = 0; times < 5; times++) expect((await agent({ path })).status).toBe(200);
    expect(captured).toBe(1);
  });

  // "Same key, different body": 422 `idempotency_conflict`, not retryable.
  test("section 6.4: the same key with a different body is 422, not to be retried", async () => {
    const agent = agentOf(await openShop());
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
  test("section 6.4: the same key in flight is 409 with Retry-After", async () => {
    const { agent, first, finish } = await inFlight();
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
    finish();
    expect((await first).status).toBe(201);
  });

  // Both cases at once.
  test("section 6.4: the same key in flight with a different body is 422 at once", async () => {
    const { agent, first, finish } = await inFlight();
    expect((await agent({ body: { items: [2] } })).status).toBe(422);
    finish();
    expect((await first).status).toBe(201);
  });

  async function inFlight() {
    let answer: (answer: Answer) => void = () => {};
    const { shop, agent } = await openAgent(
      () =>
        new Promise((resolve) => {
          answer = resolve;
        }),
    );
    const first = agent({ body: { items: [1] } });
    await until(() => shop.runs.length === 1, { what: "the first run" });
    return { agent, first, finish: () => answer({ status: 201, body: {} }) };
  }

  // "Responses with HTTP 5xx status codes MUST NOT be cached against the idempotency key. A retry
  // with the same key after a 5xx MUST be processed as a fresh request."
  test.each([500, 502, 503])(
    "section 6.5: an answer of status %i is not cached, and the retry is a fresh request",
    async (status) => {
      const shop = await openShop(({ earlier }) =>
        earlier === 0 ? { status, body: { failed: true } } : { status: 201, body: { id: "cs_1" } },
      );
      const agent = agentOf(shop);
      expect((await agent({})).status).toBe(status);
      const fresh = await agent({});
      expect(fresh).toMatchObject({ status: 201, json: { id: "cs_1" } });
      expect(fresh.headers["idempotent-replayed"]).toBeUndefined();
      expect((await agent({})).headers["idempotent-replayed"]).toBe("true");
      expect(shop.runs).toHaveLength(2);
    },
  );

  // "Servers MUST retain idempotency key → response mappings for at least 24 hours." In a Redis
  // that keeps what it is given.
  test("section 6.6: what was answered is kept for at least 24 hours", async () => {
    const user = freshUser();
    await agentOf(await openShop(), user)({});
    const port = sharedRedisPort();
    const records = (await command(port, "keys", `{*${user}*}:*`)) as string[];
    expect(records).toHaveLength(1);
    const leftMs = Number(await command(port, "pttl", records[0] as string));
    expect(leftMs).toBeGreaterThan(24 * 3_600_000);
  });

  // "After expiry, a reused key is treated as a new request (no error)."
  test("section 6.6: a key that has expired is a new one, without an error", async () => {
    const { agent } = await openAgent(
      created,
      { retainMs: 1_000 },
      { acquireTimeoutMs: 500, commandTimeoutMs: 250 },
    );
    await agent({ body: { items: [1] } });
    const expired = async () => (await agent({ body: { items: [2] } })).status !== 422;
    await until(expired, { what: "the key to expire" });
    expect(await agent({ body: { items: [2] } })).toMatchObject({
      status: 201,
      json: { id: "cs_2" },
    });
  });

  // "extension-defined fields in the request body MUST participate in body comparison"
  test("section 6.7: fields of an extension are compared", async () => {
    const agent = agentOf(await openShop());
    const body = { items: [1], discounts: { codes: ["SAVE10"] } };
    expect((await agent({ body })).status).toBe(201);
    expect((await agent({ body })).status).toBe(201);
    expect((await agent({ body: { ...body, discounts: { codes: ["SAVE20"] } } })).status).toBe(422);
    expect((await agent({ body: { items: [1] } })).status).toBe(422);
  });

  // "`Idempotency-Key` — echo on all POST responses". The recipe's `echoKey`.
  test("section 3.1: every answer echoes the key", async () => {
    const { agent } = await openAgent(({ earlier }) =>
      earlier === 1 ? { status: 500, body: {} } : { status: 201, body: {} },
    );
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
    const { shop, agent } = await openAgent(({ earlier }) =>
      earlier === 0 ? new Promise(() => {}) : { status: 200, body: {} },
    );
    void agent({ path: "/checkout_sessions/cs_1/complete" }).catch(() => {});
    await until(() => shop.runs.length === 1, { what: "the first run" });
    expect((await agent({ path: "/checkout_sessions/cs_2/complete" })).status).toBe(200);
    expect((await agent({ path: "/checkout_sessions" })).status).toBe(200);
    const same = await agent({ path: "/checkout_sessions/cs_1/cancel", key: "k-2" });
    expect(same).toMatchObject({ status: 409, json: { code: "submit_contended" } });
  });
});

async function inTurn<In, Out>(
  items: readonly In[],
  ask: (item: In) => Promise<Out>,
): Promise<Out[]> {
  const answers: Out[] = [];
  for (const item of items) answers.push(await ask(item));
  return answers;
}
