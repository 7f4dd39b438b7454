import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Page } from "playwright-core";
import { startChromium, startDemo } from "./chromium.ts";

/**
 * `npm run lab -- screenshots`: the three outcomes of two clicks at a glance, in light and in dark, for
 * the README. The bars and the answers are those of the demo, as it has run in Chromium.
 */
const light = {
  ...{ ink: "#1f2430", soft: "#5a6375", line: "#dfe3ea", card: "#ffffff", track: "#f0f2f6" },
  ...{ good: "#1d7a46", wait: "#8a5a06", bad: "#b3362b" },
};
const dark: typeof light = {
  ...{ ink: "#e6e8ee", soft: "#9aa3b5", line: "#333a48", card: "#161b24", track: "#222834" },
  ...{ good: "#6bd197", wait: "#e6b95c", bad: "#f28b80" },
};

/** The classes of what is filled, and of the cards' edges. */
const styleOf = (colours: typeof light) =>
  Object.entries(colours)
    .map(([name, colour]) => `.${name} { ${name === "line" ? "stroke" : "fill"}: ${colour}; }`)
    .join("\n");

interface Row {
  readonly tone: "good" | "wait" | "bad";
  /** It got the answer of another click. */
  readonly isAgain: boolean;
  /** Of the bar, in percent of the axis. */
  readonly left: number;
  readonly width: number;
  /** Such as `201, 974 ms`. */
  readonly answer: string;
}

interface Outcome {
  readonly title: string;
  /** Such as `2 orders and 2 charges`. */
  readonly verdict: string;
  readonly rows: readonly Row[];
}

/** In pixels: the README shows the picture as wide as this, and 600 high at most. */
const [width, height, card, gap, margin] = [920, 226, 297, 14, 18] as const;

const plays = [
  { button: "double", end: "2 orders and 2 charges", title: "Without a lock" },
  { button: "next", end: "saw a refusal", title: "With the lock" },
  { button: "next", end: "every answer shows the order", title: "With the lock and “once”" },
];

const demo = await startDemo("examples/demo/express.ts");
try {
  const browser = await startChromium();
  const outcomes = await play(await browser.context.newPage());
  await browser.close();
  for (const [scheme, colours] of Object.entries({ light, dark })) {
    const written = new URL(`../../../docs/evidence/outcomes-${scheme}.svg`, import.meta.url);
    const file = fileURLToPath(written);
    writeFileSync(file, picture(outcomes, colours));
    console.log(`Written: ${file}`);
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
        tone: /bad|wait/.exec(li.className)?.[0] ?? "good",
        isAgain: li.querySelector(".bar").classList.contains("again"),
        left: parseFloat(li.querySelector(".bar").style.left),
        width: parseFloat(li.querySelector(".bar").style.width),
        answer: li.querySelector("small").textContent,
      })),
    })`)) as Omit<Outcome, "title">;
    outcomes.push({ ...found, title });
  }
  return outcomes;
}

function wordsOf({ isAgain, tone }: Row): string {
  if (isAgain) return "the same answer";
  return { bad: "a second order", wait: "refused", good: "order placed" }[tone];
}

function picture(outcomes: readonly Outcome[], colours: typeof light): string {
  const inner = card - 2 * margin;
  const text = (x: number, y: number, kind: string, more: string, said: string) =>
    `<text x="${x}" y="${y}" class="${kind}" ${more}>${said}</text>`;
  const bar = (y: number, kind: string, left: number, wide: number) =>
    `<rect x="${(margin + left).toFixed(1)}" y="${y}" width="${wide.toFixed(1)}" height="12" rx="2" class="${kind}"/>`;
  const cards = outcomes.map(({ rows, title, verdict }, i) => {
    const counted = /\d.*?charges?/.exec(verdict)?.[0].replace(" and", ",") ?? verdict;
    const lines = rows.map((row, n) => {
      const y = 98 + 66 * n;
      const wide = Math.max((row.width / 100) * inner, 6);
      return [
        text(margin, y, "soft", "", `click ${n + 1}`),
        text(card - margin, y, row.tone, 'text-anchor="end" font-weight="600"', wordsOf(row)),
        bar(y + 8, "track", 0, inner),
        bar(y + 8, row.isAgain ? "again" : row.tone, (row.left / 100) * inner, wide),
        text(margin, y + 36, "soft", 'font-size="12.5"', row.answer),
      ].join("\n");
    });
    const tone = verdict.startsWith("Not") ? "bad" : "good";
    return `<g transform="translate(${i * (card + gap) + 0.5} 0.5)">
<rect width="${card}" height="${height - 1}" rx="8" class="card line"/>
${text(margin, 31, "ink", 'font-weight="600"', title)}
${text(margin, 61, tone, 'font-size="21" font-weight="700"', counted)}
${lines.join("\n")}
</g>`;
  });
  const said = outcomes.map(({ title, verdict }) => `${title}: ${verdict}`).join(" ");
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img" aria-label="${said}" font-family="system-ui, sans-serif" font-size="15">
<style>
${styleOf(colours)}
.again { fill: url(#again); }
</style>
<defs><pattern id="again" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="4" height="8" class="good"/></pattern></defs>
${cards.join("\n")}
</svg>
`;
}
