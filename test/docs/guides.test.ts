import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { command } from "../support/command.ts";
import { freshUser } from "../support/ids.ts";
import { type RedisServer, startRedis } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { inQuickStart } from "./in-quick-start.ts";
import { page } from "./page.ts";
import { ReaderProject, shop } from "./reader-project.ts";

const guide = page("docs/guide/once.md");
const transaction = page("docs/guide/transaction.md");

let project: ReaderProject;
let redis: RedisServer;

beforeAll(async () => {
  project = new ReaderProject();
  redis = await startRedis();
  project.write("shop.ts", shop);
});

afterAll(async () => {
  project.remove();
  await redis.stop();
});

describe("P9: the recipes of the guide", () => {
  test.each([
    ["Express", "app.use(checkout(lock));", "express"],
    ["Koa", "const app = new Koa().use(checkout(lock));", "koa"],
  ] as const)("cart and version in a form, on %s", async (_name, use, framework) => {
    project.copy("cart-form/shop.ts", "shop.ts");
    project.copy(`cart-form/${framework}.ts`, "checkout.ts");
    const code = `import { checkout } from "./checkout.ts";\n${use}`;
    const start_ = inQuickStart(code, framework);
    const own =
      framework === "koa"
        ? start_.replace(/^const app = new Koa\(\)\.use\(bodyP.*\n/m, "")
        : start_;
    const submit = await start(`form-${framework}.ts`, own);
    project.write("shop.ts", shop);
    const user = freshUser();
    const shown = await submit({ user, method: "GET", path: "/checkout" });
    const fields = [...shown.text.matchAll(/name="(\w+)" value="([^"]+)"/g)];
    const form = fields.map(([, name, value]) => `${name}=${value}`).join("&");
    expect(form).toBe(`cart=cart-of-${user}&version=1`);
    const click = (sent = form) => submit({ user, form: sent });
    const [first, second] = await Promise.all([click(), click()]);
    expect([first.status, second.status]).toEqual([303, 303]);
    const location = first.headers.get("location");
    expect(second.headers.get("location")).toBe(location);
    const late = await click();
    expect([late.headers.get("location"), late.headers.get("idempotent-replayed")]).toEqual([
      location,
      "true",
    ]);
    // The cart as it is now is another submission, and a version that is not the cart's is refused.
    const next = await click(form.replace("=1", "=2"));
    expect(next.headers.get("location")).not.toBe(location);
    expect((await click(form.replace("=1", "=7"))).status).toBe(409);
  });

  test("cart and version, a token: the guards that the page shows", async () => {
    const bodies = [
      ["Cart and version", { cart: "c", version: 1 }],
      ["A token in the form", { submissionId: "t-1", _csrf: "one" }],
    ] as const;
    for (const [heading, body] of bodies) {
      const submit = await serve(heading, placing);
      const user = freshUser();
      const click = (more: object = {}) => submit({ user, body: { ...body, ...more } });
      const [first, second] = await Promise.all([click(), click({ _csrf: "two" })]);
      expect([first.status, second.text]).toEqual([201, first.text]);
      if (heading === "A token in the form") expect((await click({ item: 2 })).status).toBe(422);
    }
  });

  test("the transaction: a second run finds the first one's order, and writes nothing", async () => {
    const code = inQuickStart(transaction.blockUnder("The order's own transaction"), "express", {
      before: `import { PGlite } from "@electric-sql/pglite";
const db = new PGlite();
await db.exec(\`CREATE TABLE orders (number serial, user_id text, submission_id text);
  CREATE TABLE stock (pieces int); INSERT INTO stock VALUES (9);
  CREATE TABLE outbox (order_number int)\`);`,
      after: `await db.exec(submissions.ddl);
app.get("/ledger", async (_req, res) => {
  const { rows } = await db.query(\`SELECT pieces, (SELECT count(*)::int FROM orders) AS orders,
    (SELECT count(*)::int FROM outbox) AS messages FROM stock\`);
  res.json(rows[0]);
});`,
    });
    const submit = await start("transaction.ts", code);
    const user = freshUser();
    const click = (cents = 990) => submit({ user, key: "k-1", body: { cents } });
    const first = await click();
    expect(first).toMatchObject({ status: 201, json: { number: 1 } });
    // As after a crash between the commit and the record.
    const records = async () =>
      (await command(redis.port, "keys", `{lock:submit:${user}}:*`)) as string[];
    const forget = async () => {
      const record = await until(async () => (await records())[0], { what: "the record" });
      await command(redis.port, "del", record);
    };
    await forget();
    const again = await click();
    expect(again).toMatchObject({ status: 201, text: first.text });
    expect(again.headers.get("idempotent-replayed")).toBe("true");
    await forget();
    expect((await click(1)).status).toBe(422);
    const ledger = await submit({ user, method: "GET", path: "/ledger" });
    expect(ledger.json).toEqual({ orders: 1, pieces: 8, messages: 1 });
  });

  test("your own database: a replay shows the order, and Redis holds no body", async () => {
    const submit = await serve("Answers from your own database", placing);
    const user = freshUser();
    const click = () => submit({ user, key: "k-1" });
    const first = await click();
    const again = await click();
    expect(again).toMatchObject({ status: 201, json: first.json });
    expect(again.headers.get("idempotent-replayed")).toBe("true");
    expect(again.headers.get("location")).toBe(first.headers.get("location"));
    const [record] = (await command(redis.port, "keys", `{lock:submit:${user}}:*`)) as string[];
    expect(await command(redis.port, "get", record as string)).not.toContain('"b":');
  });

  test("your own database: what the version before the recipe kept is repeated as it is", async () => {
    const heading = "Answers from your own database";
    const kept =
      'app.post("/orders", guard.protect(async (_req, res) => void res.json({ at: 7 })));';
    const before = guide.blockUnder(heading).replace(/maxBodyBytes: 0 \},.*/s, "},\n});");
    const older = await start("older.ts", inQuickStart(before, "express", { after: kept }));
    const newer = await serve(heading, placing);
    const order = { user: freshUser(), key: "k-1" };
    const first = await older(order);
    const again = await newer(order);
    expect(again).toMatchObject({ status: 200, text: first.text, json: { at: 7 } });
    expect(again.headers.get("etag")).toBe(first.headers.get("etag"));
    expect(again.headers.get("idempotent-replayed")).toBe("true");
  });
});

describe("guests", () => {
  // The page says that `buyer` takes the place of `userId`.
  const code = inQuickStart(
    guide.blockUnder("Cart and version").replace(/userId(?=,)/, "userId: buyer"),
    "express",
    {
      before: `import session from "express-session";
import { buyer, takeCart, welcome } from "./buyer.ts";
app.use(session({ secret: "a test", resave: false, saveUninitialized: false }));`,
      after: `import { cartOf, findOrder, moveCart, placeOrder } from "./shop.ts";
app.post("/orders", guard.protect(async (req, res) => {
  const cart = await cartOf(buyer(req));
  if (cart.id + cart.version !== req.body.cart + req.body.version) return void res.sendStatus(409);
  res.status(201).json(await placeOrder(cart, req.submitLease?.signal));
}));
app.get("/cart", welcome, async (req, res) => {
  res.json(await cartOf(buyer(req)));
});
app.post("/login", async (req, res) => {
  await takeCart(lock, req, (guest) => moveCart(guest, "ada"));
  req.session.userId = "ada";
  res.json({ order: await findOrder(1) });
});`,
    },
  );
  beforeAll(() => {
    project.copy("guests.ts", "buyer.ts");
  });
  /** Opens the cart's page, as a browser that keeps its cookie. */
  const guest = async (submit: Client) => {
    const shown = await submit({ method: "GET", path: "/cart" });
    const cookie = String(shown.headers.get("set-cookie")).split(";")[0] as string;
    const body = { cart: shown.json["id"], version: 1 };
    return { cookie, click: () => submit({ cookie, body }) };
  };

  test("place one order of two clicks and a late one, and do not wait for each other", async () => {
    const submit = await start("guests.ts", code, { ORDER_MS: "2000" });
    const [one, other] = [await guest(submit), await guest(submit)];
    const [first, second, others] = await Promise.all([one.click(), one.click(), other.click()]);
    expect([first.status, second.status]).toEqual([201, 201]);
    expect(second.json["number"]).toBe(first.json["number"]);
    expect(others.status).toBe(201);
    const late = await one.click();
    expect([late.status, late.headers.get("idempotent-replayed")]).toEqual([201, "true"]);
    expect(late.json["number"]).not.toBe(others.json["number"]);
    expect((await submit({ body: { cart: "cart-of-undefined", version: 1 } })).status).toBe(401);
  });

  test("sign in when their order is placed, and do not place it again", async () => {
    const submit = await start("login.ts", code, { ORDER_MS: "2000" });
    const { click, cookie } = await guest(submit);
    const order = click();
    const held = async () =>
      ((await command(redis.port, "keys", "lock:submit:guest%3A*")) as []).length > 0;
    await until(held, { what: "the guest's order" });
    const login = await submit({ cookie, path: "/login" });
    expect(login.json["order"]).toMatchObject({ number: 1 });
    expect((await order).status).toBe(201);
    expect((await click()).status).toBe(409);
  });
});

interface Reply {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  readonly json: Record<string, unknown>;
}

interface Submit {
  readonly user?: string;
  readonly cookie?: string;
  readonly method?: string;
  readonly path?: string;
  readonly key?: string;
  readonly body?: object;
  readonly form?: string;
}

type Client = ((submit: Submit) => Promise<Reply>) & { readonly url: string };

/** A route that places an order, for a guard. */
const placing = `import { cartOf, placeOrder } from "./shop.ts";
app.post("/orders", guard.protect(async (req, res) => {
  const order = await placeOrder(await cartOf(userId(req)), req.submitLease?.signal);
  res.status(201).location("/orders/" + order.number).json(order);
}));`;

/** Starts the quick start with the recipe under a heading, and gives a client of it. */
async function serve(heading: string, after = ""): Promise<Client> {
  const file = `${heading.replace(/\W+/g, "-")}.ts`;
  const code = inQuickStart(guide.blockUnder(heading), "express", { after });
  return await start(file, code);
}

async function start(file: string, code: string, env: object = {}): Promise<Client> {
  const { url } = await project.serve(file, code, { REDIS_URL: redis.url, ...env });
  return Object.assign((submit: Submit) => send(url, submit), { url });
}

async function send(url: string, submit: Submit): Promise<Reply> {
  const { body, cookie, form, key, method = "POST", path = "/orders", user } = submit;
  const headers = new Headers();
  if (user !== undefined) headers.set("X-User-Id", user);
  if (cookie !== undefined) headers.set("Cookie", cookie);
  if (key !== undefined) headers.set("Idempotency-Key", key);
  headers.set("Content-Type", form ? "application/x-www-form-urlencoded" : "application/json");
  const sent = method === "GET" ? null : (form ?? JSON.stringify(body ?? {}));
  const res = await fetch(url + path, { method, headers, body: sent, redirect: "manual" });
  const text = await res.text();
  const isJson = /json/.test(String(res.headers.get("content-type")));
  return { status: res.status, headers: res.headers, text, json: isJson ? JSON.parse(text) : {} };
}
