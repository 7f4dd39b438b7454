import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startChromium } from "./chromium.ts";
import { type RunningDemo, startDemo } from "./demo.ts";

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
    await page.dblclick("text=Place order");
    await page.waitForURL(/\/orders\/\d+$/);
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

describe("the page without a Redis", () => {
  test("disables what needs one, says why, and places orders all the same", async () => {
    const demo = await startDemo("examples/express-checkout.ts", { PATH: "/nowhere" });
    const browser = await startChromium({ viewport: { width: 390, height: 800 } });
    try {
      const page = await browser.context.newPage();
      await page.goto(demo.url);
      await page.waitForSelector("html[data-ready=true]");
      expect(await page.isDisabled("#redis")).toBe(true);
      expect(await page.isDisabled("#kill")).toBe(true);
      expect(await page.textContent("#why")).toMatch(/“Redis away” and .* needs a Redis: install/);
      await page.dblclick("#order");
      await page.waitForFunction(
        '/1 order and 1 charge/.test(document.querySelector("#summary").textContent)',
      );
      // A phone: nothing is wider than the screen.
      expect(await page.evaluate("document.documentElement.scrollWidth")).toBeLessThanOrEqual(390);
    } finally {
      await browser.close();
      expect(await demo.end(), demo.output()).toBe(0);
    }
  }, 180_000);
});
