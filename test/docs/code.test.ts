// @slow: begins first.

import { randomUUID } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { RedisStore, type SubmitLock } from "../../src/index.ts";
import { closeClients, ioredis6 } from "../support/clients.ts";
import { command } from "../support/command.ts";
import { freePort } from "../support/free-port.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, openLock } from "../support/locks.ts";
import { startProxy } from "../support/proxy.ts";
import { forTest, type RedisServer, startRedis } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { inQuickStart, onNodeRedis } from "./in-quick-start.ts";
import { page, pages, ROOT } from "./page.ts";
import {
  appOfReader,
  aroundExamples,
  atHand,
  neverAnswering,
  ReaderProject,
  session,
  shop,
  silentShop,
} from "./reader-project.ts";

let project: ReaderProject;
let redis: RedisServer;

beforeAll(async () => {
  project = new ReaderProject();
  redis = await startRedis();
  project.write("app.ts", appOfReader);
  project.write("shop.ts", shop);
  project.write("at-hand.ts", atHand);
  project.write("around-examples.ts", aroundExamples);
  project.write("session.ts", session);
  project.write("lock.ts", page("docs/guide/any-function.md").blockUnder("One lock"));
  project.write("checkout.ts", page("docs/guide/any-function.md").blockUnder("The call"));
});

afterEach(async () => {
  await closeLocks();
  closeClients();
});

afterAll(async () => {
  project.remove();
  await redis.stop();
});

test("the code of every document, and of the examples that an editor shows, compiles", async () => {
  let blocks = 0;
  for (const { code, language } of pages.flatMap(({ blocks: all }) => all)) {
    // A test runs or compares it, or it is a shell's, a picture's or a history's.
    expect(["", "cjs", "js", "mermaid", "nginx", "sh", "sql", "text", "ts"]).toContain(language);
    if (language !== "ts") continue;
    // Bundlers of Next.js find a module without its ending.
    const whole = code.replace('from "./lock"', 'from "./lock.ts"');
    project.write(`block-${blocks++}.ts`, `${whole}export {};\n`);
  }
  expect(blocks).toBeGreaterThan(25);
  const files = readdirSync(join(ROOT, "src"), { recursive: true, encoding: "utf8" });
  let examples = 0;
  // Those about a transaction are tried by test/sql.
  for (const file of files.filter((each) => /^(?!sql)(?!lock.submission).*\.ts$/.test(each))) {
    const text = readFileSync(join(ROOT, "src", file), "utf8").replace(/^ *\* ?/gm, "");
    const [, room] = /^(express|koa|fastify|fetch)\b/.exec(file) ?? [];
    for (const [, code] of text.matchAll(/^@example\n```ts\n(.*?)^```$/gms)) {
      const from = room === undefined ? "" : `import { submitGuard } from "submit-lock/${room}";\n`;
      project.write(`example-${examples++}.ts`, `${from}${code}export {};\n`);
    }
  }
  expect(examples).toBe(10);
  expect(await project.typeErrors()).toBe("");
});

const env = () => ({ REDIS_URL: redis.url });

/** Looks at the locks of what runs here. */
function looking(): SubmitLock {
  return openLock({ store: new RedisStore(ioredis6.connect(redis.port)) });
}

/** The order of a user that goes on. */
function heldBy(lock: SubmitLock, user: string) {
  const found = async () => {
    const state = await lock.inspect(user);
    return state.state === "held" && state;
  };
  return until(found, { what: "an order under way" });
}

describe("a quick start", () => {
  const readme = page("README.md").blockUnder("Quick start", "js");
  const koa = page("docs/guide/koa.md").blockUnder("Quick start", "js");
  const [express, koaGuide] = ["docs/guide/express.md", "docs/guide/koa.md"];
  const [fastify, fetchGuide] = ["docs/guide/fastify.md", "docs/guide/fetch.md"];
  // As the page says.
  const commonjs = `${page(express).blockUnder("In CommonJS", "cjs")}${readme
    .replace(/^(import .*|\/\/ shop\.mjs)\n/gm, "")
    .replace(/^await (?=lock\.check\(\))/m, "")}`;
  const hono = page(fetchGuide).blockUnder("Hono");
  const onFastify = page(fastify).blockUnder("Quick start", "js");
  const starts = [
    { name: "Express", code: readme, language: "js", guide: "README.md" },
    { name: "Express, with node-redis", code: onNodeRedis(readme), language: "js", guide: express },
    { name: "Koa", code: koa, language: "js", guide: koaGuide },
    { name: "Koa, with node-redis", code: onNodeRedis(koa), language: "js", guide: koaGuide },
    { name: "Fastify", code: onFastify, language: "js", guide: fastify },
    { name: "Hono", code: hono, language: "ts", guide: fetchGuide },
    { name: "Express in CommonJS", code: commonjs, language: "cjs", guide: "README.md" },
  ];

  /** Without those that differ from another one in their client or their module format alone. */
  const frameworks = starts.filter(({ name }) => !/node-redis|CommonJS/.test(name));

  test.each(starts)("for $name imports what its page installs, and nothing else", (start) => {
    const { code, guide } = start;
    const installed = /^npm install (submit-lock .*)$/m.exec(page(guide).text)?.[1]?.split(" ");
    const names = [...code.matchAll(/(?:from |require\()"((?:@[^/"]+\/)?[^/"]+)/g)];
    const imported = names.map(([, name]) => name).filter((name) => !name?.startsWith("node:"));
    const other = start.name.includes("node-redis") ? "redis" : "ioredis";
    const expected = installed?.map((name) => (/^(io)?redis$/.test(name) ? other : name));
    expect([...new Set(imported)].sort()).toEqual(expected?.sort());
  });

  /** What submits an order, and resolves with the status. */
  const submitTo = (url: string) => async (user: string) => {
    const answer = await fetch(`${url}/orders`, { method: "POST", headers: { "x-user-id": user } });
    await answer.text();
    return answer.status;
  };

  test("compiles as TypeScript, and the README's lines for Koa are those of its page", async () => {
    const lines = page("README.md").blockUnder("On Koa", "js");
    const [guard = "", route = ""] = lines.split(/(?=^router)/m);
    const [before = "", rest = ""] = koa.split(/(?=^const guard = )/m);
    const [, after = ""] = rest.split(/(?=^const app = )/m);
    const own = guard.replace(/^import .*\n\n/, "");
    const onKoa = `${before}${own}const router = new Router();\n${route}${after}`;
    // The types of a body parser count for a whole project.
    const alone = new ReaderProject();
    for (const [i, code] of [readme, koa, onKoa, onFastify].entries()) {
      alone.write(`start-${i}.ts`, code);
    }
    const errors = await alone.typeErrors();
    alone.remove();
    expect(errors).toBe("");
  });

  test.each(starts)("for $name places one order of ten", async ({ code, language }) => {
    // As long as ten submissions take on a busy machine.
    const slow = code.replace("sleep(500,", "sleep(3_000,");
    expect(slow).not.toBe(code);
    const submit = submitTo((await project.serve(`start.${language}`, slow, env())).url);
    // Ten connections that are open already, so that the ten submissions arrive at once.
    await Promise.all(Array.from({ length: 10 }, () => submit("")));

    const statuses = await Promise.all(Array.from({ length: 10 }, () => submit("42")));
    expect(statuses.sort()).toEqual([201, ...Array(9).fill(409)]);
    expect(await submit("")).toBe(401);
    const noKeyLeft = async () => ((await command(redis.port, "keys", "*")) as []).length === 0;
    await until(noKeyLeft, { what: "every key to be gone" });
  });

  /** The payment goes on until its lease is lost, and its holder looks sooner whether it is. */
  const endless = (code: string) =>
    code
      .replace("sleep(500,", "sleep(1e8,")
      .replace("new RedisStore(redis) }", "new RedisStore(redis), ttlMs: 2_000 }");

  test.each(frameworks)(
    "for $name answers 503 where its lease is freed",
    async ({ code, language }) => {
      expect(endless(code)).toMatch(/sleep\(1e8,[\s\S]*throwIfAborted/);
      const { url } = await project.serve(`endless.${language}`, endless(code), env());
      const [lock, user] = [looking(), freshUser()];
      const order = submitTo(url)(user);
      const { id } = await heldBy(lock, user);
      await lock.free(user, { id, by: "a test", reason: "a test" });
      expect(await order).toBe(503);
    },
  );

  test.each([...frameworks, ...starts.filter(({ name }) => name === "Express, with node-redis")])(
    "for $name begins without Redis, and refuses orders",
    async ({ code, language }) => {
      const away = { REDIS_URL: `redis://127.0.0.1:${await freePort()}` };
      const { url } = await project.serve(`away.${language}`, code, away);
      expect(await submitTo(url)(freshUser())).toBe(503);
    },
  );

  test("is tried with two clicks and a late one: one order, and its answer each time", async () => {
    const tried = page("README.md").blocks.find(({ code }) => code.includes("curl"))?.code ?? "";
    expect(tried).toMatch(/^for click in 1 2; do curl -i .* & done; wait\n$/);
    const [, name = "", value = "", form = "", address = ""] =
      /-H '([\w-]+): (\w+)' -d (\S+) http:\/\/127\.0\.0\.1:3000(\S+)/.exec(tried) ?? [];
    const { url } = await project.serve("tried.js", readme, env());
    const click = async () => {
      const init = { method: "POST", headers: { [name]: value }, body: new URLSearchParams(form) };
      const answer = await fetch(url + address, init);
      const { order } = (await answer.json()) as { order: string };
      return [answer.status, order, answer.headers.get("idempotent-replayed")];
    };
    const clicks = await Promise.all([click(), click()]);
    const order = clicks[0]?.[1];
    expect(order).toMatch(/^[\w-]{22}$/);
    expect(clicks.sort((a, b) => `${a[2]}`.localeCompare(`${b[2]}`))).toEqual([
      [201, order, null],
      [201, order, "true"],
    ]);
    expect(await click()).toEqual([201, order, "true"]);
  });

  const shutting = page("docs/operations/deploying.md").blockUnder("Shutting down");
  // As the page says.
  const onItsServer = shutting
    .replace(/const closed = .*/, "const closed = app.close();")
    .replaceAll("server.", "app.server.");

  test.each([
    { name: "Express", language: "js", code: readme + shutting, signals: ["SIGINT", "SIGINT"] },
    { name: "Koa", language: "js", code: koa + shutting, signals: ["SIGTERM"] },
    { name: "Fastify", language: "js", code: onFastify + onItsServer, signals: ["SIGINT"] },
    { name: "Hono", language: "ts", code: hono + shutting, signals: ["SIGTERM", "SIGINT"] },
  ])(
    "on $name repeats its answer with a key, and $signals let an order end",
    async ({ code, language, signals }) => {
      const { ended, url } = await project.serve(`pasted.${language}`, code, env());
      const [lock, user] = [looking(), freshUser()];
      const click = async (token: string) => {
        const headers = { "content-type": "application/json", "idempotency-key": token };
        const answer = await fetch(`${url}/orders`, {
          method: "POST",
          headers: { ...headers, "x-user-id": user },
          body: JSON.stringify({ token }),
        });
        return { status: answer.status, text: await answer.text() };
      };
      const [first, second] = await Promise.all([click("t-1"), click("t-1")]);
      const text = expect.stringMatching(/"order":"[\w-]{22}"/);
      expect(first).toMatchObject({ status: 201, text });
      expect(second).toEqual(first);
      expect(await click("t-1")).toEqual(first);

      const last = click("t-2");
      const { holder = "" } = await heldBy(lock, user);
      const pid = Number(/:(\d+)$/.exec(holder)?.[1]);
      // A Ctrl-C below npm comes twice.
      for (const signal of signals) process.kill(pid, signal);
      expect((await last).status).toBe(201);
      await ended;
      expect(await lock.inspect(user)).toEqual({ state: "free" });
    },
  );

  test("shuts down on HTTP/2, and an order under way is answered", async () => {
    const port = await freePort();
    const orders = `import { connect } from "node:http2";
const session = connect("http://127.0.0.1:${port}"); // stays open
const json = { "content-type": "application/json", "x-user-id": "http2" };
const order = session.request({ ":method": "POST", ":path": "/orders", ...json });
order.end('{"token":"${freshUser()}"}');
order.on("response", ({ ":status": status }) => console.log(\`answered \${status}\`));
await sleep(200);
process.kill(process.pid, "SIGTERM");`;
    const onHttp2 = onFastify.replace("Fastify()", "Fastify({ http2: true })");
    const code = onHttp2 + onItsServer.replace("10_000", "2_000") + orders;
    project.write("http2.mjs", code);
    const printed = await project.run("http2.mjs", { PORT: `${port}`, REDIS_URL: redis.url });
    expect(printed).toContain("answered 201");
  });
});

describe("answers in your own format", () => {
  const own = page("docs/reference/responses.md");
  const [options = ""] =
    /^ {2}idempotency[\s\S]*?(?=^}\);)/m.exec(own.blockUnder("On Express")) ?? [];
  /** What the table says for a framework, as a function. */
  const elsewhere = (framework: string, parameters: string) => {
    const row = own.tableUnder("Elsewhere").find(([name]) => name === framework);
    const code = row?.[1]?.replaceAll("`", "");
    const types = `import type { Problem } from "submit-lock/${framework.toLowerCase()}";`;
    return `${types}\nconst answer = (${parameters}, { problem }: { problem: Problem }) => ${code};`;
  };
  const placed = `{ placed: true }`;
  const apps = {
    express: inQuickStart(own.blockUnder("On Express"), "express", {
      after: `app.post("/orders", guard.protect(async (_req, res) => void res.status(201).json(${placed})));`,
    }),
    koa: inQuickStart(elsewhere("Koa", "ctx: import('koa').Context"), "koa", {
      after: `app.use(submitGuard({ lock, userId: (ctx) => ctx.get("x-user-id"), ${options} }));
app.use((ctx) => { ctx.status = 201; ctx.body = ${placed}; });`,
    }),
    fastify: inQuickStart(
      elsewhere("Fastify", "_req: unknown, reply: import('fastify').FastifyReply"),
      "fastify",
      {
        after: `const guard = submitGuard({ lock, userId: ({ headers }) => headers["x-user-id"]?.toString(), ${options} });
app.post("/orders", guard.protect(async (_req, reply) => reply.code(201).send(${placed})));`,
      },
    ),
    fetch: inQuickStart(elsewhere("fetch", "_request: Request"), "fetch", {
      after: `const guard = submitGuard({ lock, userId: ({ headers }) => headers.get("x-user-id"), ${options} });
const placeOrder = guard.protect(async () => Response.json(${placed}, { status: 201 }));
app.post("/orders", (c) => placeOrder(c.req.raw));`,
    }),
  };

  test("fit the options of each framework", async () => {
    // The types of a body parser count for a whole project.
    const alone = new ReaderProject();
    for (const [name, code] of Object.entries(apps)) alone.write(`${name}.ts`, code);
    const errors = await alone.typeErrors();
    alone.remove();
    expect(errors).toBe("");
  });

  test.each(Object.entries(apps))("keep the headers of the default, on %s", async (_name, app) => {
    const server = await forTest(startRedis());
    const { url } = await project.serve("own.ts", app, { REDIS_URL: server.url });
    const submit = async (user: string, key?: string, body: object = {}) => {
      const headers = { "x-user-id": user, "content-type": "application/json" };
      const answer = await fetch(`${url}/orders`, {
        method: "POST",
        headers: key === undefined ? headers : { ...headers, "idempotency-key": key },
        body: JSON.stringify(body),
      });
      const of = (name: string) => answer.headers.get(name);
      const type = of("content-type")?.split(";")[0];
      const { error } = (await answer.json()) as { error?: string };
      return [answer.status, error, type, of("cache-control"), of("retry-after")];
    };
    const refused = (status: number, code: string, retryAfter: string | null = null) =>
      [status, code, "application/json", "no-store", retryAfter] as const;
    expect(await submit("")).toEqual(refused(401, "submit_anonymous"));
    expect(await submit("42")).toEqual(refused(400, "idempotency_key_required"));
    expect(await submit("42", "a, list")).toEqual(refused(400, "idempotency_key_invalid"));
    expect((await submit("42", "k-1"))[0]).toBe(201);
    const other = await submit("42", "k-1", { cart: 8 });
    expect(other).toEqual(refused(422, "idempotency_conflict"));
    await command(server.port, "set", "lock:submit:busy", `${randomUUID()}`, "px", 60_000);
    expect(await submit("busy", "k-2")).toEqual(refused(409, "submit_contended", "1"));
    await server.kill();
    expect(await submit("42", "k-1")).toEqual(refused(503, "submit_unavailable", "1"));
  });
});

describe("the other code of the documents", () => {
  test.each(["With ioredis", "With node-redis"])(
    "a client stays connected while nothing is asked, and locks: %s",
    async (heading) => {
      const file = `idle-${heading.replace(/\W+/g, "-")}.ts`;
      const code = page("docs/operations/redis.md").blockUnder(heading);
      // Longer than every time-out that the block has.
      const longest = Math.max(
        ...[...code.matchAll(/\b\d_000\b/g)].map(([ms]) => Number(ms.replace("_", ""))),
      );
      expect(longest).toBe(5_000);
      project.write(
        file,
        `${code}
import { RedisStore, SubmitLock } from "submit-lock";
let connections = 0;
redis.on("connect", () => connections++);
const lock = new SubmitLock({ store: new RedisStore(redis), acquireTimeoutMs: 5_000 });
await lock.withLock("idle", () => {});
await new Promise((resolve) => setTimeout(resolve, ${longest + 2_000}));
await lock.withLock("idle", () => {});
console.log(connections);
await lock.close();
if ("destroy" in redis) redis.destroy();
else redis.disconnect();
`,
      );
      expect(await project.run(file, env())).toBe("1\n");
    },
  );

  test.each(["app.ts", "koa-app.ts"])("tests a shop, on %s", async (app) => {
    const alone = new ReaderProject();
    alone.copy(`testing/${app}`, "app.ts");
    alone.copy("testing/your-shop.test.ts", "your-shop.test.ts");
    expect(await alone.typeErrors()).toBe("");
    const printed = await alone.run("your-shop.test.ts");
    alone.remove();
    expect(printed).toMatch(/^(# |ℹ )pass 9$/m);
    expect(printed).toMatch(/^(# |ℹ )fail 0$/m);
  });

  test("shuts down with a handler that goes on without its lock, within its bound", async () => {
    const port = await freePort();
    const shown = page("docs/operations/deploying.md").blockUnder("Shutting down");
    expect(shown).toContain("10_000");
    project.write("shutdown.ts", neverAnswering + shown.replace("10_000", "500"));
    const ended = project.run("shutdown.ts", { PORT: `${port}`, REDIS_URL: redis.url });
    expect(await ended).not.toContain("charged");
  });

  test("shuts down with a WebSocket that stays open, within its bound", async () => {
    const [port, shown] = [await freePort(), page("docs/operations/deploying.md")];
    const opens = `connect(Number(process.env["PORT"]))
  .once("data", () => process.kill(process.pid, "SIGTERM"))
  .write("GET / HTTP/1.1\\r\\nHost: a\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\n\\r\\n");`;
    const code = `import { connect } from "node:net";${neverAnswering.replace(/fetch\(url.*/, opens)}
server.on("upgrade", (_req, socket) => socket.write("HTTP/1.1 101 Switching\\r\\n\\r\\n"));
${shown.blockUnder("Shutting down").replace("10_000", "500")}`;
    project.write("websocket.ts", code);
    await project.run("websocket.ts", { PORT: `${port}`, REDIS_URL: redis.url });
  });

  test.each([
    ["ioredis", silentShop],
    [
      "node-redis",
      silentShop.replace(/import.*ioredis.*/, 'import { createClient } from "redis";').replace(
        /const redis = .*/,
        `const redis = createClient({ url: process.env["REDIS_URL"] ?? "" }).on("error", () => {});
void redis.connect();`,
      ),
    ],
  ])("shuts down while Redis is silent, with %s", async (_name, shop) => {
    const proxy = await forTest(startProxy(redis.port));
    const shutting = page("docs/operations/deploying.md").blockUnder("Shutting down");
    const env = { REDIS_URL: `redis://127.0.0.1:${proxy.port}` };
    const { ended, url } = await project.serve("silent.ts", shop + shutting, env);
    const order = () => fetch(`${url}/orders`, { method: "POST" });
    await until(async () => (await order()).status === 201, { what: "a first order" });
    const pid = Number(await (await order()).text());
    proxy.swallowRequests(true);
    proxy.swallowReplies(true);
    expect((await order()).status).toBe(503);
    process.kill(pid, "SIGINT");
    const isOver = ended.then(() => true);
    // lock.close() takes 7 s at most.
    expect(await Promise.race([isOver, sleep(30_000, false)])).toBe(true);
  });
});
