import type { BrowserContext } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { runExample } from "../../docs/examples/run-example.ts";
import { endAll } from "../../support/child.ts";
import { until } from "../../support/until.ts";
import { startChromium, startDemo } from "./chromium.ts";
import { objections } from "./visitor.ts";

let browser: { context: BrowserContext; close(): Promise<void> };
beforeAll(async () => {
  browser = await startChromium();
}, 180_000);
afterAll(() => browser?.close());
afterAll(endAll);

async function open(shop: string): Promise<string> {
  if (shop === "demo") return `${(await startDemo("examples/demo/koa.ts")).url}/form?fresh`;
  const example = runExample(`examples/${shop}/shop.ts`, { env: { PORT: "0" } });
  const [, url = ""] = await example.prints(/(http:\/\/127\.0\.0\.1:\d+)\n/);
  return url;
}

const shops = ["express", "koa", "fastify", "hono", "demo"];
test.each(shops)(
  "two clicks on the form of %s are sent once, and back shows the order",
  async (shop) => {
    const page = await browser.context.newPage();
    let sent = 0;
    page.on("request", (request) => {
      if (request.method() === "POST") sent += 1;
    });
    await page.goto(await open(shop));
    expect(await objections(page)).toEqual([]);
    const { x, y } = (await page.locator("button").boundingBox()) as { x: number; y: number };
    // A click on a selector would wait for the navigation.
    await page.mouse.click(x + 5, y + 5);
    await until(() => sent === 1, { what: "the order" });
    await page.mouse.click(x + 5, y + 5);
    await page.waitForURL(/\/orders\/\d+$/);
    const order = page.url();
    expect(sent).toBe(1);

    await page.goBack();
    await page.click("button");
    await page.waitForURL(order);
    expect(sent).toBe(2);
    await page.close();
  },
);
