import { setTimeout as sleep } from "node:timers/promises";
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
  test("cart and version: the second click gets the first one's order", async () => {
    const submit = await serve("Cart and version");
    const user = freshUser();
    const path = `/carts/cart-of-${user}/order`;
    const click = (version: number) => submit({ user, path, body: { version } });
    const first = await click(1);
    await sleep(300);
    const second = await click(1);
    expect([first.status, second.status]).toEqual([201, 201]);
    expect(second.text).toBe(first.text);
    expect(second.headers.get("idempotent-replayed")).toBe("true");
    // The cart as it is now is another submission, and an old version is refused.
    expect((await click(2)).json["number"]).not.toBe(first.json["number"]);
    expect((await click(7)).status).toBe(409);
  });

  test("a token in the form: whoever clicks twice sees the order", async () => {
    const submit = await serve("A token in the form");
    const user = freshUser();
    const token = /name="submission" value="([^"]+)"/.exec(
      (await submit({ user, method: "GET", path: "/checkout" })).text,
    )?.[1];
    const click = () => submit({ user, form: `submission=${token}` });
    const [first, second] = await Promise.all([click(), click()]);
    expect([first.status, second.status]).toEqual([303, 303]);
    expect(second.headers.get("location")).toBe(first.headers.get("location"));
    const back = await click();
    expect(back.headers.get("location")).toBe(first.headers.get("location"));
    const reloaded = /value="([^"]+)"/.exec(
      (await submit({ user, method: "GET", path: "/checkout" })).text,
    )?.[1];
    expect(reloaded).not.toBe(token);
  });

  test("the transaction: a second run finds the first one's order, and writes nothing", async () => {
    const code = inQuickStart(transaction.blockUnder("The order's own transaction"), "express", {
      before: `import { PGlite } from "@electric-sql/pglite";
const db = new PGlite();
await db.exec(\`CREATE TABLE orders (number serial, user_id text, cents int);
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

  test("without the table: a second run finds the first one's order", async () => {
    const code = `import { PGlite } from "@electric-sql/pglite";
const db = new PGlite();
await db.exec("CREATE TABLE orders (number serial, user_id text, submission_id text UNIQUE)");
${transaction.blockUnder("Without the table")}
const orders = [await placeOnce("one", "ada"), await placeOnce("one", "ada"), await placeOnce("two", "ada")];
console.log(JSON.stringify(orders.map((order) => Object(order).submission_id + Object(order).user_id)));
const { rows } = await db.query("SELECT count(*)::int AS n FROM orders");
console.log(JSON.stringify(rows));
`;
    project.write("without-the-table.ts", code);
    const printed = await project.run("without-the-table.ts");
    expect(printed).toBe('["oneada","oneada","twoada"]\n[{"n":2}]\n');
  });

  test("your own database: a replay shows the order, and Redis holds no body", async () => {
    const submit = await serve("Answers from your own database");
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
});

describe("guests", () => {
  // The page says that the route is this one, with `buyer`.
  const code = inQuickStart(
    guide
      .blockUnder("Cart and version")
      .replaceAll(/userId\(req\)|userId(?=,)/g, (found) =>
        found === "userId" ? "userId: buyer" : "buyer(req)",
      ),
    "express",
    {
      before: `import session from "express-session";
import { buyer, takeCart, welcome } from "./buyer.ts";
app.use(session({ secret: "a test", resave: false, saveUninitialized: false }));`,
      after: `import { findOrder, moveCart } from "./shop.ts";
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
    const path = `/carts/${shown.json["id"]}/order`;
    return { cookie, click: () => submit({ cookie, path, body: { version: 1 } }) };
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
    const path = "/carts/cart-of-undefined/order";
    expect((await submit({ path, body: { version: 1 } })).status).toBe(401);
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

/** Starts the quick start with the recipe under a heading, and gives a client of it. */
async function serve(heading: string): Promise<Client> {
  const file = `${heading.replace(/\W+/g, "-")}.ts`;
  const code = inQuickStart(guide.blockUnder(heading), "express");
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
