import { afterEach, describe, expect, test } from "vitest";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import {
  type Answer,
  type ConformingShop,
  closeConformingShops,
  frameworks,
  openConformingShop,
  type Reply,
  type Run,
  type Submit,
} from "./conforming-shop.ts";

/**
 * draft-ietf-httpapi-idempotency-key-header-07, by its section numbers. docs/reference/idempotency.md
 * quotes what each of these tests stands for, and names it.
 */

afterEach(closeConformingShops);

const docs = "https://shop.example/docs/idempotency";

const numbered = ({ earlier }: Run): Answer => ({ status: 201, body: { order: earlier + 1 } });

describe.each(frameworks)("on $name", (framework) => {
  function openShop(
    idempotency: object = {},
    handler: (run: Run) => Answer | Promise<Answer> = numbered,
  ): Promise<ConformingShop> {
    const options = { idempotency: { docs, ...idempotency } };
    return openConformingShop(framework, {
      express: { options },
      koa: { options },
      fastify: { options },
      fetch: { options },
      handler,
    });
  }

  /** A customer who sends the same request again and again, but for what is said. */
  function customerOf(
    shop: ConformingShop,
    user = freshUser(),
  ): (submit: Submit) => Promise<Reply> {
    return (submit) => shop.submit({ user, key: "k-1", ...submit });
  }

  test("section 2.1: a quoted String of RFC 8941 is a key, and the bare text is the same one", async () => {
    const shop = await openShop();
    const submit = customerOf(shop);
    const key = "8e03978e-40d5-43e8-bc93-6894a57f9324";
    const first = await submit({ key: `"${key}"` });
    const second = await submit({ key });
    expect(first.json).toEqual({ order: 1 });
    expect(second.json).toEqual({ order: 1 });
    expect(second.headers["idempotent-replayed"]).toBe("true");
    expect((await submit({ key: "clkyoesmbgybucifusbbtdsbohtyuuwz" })).json).toEqual({ order: 2 });
  });

  test("section 2.2: a key that comes with another payload is refused", async () => {
    const shop = await openShop();
    const submit = customerOf(shop);
    expect((await submit({ body: { cart: 1 } })).status).toBe(201);
    expect((await submit({ body: { cart: 2 } })).status).toBe(422);
    expect(shop.runs).toHaveLength(1);
  });

  test("section 2.3: a key expires retainMs after its answer, and is a new one then", async () => {
    const shop = await openConformingShop(framework, {
      express: { options: { idempotency: { retainMs: 1_000 } } },
      koa: { options: { idempotency: { retainMs: 1_000 } } },
      fastify: { options: { idempotency: { retainMs: 1_000 } } },
      fetch: { options: { idempotency: { retainMs: 1_000 } } },
      lock: { acquireTimeoutMs: 500 },
      handler: numbered,
    });
    const submit = customerOf(shop);
    expect((await submit({ body: { cart: 1 } })).json).toEqual({ order: 1 });
    expect((await submit({ body: { cart: 1 } })).json).toEqual({ order: 1 });
    const again = () => submit({ body: { cart: 2 } });
    await until(async () => (await again()).status === 201, { what: "the key to expire" });
    expect(shop.runs).toHaveLength(2);
  });

  test("section 2.4: the fingerprint is taken of query and payload, however the JSON is spelled", async () => {
    const shop = await openShop();
    const submit = customerOf(shop);
    const body = '{"items":[1,2],"note":null}';
    expect((await submit({ body })).json).toEqual({ order: 1 });
    const spelled = await submit({ body: '{ "note": null, "items": [1.0, 2] }' });
    expect(spelled.json).toEqual({ order: 1 });
    for (const other of ['{"items":[2,1],"note":null}', '{"items":[1,2]}', "[]"]) {
      expect((await submit({ body: other })).status).toBe(422);
    }
    expect((await submit({ body, path: "/orders?express=1" })).status).toBe(422);
  });

  test("section 2.4: selected elements of the payload can be the fingerprint", async () => {
    const ofCart = (body: unknown) => (body as { cart: number }).cart;
    const shop = await openConformingShop(framework, {
      express: {
        options: { idempotency: { fingerprint: (req: { body: unknown }) => ofCart(req.body) } },
      },
      koa: {
        options: {
          idempotency: {
            fingerprint: (ctx: { request: { body: unknown } }) => ofCart(ctx.request.body),
          },
        },
      },
      fastify: {
        options: { idempotency: { fingerprint: (req: { body: unknown }) => ofCart(req.body) } },
      },
      fetch: {
        options: {
          idempotency: {
            fingerprint: async (request: Request) => ofCart(await request.clone().json()),
          },
        },
      },
      handler: numbered,
    });
    const submit = customerOf(shop);
    await submit({ body: { cart: 1, captcha: "a" } });
    expect((await submit({ body: { cart: 1, captcha: "b" } })).json).toEqual({ order: 1 });
    expect((await submit({ body: { cart: 2, captcha: "a" } })).status).toBe(422);
  });

  test("section 2.5.2: every refusal leads to the published specification", async () => {
    const shop = await openShop({ key: "required" }, () => new Promise(() => {}));
    const submit = customerOf(shop);
    void submit({ body: { cart: 1 } }).catch(() => {});
    await until(() => shop.runs.length === 1, { what: "the first run" });
    const refusals = [
      await submit({ key: undefined }),
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

  test("section 2.6: a first request is processed and answered as without a key", async () => {
    const headers = { location: "/orders/1", "x-own": "as it was" };
    const shop = await openShop({}, () => ({ status: 201, headers, body: { order: 1 } }));
    const submit = customerOf(shop);
    const first = await submit({});
    const without = await submit({ key: undefined });
    for (const each of [first, without]) delete each.headers["date"];
    expect(first).toEqual(without);
    expect(first.headers["idempotent-replayed"]).toBeUndefined();
  });

  test("section 2.6: a retry after completion is given the first answer", async () => {
    const headers = { location: "/orders/1", etag: '"1"' };
    const shop = await openShop({}, () => ({ status: 201, headers, body: { order: 1 } }));
    const submit = customerOf(shop);
    const first = await submit({});
    const retry = await submit({});
    expect(retry).toMatchObject({ status: 201, text: first.text, headers });
    expect(retry.headers["content-type"]).toBe(first.headers["content-type"]);
    expect(retry.headers["idempotent-replayed"]).toBe("true");
    expect(shop.runs).toHaveLength(1);
  });

  test('section 2.6: with store "final" an error of the client\'s is an answer like any other', async () => {
    const refused = ({ earlier }: Run): Answer => ({ status: 402, body: { attempt: earlier + 1 } });
    const final = await openShop({ store: "final" }, refused);
    const submit = customerOf(final);
    expect((await submit({})).json).toEqual({ attempt: 1 });
    expect(await submit({})).toMatchObject({ status: 402, json: { attempt: 1 } });

    const success = await openShop({}, refused);
    const again = customerOf(success);
    expect((await again({})).json).toEqual({ attempt: 1 });
    expect((await again({})).json).toEqual({ attempt: 2 });
  });

  test("section 2.6: a concurrent request is told of a conflict, and is not run", async () => {
    let answer: (answer: Answer) => void = () => {};
    const shop = await openShop(
      {},
      () =>
        new Promise((resolve) => {
          answer = resolve;
        }),
    );
    const submit = customerOf(shop);
    const first = submit({});
    await until(() => shop.runs.length === 1, { what: "the first run" });
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
    answer({ status: 201, body: { order: 1 } });
    expect((await first).status).toBe(201);
    expect(shop.runs).toHaveLength(1);
  });

  test("section 2.7: a missing key is 400 where the operation requires one", async () => {
    const shop = await openShop({ key: "required" });
    const submit = customerOf(shop);
    expect(await submit({ key: undefined })).toMatchObject({
      status: 400,
      json: {
        type: docs,
        title: "Idempotency-Key is missing",
        code: "idempotency_key_required",
      },
    });
    expect((await submit({ key: "" })).json["code"]).toBe("idempotency_key_required");
    expect(shop.runs).toHaveLength(0);
  });

  test("section 2.7: a key that was used with another payload is 422", async () => {
    const shop = await openShop();
    const submit = customerOf(shop);
    await submit({ body: { cart: 1 } });
    expect(await submit({ body: { cart: 2 } })).toMatchObject({
      status: 422,
      json: {
        type: docs,
        title: "Idempotency-Key is already used",
        code: "idempotency_conflict",
      },
    });
  });

  test("section 2.7: a request that was not corrected is refused again", async () => {
    const shop = await openShop({ key: "required" });
    const submit = customerOf(shop);
    await submit({ body: { cart: 1 } });
    for (let times = 0; times < 3; times++) {
      expect((await submit({ key: undefined })).status).toBe(400);
      expect((await submit({ body: { cart: 2 } })).status).toBe(422);
    }
    // Nor have the refusals harmed what was kept.
    expect((await submit({ body: { cart: 1 } })).json).toEqual({ order: 1 });
    expect(shop.runs).toHaveLength(1);
  });

  test("section 5: a key is validated before anything is processed", async () => {
    const shop = await openShop();
    const user = freshUser();
    const submit = customerOf(shop, user);
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
      expect(await submit({ key })).toMatchObject({
        status: 400,
        json: { code: "idempotency_key_invalid" },
      });
    }
    expect(shop.runs).toHaveLength(0);
    expect(await keysOf(user)).toEqual([]);
    expect((await submit({ key: "x".repeat(255) })).status).toBe(201);
  });

  test("section 5: the key counts together with the user, the method and the path", async () => {
    const shop = await openShop();
    const [ada, grace] = [customerOf(shop), customerOf(shop)];
    expect((await ada({})).json).toEqual({ order: 1 });
    expect((await grace({})).json).toEqual({ order: 2 });
    expect((await ada({ path: "/refunds" })).json).toEqual({ order: 3 });
    expect((await ada({})).json).toEqual({ order: 1 });
    expect((await grace({})).json).toEqual({ order: 2 });
    // Nor does what a shop hands on tell two of them apart less well.
    expect(new Set(shop.runs.map(({ submission }) => submission?.id)).size).toBe(3);
  });

  test("section 5: neither the key nor what was sent with it can be read in Redis", async () => {
    const shop = await openShop();
    const user = freshUser();
    const [key, secret] = ["a-key-of-the-client", "a-word-of-the-customer"];
    await customerOf(shop, user)({ key, body: { secret } });
    const keys = await keysOf(user);
    expect(keys).toHaveLength(1);
    const texts = await Promise.all(keys.map((each) => command(sharedRedisPort(), "get", each)));
    expect(`${keys} ${texts}`).not.toContain(key);
    expect(`${keys} ${texts}`).not.toContain(secret);
  });
});

/** What Redis holds of a user, once the order is over. */
async function keysOf(user: string): Promise<string[]> {
  const lockIsGone = async () =>
    (await command(sharedRedisPort(), "exists", `lock:submit:${user}`)) === 0;
  await until(lockIsGone, { what: "the end of the order" });
  return (await command(sharedRedisPort(), "keys", `*${user}*`)) as string[];
}
