import { mkdirSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { BrowserContext } from "playwright-core";
import { startChromium, startDemo } from "./chromium.ts";

/** `npm run lab -- screenshots`: the three ends of two clicks, in light and in dark, for the README. */
const folder = fileURLToPath(new URL("../../../docs/evidence/", import.meta.url));
mkdirSync(folder, { recursive: true });
const demo = await startDemo("examples/demo/express.ts");
try {
  for (const colorScheme of ["light", "dark"] as const) {
    const browser = await startChromium({ colorScheme, viewport: { width: 1_000, height: 900 } });
    const page = await browser.context.newPage();
    await page.goto(demo.url);
    await page.waitForSelector("html[data-ready=true]");
    const ends: Buffer[] = [];
    for (const [button, end] of [
      ["double", "2 orders and 2 charges"],
      ["next", "saw a refusal"],
      ["next", "every answer shows the order"],
    ] as const) {
      await page.click(`#${button}`);
      const what = `document.querySelector("#summary").textContent.includes("${end}")`;
      await page.waitForFunction(what);
      // Until the page has moved to the end, and the tables have been drawn.
      await page.waitForTimeout(1_500);
      await page.mouse.move(0, 0);
      ends.push(await page.locator("#result").screenshot());
    }
    write(`page-${colorScheme}`, await oneBelowTheOther(browser.context, ends));
    await browser.close();
  }
} finally {
  await demo.end();
}

function write(name: string, picture: Buffer): void {
  writeFileSync(`${folder}${name}.png`, picture);
  console.log(`Written: ${folder}${name}.png`);
}

async function oneBelowTheOther(context: BrowserContext, pictures: Buffer[]) {
  const page = await context.newPage();
  await page.setViewportSize({ width: 992, height: 600 });
  const images = pictures.map(
    (each) => `<img src="data:image/png;base64,${each.toString("base64")}">`,
  );
  await page.setContent(
    `<meta name="color-scheme" content="light dark"><style>
      body { margin: 0; display: flex; gap: 16px; flex-direction: column;
        align-items: flex-start; background: light-dark(#f4f5f8, #12151c); padding: 16px; }
    </style>${images.join("")}`,
  );
  await page.waitForFunction("[...document.images].every((image) => image.complete)");
  return await page.screenshot({ fullPage: true });
}
