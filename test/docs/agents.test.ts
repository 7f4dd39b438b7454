import { bodyParser } from "@koa/bodyparser";
import express from "express";
import Koa from "koa";
import supertest from "supertest";
import { afterEach, describe, expect, test } from "vitest";
import {
  lockName,
  parseAndKeep,
  universal,
  universalOnKoa,
} from "../../examples/agentic-checkout.ts";
import { callOnce } from "../../examples/mcp-tool.ts";
import { submitGuard } from "../../src/express/index.ts";
import { MemoryStore } from "../../src/index.ts";
import { submitGuard as submitGuardOnKoa } from "../../src/koa/index.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, openLock } from "../support/locks.ts";
import { until } from "../support/until.ts";
import { page } from "./page.ts";

afterEach(closeLocks);

/** A business of the Universal Commerce Protocol, and what it has of its one checkout session. */
function openBusiness() {
  const store = new MemoryStore();
  const lock = openLock({ store, acquireTimeoutMs: 2_000, commandTimeoutMs: 1_000 });
  return { store, lock, runs: 0, platform: freshUser() };
}

type Business = ReturnType<typeof openBusiness>;
const complete = "/checkout-sessions/cs_1/complete";

const frameworks = {
  Express(business: Business) {
    const { lock } = business;
    const guard = submitGuard({
      ...universal,
      lock,
      userId: (req) => lockName(req.get("ucp-agent"), "cs_1", req.get("idempotency-key")),
    });
    const place: express.RequestHandler = async (req, res) => {
      business.runs += 1;
      res.json({ run: business.runs, status: req.body.status });
    };
    return express().use(parseAndKeep).post(complete, guard.protect(place));
  },
  Koa(business: Business) {
    const { lock } = business;
    const guard = submitGuardOnKoa({
      ...universalOnKoa,
      lock,
      userId: (ctx) => lockName(ctx.get("ucp-agent"), "cs_1", ctx.get("idempotency-key")),
    });
    const app = new Koa().use(bodyParser()).use(guard);
    app.use((ctx) => {
      business.runs += 1;
      ctx.body = { run: business.runs, status: Object(ctx.request.body).status };
    });
    return app.callback();
  },
};

describe.each(Object.entries(frameworks))(
  "the Universal Commerce Protocol on %s",
  (_name, open) => {
    function openPlatform() {
      const business = openBusiness();
      const app = open(business);
      const send = async (key: string | undefined, body: string, agent = business.platform) => {
        const asked = supertest(app).post(complete).set("ucp-agent", agent);
        if (key !== undefined) asked.set("idempotency-key", key);
        return await asked.set("content-type", "application/json").send(body);
      };
      return { business, send };
    }

    // "Return the cached result for duplicate keys", a business error with its 200 too.
    test("a duplicate key gets the first result", async () => {
      const { business, send } = openPlatform();
      const body = '{"status":"requires_escalation"}';
      const [first, again] = [await send("k-1", body), await send("k-1", body)];
      expect([first.status, again.status, again.text]).toEqual([200, 200, first.text]);
      expect(again.headers["idempotent-replayed"]).toBe("true");
      expect(business.runs).toBe(1);
      // "Uniqueness: Per-client".
      expect((await send("k-1", body, freshUser())).body.run).toBe(2);
    });

    // "Return `409 Conflict` if the key is reused with different parameters." The bytes are compared,
    // as they are signed.
    test("a key with other bytes is 409", async () => {
      const { send } = openPlatform();
      expect((await send("k-1", '{"status":"a"}')).status).toBe(200);
      for (const other of ['{"status":"b"}', '{ "status":"a"}']) {
        const refused = await send("k-1", other);
        expect([refused.status, refused.body.code]).toEqual([409, "idempotency_conflict"]);
      }
    });

    // "Server storage: Minimum 24 hours, recommended 48 hours."
    test("a result is kept for 48 hours", () => {
      for (const { idempotency } of [universal, universalOnKoa]) {
        expect(idempotency.retainMs).toBe(172_800_000);
      }
    });

    // "On storage failure: Fail closed (reject request with 503)". Support of the key is a SHOULD.
    test("without the store it is 503, and without a key it is the lock alone", async () => {
      const { business, send } = openPlatform();
      business.store.play("unreachable");
      expect((await send("k-1", "{}")).status).toBe(503);
      business.store.play("none");
      expect(business.runs).toBe(0);
      expect((await send(undefined, "{}")).status).toBe(200);
      expect((await send(undefined, "{}")).body.run).toBe(2);
    });
  },
);

describe("a tool of MCP", () => {
  const call = (key?: string, checkout: object = { total: 990 }, id = "cs_1") => ({
    name: "complete_checkout",
    arguments: { ...(key && { meta: { "idempotency-key": key } }), id, checkout },
  });

  test("runs once for each key, and repeats its result", async () => {
    const { lock, platform } = openBusiness();
    let runs = 0;
    const tool = (params: ReturnType<typeof call>) =>
      callOnce(lock, platform, params, async () => ({ status: "completed", run: ++runs }));
    const [first, second] = await Promise.all([tool(call("k-1")), tool(call("k-1"))]);
    expect(first).toMatchObject({ result: { structuredContent: { run: 1 } } });
    expect(second).toEqual(first);
    expect(await tool(call("k-1"))).toEqual(first);
    expect(await tool(call("k-2"))).toMatchObject({ result: { structuredContent: { run: 2 } } });
    expect(await tool(call())).toMatchObject({ error: { code: -32602 } });
    const conflict = { status: 409, code: "idempotency_conflict" };
    expect(await tool(call("k-1", { total: 1 }))).toMatchObject({ error: { data: conflict } });
  });

  test("answers contention and an outage with retry_after, and passes other errors on", async () => {
    const { lock, platform, store } = openBusiness();
    let goOn = () => {};
    const work = () => new Promise<object>((resolve) => (goOn = () => resolve({})));
    const first = callOnce(lock, platform, call("k-1"), work);
    await until(() => lock.stats().held === 1, { what: "the first call" });
    const data = { status: 409, code: "submit_contended", retry_after: "1" };
    const refused = await callOnce(lock, platform, call("k-2"), work);
    expect(refused).toMatchObject({ error: { code: -32000, data } });
    // Another session of the same agent.
    const other = callOnce(lock, platform, call("k-3", {}, "cs_2"), async () => ({ run: 1 }));
    expect(await other).toHaveProperty("result");
    goOn();
    await first;
    store.play("unreachable");
    const away = await callOnce(lock, platform, call("k-4", {}, "cs_3"), work);
    expect(away).toMatchObject({ error: { data: { status: 503, code: "submit_unavailable" } } });
    store.play("none");
    const failing = callOnce(lock, platform, call("k-5", {}, "cs_4"), async () => {
      throw new Error("the shop's own");
    });
    await expect(failing).rejects.toThrow("the shop's own");
  });
});

test("the table of answers has each code of a response", () => {
  const rows = page("docs/guide/agents.md").tableUnder("Which answer to send again");
  const codes = page("docs/reference/responses.md")
    .tableUnder("Responses")
    .map(([, code = ""]) => code);
  expect(codes.length).toBeGreaterThan(8);
  const answers = rows.map(([answer]) => answer).join(" ");
  for (const code of codes) expect(answers).toContain(code);
  for (const [, again] of rows) expect(["yes", "no", "not needed"]).toContain(again);
});
