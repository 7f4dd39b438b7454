import { mkdirSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Page } from "playwright-core";
import { startChromium, startDemo } from "./chromium.ts";

/**
 * `npm run lab -- screenshots`: the three outcomes of two clicks at a glance, in light and in dark, for
 * the README. The bars and the answers are those of the demo, as it has run.
 */
const folder = fileURLToPath(new URL("../../../docs/evidence/", import.meta.url));
/** The README shows it as wide as this. */
const width = 920;

interface Outcome {
  readonly title: string;
  /** Such as `2 orders and 2 charges`. */
  readonly verdict: string;
  readonly rows: readonly {
    readonly tone: string;
    readonly isAgain: boolean;
    /** Of the bar, in percent of the axis. */
    readonly left: string;
    readonly width: string;
    /** Such as `201, 974 ms`. */
    readonly answer: string;
  }[];
}

const plays = [
  { button: "double", end: "2 orders and 2 charges", title: "Without a lock" },
  { button: "next", end: "saw a refusal", title: "With the lock" },
  { button: "next", end: "every answer shows the order", title: "With the lock and “once”" },
];

mkdirSync(folder, { recursive: true });
const demo = await startDemo("examples/demo/express.ts");
const viewport = { width, height: 600 };
try {
  let outcomes: Outcome[] | undefined;
  for (const colorScheme of ["light", "dark"] as const) {
    const browser = await startChromium({ colorScheme, viewport, deviceScaleFactor: 2 });
    const page = await browser.context.newPage();
    outcomes ??= await play(page);
    await page.setContent(picture(outcomes));
    const file = `${folder}outcomes-${colorScheme}.png`;
    const main = page.locator("main");
    writeFileSync(file, await main.screenshot());
    const { height = 0 } = (await main.boundingBox()) ?? {};
    console.log(`Written: ${file}, ${width} x ${height}`);
    if (height > 600) throw new Error("the README would show it higher than 600 pixels");
    await browser.close();
  }
} finally {
  await demo.end();
}

async function play(page: Page): Promise<Outcome[]> {
  const outcomes: Outcome[] = [];
  await page.goto(demo.url);
  await page.waitForSelector("html[data-ready=true]");
  for (const { button, end, title } of plays) {
    await page.click(`#${button}`);
    await page.waitForFunction(`document.querySelector("#summary").textContent.includes("${end}")`);
    const found = (await page.evaluate(`({
      verdict: document.querySelector("#verdict").textContent,
      rows: [...document.querySelectorAll("#submits li")].map((li) => ({
        tone: li.className,
        isAgain: li.querySelector(".bar").classList.contains("again"),
        left: li.querySelector(".bar").style.left,
        width: li.querySelector(".bar").style.width,
        answer: li.querySelector("small").textContent,
      })),
    })`)) as Omit<Outcome, "title">;
    outcomes.push({ ...found, title });
  }
  return outcomes;
}

function wordsOf({ isAgain, tone }: Outcome["rows"][number]): string {
  if (isAgain) return "the same answer";
  if (/bad/.test(tone)) return "a second order";
  return /wait/.test(tone) ? "refused" : "order placed";
}

function picture(outcomes: readonly Outcome[]): string {
  const cards = outcomes.map(({ rows, title, verdict }) => {
    const bars = rows.map((row, i) => {
      const tone = /bad|wait/.exec(row.tone)?.[0] ?? "good";
      return `<div class="${tone}"><p><span>click ${i + 1}</span> <b>${wordsOf(row)}</b></p>
        <div class="track"><i class="${row.isAgain ? "again" : ""}"
          style="left: ${row.left}; width: max(${row.width}, 6px)"></i></div>
        <small>${row.answer}</small></div>`;
    });
    const isBad = /Not as/.test(verdict);
    const counted = /\d.*?charges?/.exec(verdict)?.[0].replace(" and", ",");
    return `<section><h2>${title}</h2>
      <h3 class="${isBad ? "bad" : "good"}">${counted}</h3>${bars.join("")}</section>`;
  });
  return `<!doctype html><meta name="color-scheme" content="light dark"><style>
    body { margin: 0; background: light-dark(#fff, #0d1117); color: light-dark(#1f2430, #e6e8ee);
      font: 15px/1.4 system-ui, sans-serif; }
    main { width: ${width}px; display: grid; grid-template-columns: repeat(3, 1fr); gap: 14px; }
    section { border: 1px solid light-dark(#dfe3ea, #333a48); border-radius: 8px; padding: 16px 18px;
      background: light-dark(#fff, #161b24); }
    h2 { margin: 0; font-size: 15px; font-weight: 600; }
    h3 { margin: 2px 0 14px; font-size: 21px; color: var(--tone); }
    p { margin: 12px 0 4px; display: flex; gap: 8px; justify-content: space-between; }
    span, small { color: light-dark(#5a6375, #9aa3b5); }
    b { color: var(--tone); font-weight: 600; }
    small { font-size: 12.5px; }
    .good { --tone: light-dark(#1d7a46, #6bd197); }
    .wait { --tone: light-dark(#8a5a06, #e6b95c); }
    .bad { --tone: light-dark(#b3362b, #f28b80); }
    .track { position: relative; height: 12px; background: light-dark(#f0f2f6, #222834); }
    i { position: absolute; top: 0; height: 12px; border-radius: 2px; background: var(--tone); }
    i.again { background: repeating-linear-gradient(135deg, var(--tone) 0 4px, transparent 4px 8px); }
    </style><main>${cards.join("")}</main>`;
}
