import { mkdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Page } from "playwright-core";
import { startChromium } from "./chromium.ts";
import { startDemo } from "./demo.ts";

/** `npm run lab -- screenshots`: the page in the middle of an order, in light and dark, and on a phone. */
const folder = fileURLToPath(new URL("../../../docs/evidence/", import.meta.url));
mkdirSync(folder, { recursive: true });
const demo = await startDemo("examples/express-checkout.ts");
try {
  for (const [name, colorScheme, width] of [
    ["light", "light", 1_000],
    ["dark", "dark", 1_000],
    ["phone", "light", 390],
  ] as const) {
    const viewport = { width, height: 900 };
    const browser = await startChromium({ colorScheme, viewport });
    const page = await browser.context.newPage();
    await page.goto(demo.url);
    await page.waitForSelector("html[data-ready=true]");
    await clickTwice(page, "nothing");
    await page.waitForFunction(summaryHas("2 orders and 2 charges"));
    await clickTwice(page, "once");
    await page.waitForFunction(summaryHas("1 order and 1 charge"));
    // With the lock alone, in the middle: the lock is shown, and the first click is under way.
    await page.click("#slow");
    await clickTwice(page, "lock");
    await page.waitForFunction(
      '/409/.test(document.querySelector("#submits").textContent) && /held/.test(document.querySelector("#lock").textContent)',
    );
    await page.waitForTimeout(1_500);
    const path = `${folder}page-${name}.png`;
    await page.screenshot({ path, fullPage: true });
    console.log(`Written: ${path}`);
    await page.waitForFunction(summaryHas("1 order and 1 charge"));
    await page.click("#slow");
    await page.waitForSelector("#slow[aria-pressed=false]");
    await browser.close();
  }
} finally {
  await demo.end();
}

async function clickTwice(page: Page, protection: string): Promise<void> {
  await page.check(`[value=${protection}]`);
  await page.click("#double");
  // The button begins with a new cart.
  await page.waitForFunction('document.querySelectorAll("#submits li").length === 2');
}

function summaryHas(text: string): string {
  return `document.querySelector("#summary").textContent.includes(${JSON.stringify(text)})`;
}
