import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { RedisStore, SubmitLock } from "../../src/index.ts";
import { closeClients, ioredis6 } from "../support/clients.ts";
import { command } from "../support/command.ts";
import { freePort } from "../support/free-port.ts";
import { freshUser } from "../support/ids.ts";
import { type RedisServer, startRedis } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { inQuickStart, onNodeRedis } from "./in-quick-start.ts";
import { page, pages } from "./page.ts";
import {
  appOfReader,
  atHand,
  ledger,
  neverAnswering,
  ReaderProject,
  session,
  shop,
  useOfLedger,
  useOfMapStore,
} from "./reader-project.ts";

let project: ReaderProject;
let redis: RedisServer;

beforeAll(async () => {
  project = new ReaderProject();
  redis = await startRedis();
  project.write("app.ts", appOfReader);
  project.write("shop.ts", shop);
  project.write("ledger.ts", ledger);
  project.write("at-hand.ts", atHand);
  project.write("session.ts", session);
  project.write("lock.ts", page("docs/guide/any-function.md").blockUnder("One lock"));
  project.write("checkout.ts", page("docs/guide/any-function.md").blockUnder("The call"));
});

afterAll(async () => {
  project.remove();
  await redis.stop();
});

test("the code of every document compiles", async () => {
  let blocks = 0;
  for (const { blocks: all } of pages) {
    for (const { code, language } of all) {
      if (language !== "ts") continue;
      // Bundlers of Next.js find a module without its ending.
      const whole = code.replace('from "./lock"', 'from "./lock.ts"');
      project.write(`block-${blocks++}.ts`, `${whole}export {};\n`);
    }
  }
  expect(blocks).toBeGreaterThan(25);
  expect(await project.typeErrors()).toBe("");
});

describe("the code of the documents, in languages that are checked", () => {
  test("is one that a test runs or compares, a shell's, a picture's or a history's", () => {
    const languages = new Set(
      pages.flatMap(({ blocks }) => blocks.map(({ language }) => language)),
    );
    expect([...languages].sort().join(" ")).toBe(" cjs js mermaid sh sql text ts");
  });
});

describe("a quick start", () => {
  const readme = page("README.md").blockUnder("Quick start", "js");
  const koa = page("docs/guide/koa.md").blockUnder("Quick start", "js");
  const [express, koaGuide] = ["docs/guide/express.md", "docs/guide/koa.md"];
  const [fastify, fetchGuide] = ["docs/guide/fastify.md", "docs/guide/fetch.md"];
  const commonjs = page(express).blockUnder("In CommonJS", "cjs");
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

  test.each(starts)("for $name imports what its page installs, and nothing else", (start) => {
    const { code, guide } = start;
    const installed = /^npm install (submit-lock .*)$/m.exec(page(guide).text)?.[1]?.split(" ");
    const names = [...code.matchAll(/(?:from |require\()"((?:@[^/"]+\/)?[^/"]+)/g)];
    const imported = names.map(([, name]) => name).filter((name) => !name?.startsWith("node:"));
    const other = start.name.includes("node-redis") ? "redis" : "ioredis";
    const expected = installed?.map((name) => (/^(io)?redis$/.test(name) ? other : name));
    expect([...new Set(imported)].sort()).toEqual(expected?.sort());
  });

  /** Starts it. Returns what submits an order, and resolves with the status. */
  async function startOf(code: string, language: string) {
    const port = await freePort();
    const name = `start-${port}.${language}`;
    project.write(name, code);
    await project.start(name, { PORT: `${port}`, REDIS_URL: redis.url });
    const submit = async (user: string) => {
      const headers = { "x-user-id": user };
      const answer = await fetch(`http://127.0.0.1:${port}/orders`, { method: "POST", headers });
      await answer.text();
      return answer.status;
    };
    await serving(() => submit(""));
    return submit;
  }

  test.each(starts)("for $name places one order of ten", async ({ code, language }) => {
    const submit = await startOf(code, language);
    await submit("early");
    // Ten connections that are open already, so that the ten submissions arrive at once.
    await Promise.all(Array.from({ length: 10 }, () => submit("")));

    const statuses = await Promise.all(Array.from({ length: 10 }, () => submit("42")));
    expect(statuses.sort()).toEqual([201, ...Array(9).fill(409)]);
    expect(await submit("")).toBe(401);
    const noKeyLeft = async () => ((await command(redis.port, "keys", "*")) as []).length === 0;
    await until(noKeyLeft, { what: "every key to be gone" });
  });

  /** The order goes on until its lease is lost, and its holder looks sooner whether it is. */
  const endless = (code: string) =>
    code
      .replace(
        /await sleep\(500\);.*(?=\s+(\S+)\.throwIfAborted)/,
        "while (!$1.aborted) await sleep(50);",
      )
      .replace("new RedisStore(redis) }", "new RedisStore(redis), ttlMs: 2_000 }");

  test.each(starts)(
    "for $name answers 503 where its lease is freed",
    async ({ code, language }) => {
      expect(endless(code)).toMatch(/aborted.*[\s\S]*throwIfAborted/);
      const submit = await startOf(endless(code), language);
      const user = freshUser();
      const order = submit(user);
      const client = ioredis6.connect(redis.port);
      const lock = new SubmitLock({ store: new RedisStore(client) });
      const idOf = async () => {
        const found = await lock.inspect(user);
        return "id" in found ? found.id : undefined;
      };
      await until(async () => (await idOf()) !== undefined, { what: "the order to start" });
      await lock.free(user, { id: (await idOf()) as string, by: "a test", reason: "a test" });
      expect(await order).toBe(503);
      await lock.close({ timeoutMs: 0 });
      closeClients();
    },
  );

  test("is tried with two clicks and a late one: one order, and its answer each time", async () => {
    const tried = page("README.md").blocks.find(({ code }) => code.includes("curl"))?.code ?? "";
    expect(tried).toMatch(/^for click in 1 2; do curl -i .* & done; wait\n$/);
    const [, name = "", value = "", form = "", address = ""] =
      /-H '([\w-]+): (\w+)' -d (\S+) http:\/\/127\.0\.0\.1:3000(\S+)/.exec(tried) ?? [];
    const port = await freePort();
    project.write("tried.js", readme);
    await project.start("tried.js", { PORT: `${port}`, REDIS_URL: redis.url });
    const click = async () => {
      const answer = await fetch(`http://127.0.0.1:${port}${address}`, {
        method: "POST",
        headers: { [name]: value },
        body: new URLSearchParams(form),
      });
      const { order } = (await answer.json()) as { order: string };
      return [answer.status, order, answer.headers.get("idempotent-replayed")];
    };
    await serving(() => fetch(`http://127.0.0.1:${port}/`));
    const clicks = await Promise.all([click(), click()]);
    const order = clicks[0]?.[1];
    expect(order).toMatch(/^[\w-]{22}$/);
    expect(clicks.sort((a, b) => `${a[2]}`.localeCompare(`${b[2]}`))).toEqual([
      [201, order, null],
      [201, order, "true"],
    ]);
    expect(await click()).toEqual([201, order, "true"]);
  });
});

describe("what a reader pastes: the quick start with once, then shutting down", () => {
  const shutting = page("docs/operations/deploying.md").blockUnder("Shutting down");
  // As the page says.
  const onFastify = shutting
    .replace(/const closed = .*/, "const closed = app.close();")
    .replaceAll("server.", "app.server.");
  const pasted = [
    { name: "Express", code: page("README.md").blockUnder("Quick start", "js") + shutting },
    {
      name: "Koa",
      code: page("docs/guide/koa.md").blockUnder("Quick start", "js") + shutting,
    },
    {
      name: "Fastify",
      code: page("docs/guide/fastify.md").blockUnder("Quick start", "js") + onFastify,
    },
    { name: "Hono", code: page("docs/guide/fetch.md").blockUnder("Hono") + shutting },
  ];

  test.each(pasted)(
    "on $name: a double click and a late one are one order, and SIGTERM lets an order end",
    async ({ name, code }) => {
      const port = await freePort();
      const file = `pasted-${name}.ts`;
      project.write(file, code);
      const ended = project.run(file, { PORT: `${port}`, REDIS_URL: redis.url });
      ended.catch(() => {});
      const user = freshUser();
      const click = async (token: string) => {
        const answer = await fetch(`http://127.0.0.1:${port}/orders`, {
          method: "POST",
          headers: {
            "content-type": "application/json",
            "idempotency-key": token,
            "x-user-id": user,
          },
          body: JSON.stringify({ token }),
        });
        return { status: answer.status, text: await answer.text() };
      };
      await serving(() => fetch(`http://127.0.0.1:${port}/`));
      const [first, second] = await Promise.all([click("t-1"), click("t-1")]);
      expect(first).toMatchObject({
        status: 201,
        text: expect.stringMatching(/"order":"[\w-]{22}"/),
      });
      expect(second).toEqual(first);
      expect(await click("t-1")).toEqual(first);

      const client = ioredis6.connect(redis.port);
      const lock = new SubmitLock({ store: new RedisStore(client) });
      const last = click("t-2");
      const found = await until(
        async () => {
          const state = await lock.inspect(user);
          return state.state === "held" && state;
        },
        { what: "an order under way" },
      );
      process.kill(Number(/:(\d+)$/.exec(found.holder ?? "")?.[1]), "SIGTERM");
      expect((await last).status).toBe(201);
      await ended;
      expect(await lock.inspect(user)).toEqual({ state: "free" });
      await lock.close({ timeoutMs: 0 });
      closeClients();
    },
  );
});

async function serving(ask: () => Promise<unknown>): Promise<void> {
  const answers = () =>
    ask().then(
      () => true,
      () => false,
    );
  await until(answers, { what: "the quick start", boundMs: 60_000, everyMs: 50 });
}

describe("answers in your own format", () => {
  const own = page("docs/reference/responses.md");
  const [options = ""] =
    /^ {2}idempotency[\s\S]*?(?=^}\);)/m.exec(own.blockUnder("On Express")) ?? [];
  const placed = `{ placed: true }`;
  const apps = {
    express: inQuickStart(own.blockUnder("On Express"), "express", {
      after: `app.post("/orders", guard.protect(async (_req, res) => void res.status(201).json(${placed})));`,
    }),
    koa: inQuickStart(own.blockUnder("On Koa"), "koa", {
      after: `app.use(submitGuard({ lock, userId: (ctx) => ctx.get("x-user-id"), ${options} }));
app.use((ctx) => { ctx.status = 201; ctx.body = ${placed}; });`,
    }),
    fastify: inQuickStart(own.blockUnder("On Fastify"), "fastify", {
      after: `const guard = submitGuard({ lock, userId: ({ headers }) => headers["x-user-id"]?.toString(), ${options} });
app.post("/orders", guard.protect(async (_req, reply) => reply.code(201).send(${placed})));`,
    }),
    fetch: inQuickStart(own.blockUnder("On fetch"), "fetch", {
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

  test.each(Object.entries(apps))("keep the headers of the default, on %s", async (name, app) => {
    // Without a Redis, the refusals are what is looked at.
    const recipe = app.replace(/^await lock\.check\(\);.*$/m, "");
    const serve = async (url: string) => {
      const port = await freePort();
      project.write(`own-${port}.ts`, recipe);
      await project.start(`own-${port}.ts`, { PORT: `${port}`, REDIS_URL: url });
      const submit = async (user: string, key?: string, body: object = {}) => {
        const headers = { "x-user-id": user, "content-type": "application/json" };
        const answer = await fetch(`http://127.0.0.1:${port}/orders`, {
          method: "POST",
          headers: key === undefined ? headers : { ...headers, "idempotency-key": key },
          body: JSON.stringify(body),
        });
        const type = String(answer.headers.get("content-type")).split(";")[0];
        const of = (name: string) => answer.headers.get(name);
        const { error } = (await answer.json()) as { error?: string };
        return [answer.status, error, type, of("cache-control"), of("retry-after")];
      };
      await serving(() => submit(""));
      return submit;
    };
    const submit = await serve(redis.url);
    const user = `own-${name}`;
    const refused = (status: number, code: string, retryAfter: string | null = null) =>
      [status, code, "application/json", "no-store", retryAfter] as const;
    expect(await submit("")).toEqual(refused(401, "submit_anonymous"));
    expect(await submit(user)).toEqual(refused(400, "idempotency_key_required"));
    expect(await submit(user, "a, list")).toEqual(refused(400, "idempotency_key_invalid"));
    expect((await submit(user, "k-1"))[0]).toBe(201);
    const other = await submit(user, "k-1", { cart: 8 });
    expect(other).toEqual(refused(422, "idempotency_conflict"));
    const key = `lock:submit:busy-${name}`;
    await command(redis.port, "set", key, `${randomUUID()}`, "px", 60_000);
    const contended = await submit(`busy-${name}`, "k-2");
    expect(contended).toEqual(refused(409, "submit_contended", "1"));
    const alone = await serve(`redis://127.0.0.1:${await freePort()}`);
    expect(await alone(user, "k-1")).toEqual(refused(503, "submit_unavailable", "1"));
  });
});

describe("the other code of the documents", () => {
  test("takes a long job in steps, between which an order has its turn", async () => {
    project.write("steps.ts", page("docs/guide/any-function.md").blockUnder("Long jobs"));
    project.write("settling.ts", useOfLedger);
    const output = await project.run("settling.ts", { REDIS_URL: redis.url });
    const lines = output.trim().split("\n");
    const pages = lines.filter((line) => line.startsWith("page"));
    expect(pages.map((line) => line.split(" ")[1])).toEqual(["1", "2", "3"]);
    expect(lines.at(-1)).not.toBe("order");
    expect(lines).toContain("order");
    const tokens = pages.map((line) => Number(line.split(" ")[2]));
    expect(tokens).toEqual([...tokens].sort((a, b) => a - b));
    expect(new Set(tokens).size).toBe(3);
  });

  test("tests a service", async () => {
    project.write("service.ts", page("docs/guide/express.md").blockUnder("Testing your service"));
    expect(await project.run("service.ts")).toBe("");
  });

  test("is a store that works", async () => {
    const store = page("docs/reference/options.md").blockUnder("A store of your own");
    project.write("map-store.ts", store + useOfMapStore);
    expect(await project.run("map-store.ts")).toBe("contended released\nacquired\n");
  });

  test("waits for a Redis that comes up later", async () => {
    const port = await freePort();
    const waiting = page("docs/operations/redis.md").blockUnder("Waiting for Redis at boot");
    project.write("boot.ts", `${waiting}await lock.close();\nredis.disconnect();\n`);
    const booted = project.run("boot.ts", { REDIS_URL: `redis://127.0.0.1:${port}` });
    // Long enough for its first check to have failed.
    await new Promise((resolve) => setTimeout(resolve, 10_000));
    const late = await startRedis({ port });
    try {
      expect(await booted).toMatch(/redis: .*ECONNREFUSED[\s\S]*ready\n$/);
    } finally {
      await late.stop();
    }
  });

  test("does not wait for a permission that is missing", async () => {
    await command(redis.port, "acl", "setuser", "nobody", "on", ">pass", "~*", "+@all", "-eval");
    const waiting = page("docs/operations/redis.md").blockUnder("Waiting for Redis at boot");
    project.write("refused.ts", waiting);
    const REDIS_URL = `redis://nobody:pass@127.0.0.1:${redis.port}`;
    await expect(project.run("refused.ts", { REDIS_URL })).rejects.toThrow("MISCONFIGURED");
  });

  test("sends a form that was clicked twice to a page, not to a refusal", async () => {
    const port = await freePort();
    const recipe = page("docs/reference/responses.md").blockUnder("A page for a form");
    const after = `import { placeOrder } from "./shop.ts";
app.post("/orders", guard.protect(async (_req, res) => {
  const order = await placeOrder({ id: "form", version: 1 });
  res.redirect(303, \`/orders/\${order.number}\`);
}));`;
    project.write("form.ts", inQuickStart(recipe, "express", { after }));
    await project.start("form.ts", { PORT: `${port}`, REDIS_URL: redis.url, ORDER_MS: "2000" });
    const submit = () =>
      fetch(`http://127.0.0.1:${port}/orders`, {
        method: "POST",
        headers: { "x-user-id": "form" },
        redirect: "manual",
      });
    const look = () => fetch(`http://127.0.0.1:${port}/orders/pending`);
    await serving(look);
    const clicks = await Promise.all([submit(), submit()]);
    expect(clicks.map(({ status }) => status)).toEqual([303, 303]);
    const locations = clicks.map(({ headers }) => headers.get("location")).sort();
    expect(locations).toEqual(["/orders/1", "/orders/pending"]);
    expect(await (await look()).text()).toContain("being placed");
  });

  test("shuts down with a handler that never answers, within its bound", async () => {
    const port = await freePort();
    const shown = page("docs/operations/deploying.md").blockUnder("Shutting down");
    expect(shown).toContain("10_000");
    project.write("shutdown.ts", neverAnswering + shown.replace("10_000", "500"));
    const ended = project.run("shutdown.ts", { PORT: `${port}`, REDIS_URL: redis.url });
    expect(await ended).toBe("the order was cut off\n");
  });
});
