import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ownDatabase } from "../../docs/examples/own-database.ts";
import { runExample } from "../../docs/examples/run-example.ts";
import { endAll } from "../../support/child.ts";
import { type RunningDemo, startChromium, startDemo } from "./chromium.ts";
import { untilShown } from "./shown.ts";
import { mouseOn, objections } from "./visitor.ts";

afterAll(endAll);

/** `waitForURL` fails where the second click ends the navigation of the first. */
async function shows(page: Page, address: RegExp): Promise<void> {
  await untilShown(() => address.test(page.url()), { what: `${address}` });
}

describe("the form without JavaScript", () => {
  let demo: RunningDemo;
  let browser: Awaited<ReturnType<typeof startChromium>>;
  let page: Page;

  beforeAll(async () => {
    demo = await startDemo("examples/demo/express.ts", await ownDatabase());
    browser = await startChromium({ javaScriptEnabled: false });
    page = await browser.context.newPage();
  });

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
    // Chromium may drop a click of the mouse at a tab that is behind another one.
    const press = (of: Page) => of.dispatchEvent("text=Place order", "click");
    await Promise.all([press(page), press(second)]);
    await Promise.all([page.waitForURL(/\/orders\/\d+$/), second.waitForURL(/\/orders\/\d+$/)]);
    expect(second.url()).toBe(page.url());
    expect(await orders()).toBe(before + 1);
    await second.close();
  });
});

async function open(shop: string): Promise<string> {
  const database = await ownDatabase();
  if (shop === "demo") {
    return `${(await startDemo("examples/demo/koa.ts", database)).url}/form?fresh`;
  }
  const example = runExample(`examples/${shop}/shop.ts`, { env: { PORT: "0", ...database } });
  const [, url = ""] = await example.prints(/(http:\/\/127\.0\.0\.1:\d+)\n/);
  return url;
}

describe.each([
  ["with", true],
  ["without", false],
])("the form of a shop, %s JavaScript", (_with, javaScriptEnabled) => {
  let browser: Awaited<ReturnType<typeof startChromium>>;
  beforeAll(async () => {
    browser = await startChromium({ javaScriptEnabled, reportsRequests: true });
  });
  afterAll(() => browser?.close());

  const shops = ["express", "koa", "fastify", "hono", "demo"];
  test.each(shops)("that is clicked twice on %s is one order, and back shows it", async (shop) => {
    const page = await browser.context.newPage();
    let sent = 0;
    page.on("request", (request) => {
      if (request.method() === "POST") sent += 1;
    });
    await page.goto(await open(shop));
    if (javaScriptEnabled) expect(await objections(page)).toEqual([]);
    const press = await mouseOn(page);
    await press();
    await untilShown(() => sent === 1, { what: "the order" });
    // As slow as a hand: of two clicks within a few milliseconds Chromium sends one request.
    await page.waitForTimeout(100);
    await press();
    await shows(page, /\/orders\/\d+$/);
    await page.waitForSelector("text=is placed");
    const order = page.url();
    if (javaScriptEnabled) expect(sent).toBe(1);

    await page.goBack();
    await page.click("button");
    await page.waitForURL(order);
    if (javaScriptEnabled) expect(sent).toBe(2);
    await page.close();
  });
});
