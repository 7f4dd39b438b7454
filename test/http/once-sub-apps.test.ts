import { randomUUID } from "node:crypto";
import { createServer, type Server } from "node:http";
import express5, { type Express, type Request, type Response } from "express";
import express4 from "express4";
import { afterEach, describe, expect, test } from "vitest";
import { submitGuard } from "../../src/express/index.ts";
import { RedisStore } from "../../src/index.ts";
import { ioredis6 } from "../support/clients.ts";
import { closeLocks, openLock } from "../support/locks.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { listen } from "./http-client.ts";
import { patientTimes } from "./shop.ts";

const servers: Server[] = [];
afterEach(async () => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    server.close();
  }
  await closeLocks();
});

const openGuard = (idempotency: object | undefined) =>
  submitGuard({
    lock: openLock({ store: new RedisStore(ioredis6.connect(sharedRedisPort())), ...patientTimes }),
    userId: (req) => req.get("x-user"),
    idempotency: idempotency as never,
  });

/** Serves the application, and submits to a path as one user, with one key for all. */
async function serve(app: Express) {
  const server = createServer(app);
  servers.push(server);
  const port = await listen(server);
  const headers = { "x-user": randomUUID(), "idempotency-key": randomUUID() };
  return async (path: string) => {
    const reply = await fetch(`http://127.0.0.1:${port}${path}`, { method: "POST", headers });
    const { status } = reply;
    const replayed = reply.headers.get("idempotent-replayed");
    return { status, replayed, location: reply.headers.get("location"), body: await reply.text() };
  };
}

const ways: Record<string, (res: Response, run: number) => unknown> = {
  json: (res, run) => res.status(201).location("/orders/7").json({ run }),
  "write and end": (res, run) => {
    res.writeHead(201, { Location: "/orders/7" });
    res.write(`run `);
    res.end(`${run}`);
  },
};
const libraries: Record<string, typeof express5> = { "Express 4": express4, "Express 5": express5 };

describe.each(Object.keys(libraries))("idempotency and applications of %s", (name) => {
  const express = libraries[name] as typeof express5;

  describe.each(Object.keys(ways))("that answer by %s", (way) => {
    const answer = ways[way] as (typeof ways)[string];
    const handlerOf = () => {
      let runs = 0;
      return (_req: Request, res: Response) => void answer(res, ++runs);
    };

    /** A second submission gets the first one's answer, and nothing runs again. */
    async function expectOnce(app: Express, path: string): Promise<void> {
      const submit = await serve(app);
      const first = await submit(path);
      expect([first.status, first.location, first.replayed]).toEqual([201, "/orders/7", null]);
      expect(await submit(path)).toEqual({ ...first, replayed: "true" });
    }

    test("a mounted application behind the guard", async () => {
      const sub = express();
      sub.post("/orders", handlerOf());
      const app = express();
      app.use("/shop", openGuard({}), sub);
      await expectOnce(app, "/shop/orders");
    });

    test("two of them, one in the other, mounted when requests have come already", async () => {
      const inner = express();
      inner.post("/orders", openGuard({}), handlerOf());
      await expectOnce(inner, "/orders");
      const outer = express();
      outer.use("/inner", inner);
      const app = express();
      app.use("/outer", openGuard(undefined), outer);
      app.post("/orders", openGuard({}), handlerOf());
      await expectOnce(app, "/orders");
    });

    test("a guard in a mounted application, and the handler behind it", async () => {
      const sub = express();
      sub.use(openGuard({}));
      const app = express();
      app.use(sub);
      app.post("/orders", handlerOf());
      await expectOnce(app, "/orders");
    });

    test("an application that is called and not mounted runs once: its answer is not repeated", async () => {
      const other = express();
      other.post("/orders", handlerOf());
      const app = express();
      app.use(openGuard({}), (req, res, next) => other(req, res, next));
      const submit = await serve(app);
      expect((await submit("/orders")).body).toContain("1");
      const second = await submit("/orders");
      // Its `Location` is known, so a redirect to it would be; the bytes are not.
      expect([second.status, second.body.includes("2")]).toEqual([
        second.replayed ? 201 : 409,
        false,
      ]);
    });
  });

  test("an application's response is given one prototype, and a lock-only request none", async () => {
    const app = express();
    const base = Object.getPrototypeOf(app.response);
    app.post("/lock-only", openGuard(undefined), (_req, res) => void res.json({}));
    app.post("/orders", openGuard({}), (_req, res) => void res.json({}));
    const submit = await serve(app);
    await submit("/lock-only");
    expect(Object.getPrototypeOf(app.response)).toBe(base);
    await submit("/orders");
    const layer = Object.getPrototypeOf(app.response);
    expect(Object.getPrototypeOf(layer)).toBe(base);
    await submit("/orders");
    expect(Object.getPrototypeOf(app.response)).toBe(layer);
  });
});
