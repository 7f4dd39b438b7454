import { describe, expect, test } from "vitest";
import { freshUser } from "../support/ids.ts";
import { until } from "../support/until.ts";
import { newest } from "./frameworks.ts";
import { gate } from "./gate.ts";
import { type OnceOptions, type OnceSubmit, openOnce } from "./once-shop.ts";

/**
 * draft-ietf-httpapi-idempotency-key-header-07, by its section numbers. Each test quotes the
 * sentence that it holds the guard to, of revision 06: of 07 only the abstract could be compared, and
 * that is the same.
 */

const docs = "https://shop.example/docs/idempotency";

/** `key`: null for none. */
type Sent = Omit<OnceSubmit, "key"> & { key?: string | null };

describe.each(newest)("on $name", (framework) => {
  type Options = Omit<OnceOptions, "framework" | "guard">;

  /** A shop, and a customer who sends the same request again and again, but for what is said. */
  async function openShop(idempotency: object = {}, options: Options = {}) {
    const handler: Options["handler"] = (turn, order) => turn.answer(201, { order });
    const guard = { idempotency: { docs, ...idempotency } };
    const shop = await openOnce({ framework, handler, ...options, guard });
    const submit = async ({ headers, key = "k-1", ...given }: Sent) => {
      const json = { "content-type": "application/json", ...headers };
      const keyed = key === null ? {} : { key };
      const reply = await shop.submit({ body: {}, ...given, ...keyed, headers: json });
      return { ...reply, json: JSON.parse(reply.body) as Record<string, unknown> };
    };
    return { shop, submit };
  }

  const placed: Options["handler"] = (turn) => {
    const headers = { location: "/orders/1", etag: '"1"', "x-own": "as it was" };
    for (const [name, value] of Object.entries(headers)) turn.res.setHeader(name, value);
    turn.answer(201, { order: 1 });
  };

  // "Its value MUST be a String (Section 3.3.3 of RFC 8941)." The bare text, which nearly all
  // clients send, is also accepted.
  test("section 2.1: a quoted String of RFC 8941 is a key, and the bare text is the same one", async () => {
    const { submit } = await openShop();
    const key = "8e03978e-40d5-43e8-bc93-6894a57f9324";
    const first = await submit({ key: `"${key}"` });
    const second = await submit({ key });
    expect(first.json).toEqual({ order: 1 });
    expect(second.json).toEqual({ order: 1 });
    expect(second.headers["idempotent-replayed"]).toBe("true");
    expect((await submit({ key: "clkyoesmbgybucifusbbtdsbohtyuuwz" })).json).toEqual({ order: 2 });
  });

  // "The resource MAY require time based idempotency keys to be able to purge or delete a key upon
  // its expiry."
  test("section 2.3: a key expires retainMs after its answer, and is a new one then", async () => {
    const times = { acquireTimeoutMs: 3_000, commandTimeoutMs: 1_500 };
    const { shop, submit } = await openShop({ retainMs: 6_000 }, { times });
    expect((await submit({ body: { cart: 1 } })).json).toEqual({ order: 1 });
    expect((await submit({ body: { cart: 1 } })).json).toEqual({ order: 1 });
    const again = () => submit({ body: { cart: 2 } });
    await until(async () => (await again()).status === 201, { what: "the key to expire" });
    expect(shop.runs).toBe(2);
  });

  // "An idempotency fingerprint MAY be used": "Checksum of the entire request payload."
  test("section 2.4: the fingerprint is taken of query and payload, however the JSON is spelled", async () => {
    const { submit } = await openShop();
    const body = '{"items":[1,2],"note":null}';
    expect((await submit({ body })).json).toEqual({ order: 1 });
    const spelled = await submit({ body: '{ "note": null, "items": [1.0, 2] }' });
    expect(spelled.json).toEqual({ order: 1 });
    for (const other of ['{"items":[2,1],"note":null}', '{"items":[1,2]}', "[]"]) {
      expect((await submit({ body: other })).status).toBe(422);
    }
    expect((await submit({ body, path: "/orders?express=1" })).status).toBe(422);
  });

  // "Checksum of selected element(s) in the request payload."
  test("section 2.4: selected elements of the payload can be the fingerprint", async () => {
    const ofCart = (req: object) => Reflect.get(Reflect.get(req, "body") as object, "cart");
    const { submit } = await openShop({ fingerprint: ofCart });
    await submit({ body: { cart: 1, captcha: "a" } });
    expect((await submit({ body: { cart: 1, captcha: "b" } })).json).toEqual({ order: 1 });
    expect((await submit({ body: { cart: 2, captcha: "a" } })).status).toBe(422);
  });

  // "Resources MUST publish a idempotency related specification. This specification MUST include
  // expiration related policy if applicable." The publishing is the application's; `docs` leads
  // there.
  test("section 2.5.2: every refusal leads to the published specification", async () => {
    const handler = () => new Promise(() => {});
    const { shop, submit } = await openShop({ key: "required" }, { handler });
    void submit({ body: { cart: 1 } }).catch(() => {});
    await until(() => shop.runs === 1, { what: "the first run" });
    const refusals = [
      await submit({ key: null }),
      await submit({ key: "a, b" }),
      await submit({ body: { cart: 1 } }),
      await submit({ body: { cart: 2 } }),
    ];
    expect(refusals.map(({ status }) => status)).toEqual([400, 400, 409, 422]);
    for (const { headers, json } of refusals) {
      expect(headers["content-type"]).toBe("application/problem+json");
      expect(json["type"]).toBe(docs);
      expect(headers["link"]).toBe(`<${docs}>; rel="describedby"`);
    }
  });

  // First time: "The resource SHOULD process the request normally and respond with an appropriate
  // response and status code." Retry: "The resource SHOULD respond with the result of the previously
  // completed operation, success or an error."
  test("section 2.6: a first request is answered as without a key, and a retry is given its answer", async () => {
    const { shop, submit } = await openShop({}, { handler: placed });
    const first = await submit({});
    expect(first).toEqual(await submit({ key: null }));
    expect(first.headers["idempotent-replayed"]).toBeUndefined();
    const retry = await submit({});
    const headers = { location: "/orders/1", etag: '"1"' };
    expect(retry).toMatchObject({ status: 201, body: first.body, headers });
    expect(retry.headers["content-type"]).toBe(first.headers["content-type"]);
    expect(retry.headers["idempotent-replayed"]).toBe("true");
    expect(shop.runs).toBe(2);
  });

  // Retry after an error. The default, `store: "success"`, departs from it on purpose: a form
  // that was refused can be corrected and sent again.
  test('section 2.6: with store "final" an error of the client\'s is an answer like any other', async () => {
    const handler: Options["handler"] = (turn, attempt) => turn.answer(402, { attempt });
    const final = await openShop({ store: "final" }, { handler });
    expect((await final.submit({})).json).toEqual({ attempt: 1 });
    expect(await final.submit({})).toMatchObject({ status: 402, json: { attempt: 1 } });

    const success = await openShop({}, { handler });
    expect((await success.submit({})).json).toEqual({ attempt: 1 });
    expect((await success.submit({})).json).toEqual({ attempt: 2 });
  });

  // Concurrent: "The resource SHOULD respond with a resource conflict error."
  test("section 2.6: a concurrent request is told of a conflict, and is not run", async () => {
    const goOn = gate();
    const { shop, submit } = await openShop(
      {},
      {
        handler: async (turn, order) => {
          await goOn.opened;
          turn.answer(201, { order });
        },
      },
    );
    const first = submit({});
    await until(() => shop.runs === 1, { what: "the first run" });
    const concurrent = await submit({});
    expect(concurrent).toMatchObject({
      status: 409,
      json: {
        type: docs,
        title: "A request is outstanding for this Idempotency-Key",
        code: "idempotency_in_flight",
      },
    });
    expect(concurrent.headers["retry-after"]).toBe("1");
    goOn.open();
    expect((await first).status).toBe(201);
    expect(shop.runs).toBe(1);
  });

  // "If the `Idempotency-Key` request header is missing for a documented idempotent operation
  // requiring this header, the resource SHOULD reply with an HTTP `400` status code with body
  // containing a link pointing to relevant documentation."
  test("section 2.7: a missing key is 400 where the operation requires one", async () => {
    const { shop, submit } = await openShop({ key: "required" });
    expect(await submit({ key: null })).toMatchObject({
      status: 400,
      json: {
        type: docs,
        title: "Idempotency-Key is missing",
        code: "idempotency_key_required",
      },
    });
    expect((await submit({ key: "" })).json["code"]).toBe("idempotency_key_required");
    expect(shop.runs).toBe(0);
  });

  // "The idempotency key MUST be unique and MUST NOT be reused with another request with a
  // different request payload." "If there is an attempt to reuse an idempotency key with a different
  // request payload, the resource SHOULD reply with a HTTP `422` status code with body containing a
  // link pointing to relevant documentation." "Clients MUST correct the requests (with the exception
  // of 409 where no correction is required) before performing a retry operation, or the resource MUST
  // fail the request and return one of the above errors."
  test("sections 2.2 and 2.7: a key that comes with another payload is refused, again and again", async () => {
    const { shop, submit } = await openShop({ key: "required" });
    await submit({ body: { cart: 1 } });
    await shop.whenKept(1);
    const before = await shop.everything();
    for (let times = 0; times < 3; times++) {
      expect((await submit({ key: null })).status).toBe(400);
      expect(await submit({ body: { cart: 2 } })).toMatchObject({
        status: 422,
        json: {
          type: docs,
          title: "Idempotency-Key is already used",
          code: "idempotency_conflict",
        },
      });
    }
    // Nor have the refusals harmed what was kept.
    expect(await shop.everything()).toEqual(before);
    expect((await submit({ body: { cart: 1 } })).json).toEqual({ order: 1 });
    expect(shop.runs).toBe(1);
  });

  // "Establish a fixed format for the idempotency key and publish the key's specification. Always
  // validate the key as per its published specification before processing any request."
  test("section 5: a key is validated before anything is processed", async () => {
    const { shop, submit } = await openShop();
    const invalid = [
      "a, b",
      ["a", "b"],
      "x".repeat(256),
      '"open',
      '"a";v=1',
      "a b",
      "schl\u00fcssel",
    ];
    for (const key of invalid) {
      expect(await submit({ headers: { "idempotency-key": key } })).toMatchObject({
        status: 400,
        json: { code: "idempotency_key_invalid" },
      });
    }
    expect([shop.runs, await shop.everything()]).toEqual([0, []]);
    expect((await submit({ key: "x".repeat(255) })).status).toBe(201);
  });

  // "implement a unique composite key as the idempotent cache lookup key"
  test("section 5: the key counts together with the user, the method and the path", async () => {
    const ids = new Set<string | undefined>();
    const { submit } = await openShop(
      {},
      {
        handler: (turn, order) => {
          ids.add(turn.submission?.id);
          turn.answer(201, { order });
        },
      },
    );
    const [ada, grace] = [freshUser(), freshUser()];
    expect((await submit({ user: ada })).json).toEqual({ order: 1 });
    expect((await submit({ user: grace })).json).toEqual({ order: 2 });
    expect((await submit({ user: ada, path: "/refunds" })).json).toEqual({ order: 3 });
    expect((await submit({ user: ada, method: "PUT" })).json).toEqual({ order: 4 });
    expect((await submit({ user: ada })).json).toEqual({ order: 1 });
    expect((await submit({ user: grace })).json).toEqual({ order: 2 });
    // Nor does what a shop hands on tell two of them apart less well.
    expect(ids.size).toBe(4);
  });

  // Injection, and leaks of other clients' entries.
  test("section 5: neither the key nor what was sent with it can be read in Redis", async () => {
    const { shop, submit } = await openShop();
    const [key, secret] = ["a-key-of-the-client", "a-word-of-the-customer"];
    await submit({ key, body: { secret } });
    await shop.whenKept(1);
    const { redis, user } = shop.shop;
    const keys = await redis.keys(`*${user}*`);
    expect(keys).toHaveLength(1);
    const texts = `${keys} ${await shop.records()}`;
    expect(texts).not.toContain(key);
    expect(texts).not.toContain(secret);
  });
});
