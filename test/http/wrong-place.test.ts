import { createServer, type RequestListener } from "node:http";
import express5 from "express";
import express4 from "express4";
import Fastify from "fastify";
import { H3 } from "h3";
import { type Handler, Hono } from "hono";
import Koa3 from "koa";
import Koa2 from "koa2";
import { describe, expect, test } from "vitest";
import { submitGuard as expressGuard } from "../../src/express/index.ts";
import { submitGuard as fastifyGuard } from "../../src/fastify/index.ts";
import { submitGuard as fetchGuard } from "../../src/fetch/index.ts";
import { MemoryStore, SubmitLock } from "../../src/index.ts";
import { submitGuard as koaGuard } from "../../src/koa/index.ts";
import { listen } from "./http-client.ts";

const options = { lock: new SubmitLock({ store: new MemoryStore() }), userId: () => "42" };
const never = () => expect.fail("it ran");

/** The function of a guard that a person mounts. */
const mounted: Record<string, unknown> = {
  express: expressGuard(options),
  "express, protect": expressGuard(options).protect(never),
  koa: koaGuard(options),
  "fastify, protect": fastifyGuard(options).protect(never),
  "fetch, protect": fetchGuard(options).protect(never),
};

/** An application with `handler` mounted, and the texts of the errors that it met. */
const apps: Record<string, (handler: never, said: string[]) => Promise<RequestListener>> = {};
for (const [name, lib] of Object.entries({ express4, express5 })) {
  apps[name] = async (handler, said) => {
    const app = lib().post("/orders", handler);
    const onError: express5.ErrorRequestHandler = (error, _req, res, _next) => {
      said.push(error.message);
      res.sendStatus(500);
    };
    return app.use(onError);
  };
}
for (const [name, lib] of Object.entries({ koa2: Koa2, koa3: Koa3 })) {
  apps[name] = async (handler, said) => {
    const app = new lib().use(handler);
    app.on("error", (error: Error) => said.push(error.message));
    return app.callback() as RequestListener;
  };
}
apps["fastify"] = async (handler, said) => {
  const app = Fastify();
  app.setErrorHandler<Error>(async (error, _request, reply) => {
    said.push(error.message);
    return await reply.code(500).send();
  });
  app.post("/orders", handler);
  await app.ready();
  return (req, res) => app.routing(req, res);
};

describe.each(Object.keys(apps))("mounted on %s", (app) => {
  const place = app.replace(/\d/, "");
  const others = Object.keys(mounted).filter((guard) => !guard.startsWith(place));

  test.each(others)("the guard of %s names the right one, at every request", async (guard) => {
    const said: string[] = [];
    const listener = await apps[app]?.(mounted[guard] as never, said);
    const port = await listen(createServer(listener));
    for (let click = 1; click <= 2; click++) {
      const answer = await fetch(`http://127.0.0.1:${port}/orders`, { method: "POST" });
      expect(answer.status).toBe(500);
    }
    const own = guard.replace(", protect", "");
    const text = new RegExp(
      `this is the guard of submit-lock/${own}, .* import .* "submit-lock/${place}"$`,
    );
    expect(said).toEqual([expect.stringMatching(text), expect.stringMatching(text)]);
  });
});

test.each(Object.keys(mounted).filter((guard) => !guard.startsWith("fetch")))(
  "called with a Request the guard of %s names that of fetch",
  (guard) => {
    const call = mounted[guard] as (request: Request) => unknown;
    expect(() => call(new Request("http://shop.example"))).toThrow(/"submit-lock\/fetch"$/);
  },
);

/** A router with `handler` mounted, and the texts of the errors that it met. */
const routers: Record<string, (handler: never, said: string[]) => () => unknown> = {
  hono(handler, said) {
    const app = new Hono().post("/orders", handler as Handler);
    app.onError((error, c) => {
      said.push(error.message);
      return c.text("", 500);
    });
    return () => app.request("/orders", { method: "POST" });
  },
  h3(handler, said) {
    const app = new H3({ silent: true, onError: ({ message }) => void said.push(message) });
    app.post("/orders", handler);
    return () => app.request("/orders", { method: "POST" });
  },
  // Elysia's context has these members, the events of TanStack Start, SolidStart and SvelteKit some.
  "an event": (handler, said) => {
    const request = new Request("http://shop.example/orders", { method: "POST" });
    const { headers, url } = request;
    const call = handler as (event: object) => unknown;
    const click = async () => await call({ request, headers: Object.fromEntries(headers), url });
    return () => click().catch((error: Error) => said.push(error.message));
  },
};

const calls: Record<string, string> = {
  hono: "write (c) => handler(c.req.raw)",
  h3: "write (c) => handler(c.req)",
  "an event": "write (c) => handler(c.request)",
};

describe.each(Object.keys(routers))("given by %s", (router) => {
  test.each(Object.keys(mounted))(
    "what has a Request, the guard of %s names what to write, at every click",
    async (guard) => {
      const said: string[] = [];
      const click = routers[router]?.(mounted[guard] as never, said);
      for (let clicks = 1; clicks <= 2; clicks++) await click?.();
      const text = guard.startsWith("fetch")
        ? `guard: expected a Request, got an object that has one: ${calls[router]}`
        : `this is the guard of submit-lock/${guard.replace(", protect", "")}, and a framework of fetch has called it: import { submitGuard } from "submit-lock/fetch", and ${calls[router]}`;
      expect(said).toEqual([text, text]);
    },
  );
});

test("a request of Express that carries a Request is one of Express", async () => {
  const app = express5();
  app.use((req, _res, next) => {
    Object.assign(req, { request: new Request("http://shop.example/orders") });
    next();
  });
  const placed = expressGuard(options).protect(async (_req, res) => void res.sendStatus(201));
  const port = await listen(createServer(app.post("/orders", placed)));
  const answer = await fetch(`http://127.0.0.1:${port}/orders`, { method: "POST" });
  expect(answer.status).toBe(201);
});

test.each([
  ["nothing", undefined, "undefined"],
  ["a URL", "http://shop.example/orders", ".*"],
  ["an event of a serverless platform", { rawPath: "/orders", requestContext: {} }, "an object"],
  ["the request of Hono", { raw: new Request("http://shop.example"), url: "/orders" }, "an object"],
  ["a number", 42, "42"],
])("called with %s, each guard says what it expects", (_what, argument, came) => {
  for (const [guard, call] of Object.entries(mounted)) {
    const text = new RegExp(`^guard: expected a (request|context|Request).*, got ${came}$`);
    expect(() => (call as (argument: unknown) => unknown)(argument), guard).toThrow(text);
  }
});

test.each(["express", "express, protect"])(
  "called without next the guard of %s says so, and does not lose the error of a handler later",
  (guard) => {
    const call = mounted[guard] as (req: object, res: object) => unknown;
    expect(() => call({ headers: {} }, { setHeader() {} })).toThrow(
      /^guard: expected next as its third argument, a function, got undefined$/,
    );
  },
);

test("submitGuard() without options says what it expects, and lists each option of its own", () => {
  for (const make of [expressGuard, koaGuard, fastifyGuard, fetchGuard]) {
    const open = (given: unknown) => () => (make as (options: unknown) => unknown)(given);
    for (const none of [undefined, null]) {
      expect(open(none)).toThrow(`submitGuard options: expected an object, got ${none}`);
    }
    const others = make === fetchGuard ? "onReplay, waitUntil" : "onReplay";
    expect(open({ ...options, waitUntill: 1 })).toThrow(`${others}, got the unknown option`);
  }
});

test("guard(handler) names protect, and on Koa the place of the guard", () => {
  const call = (guard: unknown) => () => (guard as (handler: () => never) => unknown)(never);
  expect(call(mounted["express"])).toThrow(/got a function: write guard\.protect\(handler\)$/);
  expect(call(mounted["koa"])).toThrow(/router\.post\(path, guard, handler\)$/);
});
