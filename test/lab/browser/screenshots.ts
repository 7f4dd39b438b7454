import { mkdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { startChromium } from "./chromium.ts";
import { startDemo } from "./demo.ts";

/** `npm run screenshots`: the page after a double click with nothing, in light and dark, and on a phone. */
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
    for (const protection of ["nothing", "lock", "once"]) {
      await page.check(`[value=${protection}]`);
      await page.click("#double");
      // The button begins with a new cart; then both clicks are answered.
      await page.waitForFunction('document.querySelectorAll("#submits li").length === 2');
      await page.waitForFunction(
        '!/…/.test(document.querySelector("#submits").textContent) && /Cart/.test(document.querySelector("#summary").textContent)',
      );
      await page.waitForTimeout(700);
    }
    const path = `${folder}page-${name}.png`;
    await page.screenshot({ path, fullPage: true });
    console.log(`Written: ${path}`);
    await browser.close();
  }
} finally {
  await demo.end();
}
