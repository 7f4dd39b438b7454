import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { RedisStore, SubmitLock } from "../../../src/index.ts";
import { closeClients, ioredis6 } from "../../support/clients.ts";
import { freshUser } from "../../support/ids.ts";
import { sharedRedisPort } from "../../support/redis-server.ts";
import { until } from "../../support/until.ts";
import { startChromium } from "./chromium.ts";
import { type RunningDemo, startDemo } from "./demo.ts";
import { type FormShop, type Framework, openShop } from "./form-shops.ts";
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
    demo = await startDemo("examples/express-checkout.ts");
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
    const demo = await startDemo("examples/express-checkout.ts", { PATH: "/nowhere" });
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
