import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { getRequestListener } from "@hono/node-server";
import Fastify, { type FastifyRequest } from "fastify";
import { Hono } from "hono";
import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { submitGuard as fastifyGuard } from "../../../src/fastify/index.ts";
import { submitGuard as fetchGuard } from "../../../src/fetch/index.ts";
import { RedisStore, SubmitLock } from "../../../src/index.ts";
import { closeClients, ioredis6 } from "../../support/clients.ts";
import { freshUser } from "../../support/ids.ts";
import { sharedRedisPort } from "../../support/redis-server.ts";
import { until } from "../../support/until.ts";
import { type RunningDemo, startChromium, startDemo } from "./chromium.ts";
import { Visitor } from "./visitor.ts";

/** `waitForURL` fails where the second click ends the navigation of the first. */
async function shows(page: Page, address: RegExp): Promise<void> {
  await until(() => address.test(page.url()), { what: `${address}`, boundMs: 60_000 });
}

describe("the form without JavaScript", () => {
  let demo: RunningDemo;
  let browser: Awaited<ReturnType<typeof startChromium>>;
  let page: Page;

  beforeAll(async () => {
    demo = await startDemo("examples/demo/express.ts");
    browser = await startChromium({ javaScriptEnabled: false });
    page = await browser.context.newPage();
  }, 180_000);

  afterAll(async () => {
    await browser?.close();
    expect(await demo?.end(), demo?.output()).toBe(0);
  });

  const orders = async (): Promise<number> => {
    const answer = await fetch(`${demo.url}/cart`, {
      headers: { authorization: "Bearer token-of-ada" },
    });
    return ((await answer.json()) as { orders: unknown[] }).orders.length;
  };

  test("places an order, and back and resubmit shows the same one", async () => {
    const before = await orders();
    await page.goto(`${demo.url}/form?fresh`);
    await page.click("text=Place order");
    await page.waitForURL(/\/orders\/\d+$/);
    const placed = page.url();
    expect(await page.textContent("h1")).toMatch(/^Order \d+ is placed$/);
    await page.goBack();
    expect(await page.textContent("h1")).toBe("Your cart");
    await page.click("text=Place order");
    await page.waitForURL(placed);
    expect(await orders()).toBe(before + 1);
  });

  test("a double-clicked form shows the order", async () => {
    const before = await orders();
    await page.goto(`${demo.url}/form?fresh`);
    // As slow as a hand: of two clicks within a few milliseconds Chromium sends one request.
    await page.dblclick("text=Place order", { delay: 100 });
    await shows(page, /\/orders\/\d+$/);
    await page.waitForSelector("text=is placed");
    expect(await page.textContent("h1")).toMatch(/^Order \d+ is placed$/);
    expect(await orders()).toBe(before + 1);
  });

  test("two tabs with the same cart show the same order", async () => {
    const before = await orders();
    await page.goto(`${demo.url}/form?fresh`);
    const second = await browser.context.newPage();
    await second.goto(`${demo.url}/form`);
    await Promise.all([page.click("text=Place order"), second.click("text=Place order")]);
    await Promise.all([page.waitForURL(/\/orders\/\d+$/), second.waitForURL(/\/orders\/\d+$/)]);
    expect(second.url()).toBe(page.url());
    expect(await orders()).toBe(before + 1);
    await second.close();
  });
});

const frameworks = ["Hono", "Fastify"] as const;

describe.each([
  ["with", true],
  ["without", false],
])("a form %s JavaScript", (_with, javaScriptEnabled) => {
  let browser: Awaited<ReturnType<typeof startChromium>>;
  let lock: SubmitLock;
  let shop: FormShop;
  let page: Page;

  beforeAll(async () => {
    browser = await startChromium({ javaScriptEnabled });
  }, 180_000);
  afterAll(() => browser?.close());
  // The browser closes its pages: one page alone may hang in it, after a navigation that was ended.
  afterEach(async () => {
    shop?.close();
    await lock?.close();
    closeClients();
  });

  /**
   * The second click follows when the first order is under way. A click before that may take away
   * the client of the first, which is then not begun.
   */
  const clickTwice = async (framework: Framework, protection: "once" | "lock") => {
    lock = new SubmitLock({ store: new RedisStore(ioredis6.connect(sharedRedisPort())) });
    shop = await openShop(framework, lock, freshUser());
    page = await browser.context.newPage();
    await page.goto(`${shop.url}/checkout/${protection}`);
    const button = await page.locator("text=Place order").boundingBox();
    if (button === null) throw new Error("there is no button");
    // The mouse alone: a click on a selector waits for the navigation that the first one began.
    const click = () => page.mouse.click(button.x + button.width / 2, button.y + button.height / 2);
    await click();
    await until(() => shop.orders === 1, { what: "the first order" });
    await click();
    await until(() => shop.submissions === 2, { what: "the second click" });
  };
  const answers = async (count: number) => {
    const items = page.locator("li");
    await until(async () => (await items.count()) === count, { what: "answers", everyMs: 50 });
    return await items.allTextContents();
  };

  test.each(frameworks)("that is clicked twice on %s is one order", async (framework) => {
    await clickTwice(framework, "once");
    shop.letOrdersEnd();
    if (javaScriptEnabled) expect(await answers(2)).toEqual(["200 /orders/1", "200 /orders/1"]);
    else await shows(page, /\/orders\/1$/);
    expect(shop.orders).toBe(1);
  });

  test.each(frameworks)(
    "that is clicked twice on %s with the lock alone is one order and a 409",
    async (framework) => {
      await clickTwice(framework, "lock");
      // Without JavaScript the browser shows the answer to the second click alone.
      if (javaScriptEnabled) expect(await answers(1)).toEqual(["409 /lock"]);
      else await page.waitForSelector("text=You already have an order in progress");
      shop.letOrdersEnd();
      if (javaScriptEnabled) expect(await answers(2)).toContain("200 /orders/1");
      expect(shop.orders).toBe(1);
    },
  );
});

describe("the page without a Redis", () => {
  test("disables what needs one, says why, and places orders all the same", async () => {
    const demo = await startDemo("examples/demo/express.ts", { PATH: "/nowhere" });
    const browser = await startChromium({ viewport: { width: 390, height: 800 } });
    try {
      const visitor = await Visitor.at(browser.context, demo.url);
      const { page } = visitor;
      expect(await page.isDisabled("#redis")).toBe(true);
      expect(await page.isDisabled("#kill")).toBe(true);
      expect(await page.textContent("#why")).toMatch(/“Redis away” and .* needs a Redis: install/);
      await visitor.protectWith("once");
      await page.dblclick("#order");
      await visitor.summary(/As it should be: 1 order and 1 charge/);
      // A phone: nothing is wider than the screen.
      expect(await page.evaluate("document.documentElement.scrollWidth")).toBeLessThanOrEqual(390);
    } finally {
      await browser.close();
      expect(await demo.end(), demo.output()).toBe(0);
    }
  }, 180_000);
});

/** A shop with one customer and a form. `lock` and `once` have an order route each. */
interface FormShop {
  readonly url: string;
  /** How many forms have arrived. */
  readonly submissions: number;
  /** How many orders are placed, or in the middle of it. */
  readonly orders: number;
  /** No order is placed before. */
  letOrdersEnd(): void;
  close(): void;
}

/** Places an order, and returns the path of its page. */
type PlaceOrder = () => Promise<string>;
type MakeListener = (lock: SubmitLock, userId: () => string, place: PlaceOrder) => RequestListener;

type Framework = "Hono" | "Fastify";

const listeners: Readonly<Record<Framework, MakeListener>> = {
  Hono(lock, userId, place) {
    const submissionId = async (request: Request) =>
      String((await request.clone().formData()).get("submission") ?? "");
    const handler = async () =>
      new Response(null, { status: 303, headers: { location: await place() } });
    const withLock = fetchGuard({ lock, userId }).protect(handler);
    const idempotency = { submissionId, waitMs: 10_000 };
    const withOnce = fetchGuard({ lock, userId, idempotency }).protect(handler);
    const app = new Hono();
    app.get("/checkout/:protection", (c) => c.html(checkout(c.req.param("protection"))));
    app.get("/orders/:number", (c) => c.html(placed(c.req.param("number"))));
    app.post("/lock", (c) => withLock(c.req.raw));
    app.post("/once", (c) => withOnce(c.req.raw));
    return getRequestListener(app.fetch);
  },

  Fastify(lock, userId, place) {
    const app = Fastify();
    const isForm = "application/x-www-form-urlencoded";
    app.addContentTypeParser(isForm, { parseAs: "string" }, (_request, body, done) =>
      done(null, Object.fromEntries(new URLSearchParams(String(body)))),
    );
    const submissionId = ({ body }: FastifyRequest) =>
      (body as { submission?: string } | undefined)?.submission;
    const idempotency = { submissionId, waitMs: 10_000 };
    type Params = { Params: { protection: string; number: string } };
    app.get<Params>("/checkout/:protection", async ({ params }, reply) =>
      reply.type("text/html").send(checkout(params.protection)),
    );
    app.get<Params>("/orders/:number", async ({ params }, reply) =>
      reply.type("text/html").send(placed(params.number)),
    );
    const withLock = fastifyGuard({ lock, userId });
    app.post(
      "/lock",
      withLock.protect(async (_request, reply) => reply.redirect(await place(), 303)),
    );
    const withOnce = fastifyGuard({ lock, userId, idempotency });
    app.post(
      "/once",
      withOnce.protect(async (_request, reply) => reply.redirect(await place(), 303)),
    );
    const ready = app.ready();
    return (req, res) => void ready.then(() => app.routing(req, res));
  },
};

async function openShop(framework: Framework, lock: SubmitLock, user: string): Promise<FormShop> {
  let submissions = 0;
  let orders = 0;
  let letOrdersEnd!: () => void;
  const mayEnd = new Promise<void>((resolve) => {
    letOrdersEnd = resolve;
  });
  const place = async () => {
    orders += 1;
    const path = `/orders/${orders}`;
    await mayEnd;
    return path;
  };
  const listener = listeners[framework](lock, () => user, place);
  const server = createServer((req, res) => {
    if (req.method === "POST") submissions += 1;
    listener(req, res);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    letOrdersEnd,
    get submissions() {
      return submissions;
    },
    get orders() {
      return orders;
    },
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}

/** With JavaScript, the page stays and lists the answers. */
function checkout(protection: string): string {
  return page(`<h1>Your cart</h1>
    <form method="post" action="/${protection}">
      <input type="hidden" name="submission" value="${randomUUID()}">
      <button>Place order</button>
    </form>
    <ol></ol>
    <script>
      const form = document.querySelector("form");
      form.addEventListener("submit", async (event) => {
        event.preventDefault();
        const body = new URLSearchParams(new FormData(form));
        const answer = await fetch(form.action, { method: "POST", body });
        const item = document.createElement("li");
        item.textContent = answer.status + " " + new URL(answer.url).pathname;
        document.querySelector("ol").append(item);
      });
    </script>`);
}

function placed(number: string): string {
  return page(`<h1>Order ${number} is placed</h1>`);
}

function page(body: string): string {
  return `<!doctype html><html lang="en"><meta charset="utf-8"><title>Checkout</title>
    <link rel="icon" href="data:,">${body}</html>`;
}
