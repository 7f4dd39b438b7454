import { once } from "node:events";
import { createServer, type IncomingMessage, request, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { command } from "../support/command.ts";
import { freePort } from "../support/free-port.ts";
import { freshUser } from "../support/ids.ts";
import { type RedisServer, startRedis } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { page } from "./page.ts";
import { schema, shop } from "./reader-files.ts";
import { ReaderProject } from "./reader-project.ts";

const guide = page("docs/guide/once.md");

let project: ReaderProject;
let redis: RedisServer;
const proxies = new Set<Server>();

beforeAll(async () => {
  project = new ReaderProject();
  redis = await startRedis();
  project.write("shop.ts", shop);
  project.write("schema.ts", schema);
});

afterEach(() => {
  for (const proxy of proxies) proxy.close().closeAllConnections();
  proxies.clear();
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
    expect(second.headers["idempotent-replayed"]).toBe("true");
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
    expect(second.headers["location"]).toBe(first.headers["location"]);
    const back = await click();
    expect(back.headers["location"]).toBe(first.headers["location"]);
    const reloaded = /value="([^"]+)"/.exec(
      (await submit({ user, method: "GET", path: "/checkout" })).text,
    )?.[1];
    expect(reloaded).not.toBe(token);
  });

  test("the header: a client whose answer was lost gets it, and one order is placed", async () => {
    const placed = await serve("Answers from your own database");
    const lossy = await losingFirstAnswer(placed.port);
    project.write("client.ts", guide.blockUnder("The header, for API clients"));
    project.write(
      "order.ts",
      `import { placeOrder } from "./client.ts";
const answer = await placeOrder("http://127.0.0.1:${lossy}/orders", "${freshUser()}", { item: 1 });
console.log(answer.status, answer.headers.get("idempotent-replayed"), JSON.stringify(await answer.json()));`,
    );
    expect(await project.run("order.ts")).toMatch(/^201 true {"number":1,/);
  });

  test("a unique key: a second run finds the first one's order", async () => {
    const submit = await serve("A unique key in the order's own transaction");
    const user = freshUser();
    const click = () => submit({ user, key: "k-1", body: { cents: 990 } });
    const first = await click();
    expect(first).toMatchObject({ status: 201, json: { cents: 990 } });
    // As after a crash between the commit and the record.
    const records = async () =>
      (await command(redis.port, "keys", `{lock:submit:${user}}:*`)) as string[];
    const record = await until(async () => (await records())[0], { what: "the record" });
    await command(redis.port, "del", record);
    const again = await click();
    expect(again.headers["idempotent-replayed"]).toBeUndefined();
    expect(again).toMatchObject({ status: 201, text: first.text });
    const other = await submit({ user, key: "k-2", body: { cents: 990 } });
    expect(Number(other.json["number"])).toBeGreaterThan(Number(first.json["number"]));
  });

  test("the provider's key: a second run asks for the same charge", async () => {
    const keys: unknown[] = [];
    const provider = createServer((req, res) => {
      keys.push(req.headers["idempotency-key"]);
      res.end('{"id":"ch_1"}');
    }).listen(0, "127.0.0.1");
    proxies.add(provider);
    await once(provider, "listening");
    project.write("charge.ts", guide.blockUnder("The payment provider's key"));
    project.write(
      "charges.ts",
      `import { charge } from "./charge.ts";
const url = "http://127.0.0.1:${portOf(provider)}";
for (const number of [7, 7, 8]) console.log((await charge(url, { number, cents: 990 })).id);`,
    );
    expect(await project.run("charges.ts")).toBe("ch_1\nch_1\nch_1\n");
    expect(keys).toEqual(["order-7", "order-7", "order-8"]);
  });

  test("your own database: a replay shows the order, and Redis holds no body", async () => {
    const submit = await serve("Answers from your own database");
    const user = freshUser();
    const click = () => submit({ user, key: "k-1" });
    const first = await click();
    const again = await click();
    expect(again).toMatchObject({ status: 201, json: first.json });
    expect(again.headers["idempotent-replayed"]).toBe("true");
    expect(again.headers["location"]).toBe(first.headers["location"]);
    const [record] = (await command(redis.port, "keys", `{lock:submit:${user}}:*`)) as string[];
    expect(await command(redis.port, "get", record as string)).toContain('"e":"-"');
  });

  test("errors inside a 200: a retry runs", async () => {
    const submit = await serve("Errors inside a 200");
    const user = freshUser();
    const mutate = () =>
      submit({ user, path: "/graphql", key: "k-1", body: { query: "mutation { buy }" } });
    expect((await mutate()).json["errors"]).toBeDefined();
    expect((await mutate()).json).toEqual({ data: { runs: 2 } });
    expect((await mutate()).json).toEqual({ data: { runs: 2 } });
  });
});

interface Reply {
  readonly status: number;
  readonly headers: IncomingMessage["headers"];
  readonly text: string;
  readonly json: Record<string, unknown>;
}

interface Submit {
  readonly user: string;
  readonly method?: string;
  readonly path?: string;
  readonly key?: string;
  readonly body?: object;
  readonly form?: string;
}

type Client = ((submit: Submit) => Promise<Reply>) & { readonly port: number };

/** Starts the application under a heading, and gives a client of it. */
async function serve(heading: string): Promise<Client> {
  const port = await freePort();
  const file = `${heading.replace(/\W+/g, "-")}-${port}.ts`;
  project.write(file, guide.blockUnder(heading));
  await project.start(file, { PORT: `${port}`, REDIS_URL: redis.url });
  const client = (submit: Submit) => send(port, submit);
  const answers = () =>
    client({ user: "", method: "GET", path: "/" }).then(
      () => true,
      () => false,
    );
  await until(answers, { what: heading, boundMs: 60_000, everyMs: 50 });
  return Object.assign(client, { port });
}

async function send(port: number, submit: Submit): Promise<Reply> {
  const { body, form, key, method = "POST", path = "/orders", user } = submit;
  const req = request({ host: "127.0.0.1", port, method, path, agent: false });
  req.setHeader("X-User-Id", user);
  if (key !== undefined) req.setHeader("Idempotency-Key", key);
  req.setHeader("Content-Type", form ? "application/x-www-form-urlencoded" : "application/json");
  req.end(method === "GET" ? undefined : (form ?? JSON.stringify(body ?? {})));
  const [res] = (await once(req, "response")) as [IncomingMessage];
  const text = await textOf(res);
  const isJson = /json/.test(String(res.headers["content-type"]));
  return {
    status: res.statusCode ?? 0,
    headers: res.headers,
    text,
    json: isJson ? JSON.parse(text) : {},
  };
}

/** In front of a server: its first answer never comes to the client. */
async function losingFirstAnswer(port: number): Promise<number> {
  let answers = 0;
  const proxy = createServer(async (req, res) => {
    const { headers, method = "", url: path = "" } = req;
    const forward = request({ host: "127.0.0.1", port, method, path, headers, agent: false });
    req.pipe(forward);
    const [answer] = (await once(forward, "response")) as [IncomingMessage];
    const text = await textOf(answer);
    if (++answers === 1) req.socket.destroy();
    else res.writeHead(answer.statusCode ?? 0, answer.headers).end(text);
  }).listen(0, "127.0.0.1");
  proxies.add(proxy);
  await once(proxy, "listening");
  return portOf(proxy);
}

function portOf(server: Server): number {
  return (server.address() as AddressInfo).port;
}

async function textOf(res: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of res) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}
