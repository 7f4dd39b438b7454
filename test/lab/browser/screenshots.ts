import { mkdirSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { BrowserContext, Page } from "playwright-core";
import { startChromium, startDemo } from "./chromium.ts";

/** `npm run lab -- screenshots`: the page, and the three ends of two clicks, each in light, dark and on a phone. */
const folder = fileURLToPath(new URL("../../../docs/evidence/", import.meta.url));
mkdirSync(folder, { recursive: true });
const demo = await startDemo("examples/demo/express.ts");
try {
  for (const [name, colorScheme, width, height] of [
    ["light", "light", 1_000, 900],
    ["dark", "dark", 1_000, 900],
    ["phone", "light", 390, 844],
  ] as const) {
    const browser = await startChromium({ colorScheme, viewport: { width, height } });
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
      if (name === "light" && ends.length === 0) {
        write("page-whole", await page.screenshot({ fullPage: true }));
      }
      ends.push(await (name === "phone" ? page.screenshot() : shotOfResult(page)));
    }
    write(`page-${name}`, await sideBySide(browser.context, ends, name === "phone"));
    await browser.close();
  }
} finally {
  await demo.end();
}

function write(name: string, picture: Buffer): void {
  writeFileSync(`${folder}${name}.png`, picture);
  console.log(`Written: ${folder}${name}.png`);
}

async function shotOfResult(page: Page): Promise<Buffer> {
  return await page.locator("#result").screenshot();
}

/** One picture of three, in a row or one below the other. */
async function sideBySide(context: BrowserContext, pictures: Buffer[], isRow: boolean) {
  const page = await context.newPage();
  await page.setViewportSize({ width: isRow ? 3 * 390 + 32 : 992, height: 600 });
  const images = pictures.map(
    (each) => `<img src="data:image/png;base64,${each.toString("base64")}">`,
  );
  await page.setContent(
    `<meta name="color-scheme" content="light dark"><style>
      body { margin: 0; display: flex; gap: 16px; flex-direction: ${isRow ? "row" : "column"};
        align-items: flex-start; background: light-dark(#f4f5f8, #12151c); padding: ${isRow ? 0 : 16}px; }
    </style>${images.join("")}`,
  );
  await page.waitForFunction("[...document.images].every((image) => image.complete)");
  return await page.screenshot({ fullPage: true });
}
