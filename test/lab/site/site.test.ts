import { execFile } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { extname, join } from "node:path";
import { promisify } from "node:util";
import type { BrowserContext, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { pages, routeOf } from "../../../docs/.vitepress/pages.ts";
import { page, ROOT } from "../../docs/page.ts";
import { until } from "../../support/until.ts";
import { startChromium } from "../browser/chromium.ts";
import { objections } from "../browser/visitor.ts";

let site: Awaited<ReturnType<typeof serveSite>>;
let browser: { context: BrowserContext; close(): Promise<void> };
let reader: Page;
/** Errors of the console, failed requests, and requests to other hosts. */
const troubles: string[] = [];

beforeAll(async () => {
  await buildSite();
  site = await serveSite();
  browser = await startChromium({ colorScheme: "light" });
  reader = await browser.context.newPage();
  reader.on("pageerror", (error) => troubles.push(String(error)));
  reader.on("console", (message) => {
    if (message.type() === "error") troubles.push(`${message.text()} ${message.location().url}`);
  });
  reader.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(site.url) && !url.startsWith("data:")) troubles.push(`asks ${url}`);
  });
  reader.on("response", (response) => {
    if (response.status() >= 400) troubles.push(`${response.status()} ${response.url()}`);
  });
}, 900_000);

afterAll(async () => {
  await browser?.close();
  await site?.close();
});

/** The anchors of each page as it was built. */
const anchorsOf = new Map<string, Set<string>>();
function anchors(page: string): Set<string> {
  let found = anchorsOf.get(page);
  if (found === undefined) {
    found = new Set([...site.html(page).matchAll(/ id="([^"]+)"/g)].map(([, id]) => id as string));
    anchorsOf.set(page, found);
  }
  return found;
}

function defectOf(address: string, page: string): string | undefined {
  const { href, pathname, hash, protocol } = new URL(address, site.url + page);
  if (protocol === "data:" || (protocol === "https:" && !href.startsWith(site.url)))
    return undefined;
  const base = new URL(site.url).pathname;
  if (!href.startsWith(site.url)) return `${page}: ${address} is outside of the site`;
  const path = decodeURIComponent(pathname.slice(base.length));
  if (site.fileOf(path) === undefined) return `${page}: ${address} is dead`;
  if (hash === "") return undefined;
  const target = path === "" || path.endsWith("/") ? `${path}index.html` : path;
  const anchor = decodeURIComponent(hash.slice(1));
  return anchors(target).has(anchor) ? undefined : `${page}: ${address} has no such anchor`;
}

test("every page of the manual, of the API and of the package is built", () => {
  const routes = pages().map((file) => routeOf(file).replace(/\.md$/, ".html"));
  expect(site.pages).toEqual(routes.sort());
  expect(routes.some((route) => route.startsWith("api/"))).toBe(true);
});

test("no link, anchor or picture of any page is dead as it was built", () => {
  const defects = site.pages.flatMap((page) => {
    const attributes = site.html(page).matchAll(/<(?!link)[^>]* (?:href|src)="([^"]*)"/g);
    const addresses = [...attributes].map(([, address]) => address as string);
    expect(addresses.length).toBeGreaterThan(5);
    return addresses.map((address) => defectOf(address.replaceAll("&amp;", "&"), page));
  });
  expect(defects.filter((each) => each !== undefined)).toEqual([]);
});

test("a link to a heading shows the heading", async () => {
  await reader.goto(site.url, { waitUntil: "networkidle" });
  const link = reader.locator('main .vp-doc a[href*=".html#"]').first();
  const target = new URL((await link.getAttribute("href")) as string, site.url);
  await link.click();
  await reader.waitForURL(target.href);
  const heading = reader.locator(`[id="${target.hash.slice(1)}"]`);
  await until(() => heading.isVisible(), { what: "the heading" });
  const top = async () => (await heading.boundingBox())?.y ?? -1;
  const { height } = reader.viewportSize() as { height: number };
  await until(async () => (await top()) >= 0 && (await top()) < height, { what: "to be there" });
});

/** What a developer types, with the page that has to be among the first five. */
const searches = [
  ["double click", "guide/once"],
  ["double order", "guide/once"],
  ["guest", "guide/once"],
  ["retry", "guide/agents"],
  ["agent", "guide/agents"],
  ["mobile app", "guide/browser"],
  ["test", "guide/testing"],
  ["logging", "operations/observing"],
  ["webhook", "guide/any-function"],
  ["serverless", "guide/fetch"],
  ["queue", "guide/any-function"],
  ["GraphQL", "guide/once"],
  ["Redis down", "operations/redis"],
  ["NestJS", "guide/express"],
  ["ECONNRESET", "operations/redis"],
  ["NOPERM", "operations/redis"],
  ["SUBMIT_UNANSWERED", "reference/responses"],
] as const;

const codes = page("docs/reference/responses.md").prose.match(
  /^\|.*?`(SUBMIT_LOCK_[A-Z_]+|(submit|idempotency)_[a-z_]+)`/gm,
);
const options = ["`new SubmitLock`", "`submitGuard`", "Stores"].flatMap((heading) =>
  page("docs/reference/options.md").tableUnder(heading),
);
const lookedUp = [
  ...(codes ?? []).map((row) => [/`(\w+)`$/.exec(row)?.[1] ?? "", "reference/responses"] as const),
  ...options.map(([name = ""]) => [name.replaceAll("`", ""), "reference/options"] as const),
  ...page("docs/reference/idempotency.md")
    .tableUnder("Options of `idempotency`")
    .map(([name = ""]) => [name.replaceAll("`", ""), "reference/idempotency"] as const),
];

test("the search finds what developers type, each code and each option", async () => {
  expect(lookedUp.length).toBeGreaterThan(50);
  await reader.goto(site.url, { waitUntil: "networkidle" });
  await reader.keyboard.press("/");
  const missed: string[] = [];
  for (const [words, wanted] of [...searches, ...lookedUp]) {
    await reader.fill("#localsearch-input", words);
    const hits = reader.locator("#localsearch-list a.result");
    const firstFive = async () => {
      const all = await hits.evaluateAll((links) => links.map((link) => link.getAttribute("href")));
      return all.slice(0, 5).join(" ");
    };
    const isFound = async () => (await firstFive()).includes(`/${wanted}.html`);
    await until(isFound, { what: words, boundMs: 10_000 }).catch(async () => {
      missed.push(`${words}: ${await firstFive()}`);
    });
  }
  expect(missed).toEqual([]);
}, 900_000);

test("the switch changes the colours and the pictures, and the next visit keeps them", async () => {
  await reader.goto(site.url, { waitUntil: "networkidle" });
  const shown = (scheme: string) => reader.isVisible(`main img.only-${scheme}`);
  const ground = () => reader.evaluate("getComputedStyle(document.body).backgroundColor");
  expect([await shown("light"), await shown("dark")]).toEqual([true, false]);
  const chart = reader.locator('main img[src*="incident"]');
  const [light, lightChart] = [await ground(), await chart.screenshot()];
  await reader.click(".VPNavBarAppearance button");
  await until(() => shown("dark"), { what: "the dark picture" });
  expect(await shown("light")).toBe(false);
  await reader.reload({ waitUntil: "networkidle" });
  expect([await shown("light"), await shown("dark")]).toEqual([false, true]);
  expect(await ground()).not.toBe(light);
  expect((await chart.screenshot()).equals(lightChart)).toBe(false);
  await reader.click(".VPNavBarAppearance button");
});

test("every page is shown with its pictures, and none is wider than a phone", async () => {
  await reader.setViewportSize({ width: 390, height: 844 });
  const defects: string[] = [];
  for (const page of site.pages) {
    await reader.goto(site.url + page);
    const loaded = "[...document.images].every((image) => image.complete)";
    await until(() => reader.evaluate<boolean>(loaded), { what: `the pictures of ${page}` });
    const broken = await reader.evaluate<string[]>(
      "[...document.images].filter((image) => image.naturalWidth === 0).map((image) => image.src)",
    );
    defects.push(...broken.map((source) => `${page}: the picture ${source} is broken`));
    const width = await reader.evaluate<number>("document.documentElement.scrollWidth");
    if (width > 390 && !page.startsWith("api/")) defects.push(`${page}: ${width} px wide`);
  }
  expect(defects).toEqual([]);
}, 900_000);

test.each([390, 800, 1_280, 1_500, 1_560, 1_920])(
  "at %i px the sidebar has its width, and the switch its room",
  async (width) => {
    await reader.setViewportSize({ width, height: 900 });
    await reader.goto(site.url, { waitUntil: "networkidle" });
    const boxOf = async (selector: string) => await reader.locator(selector).boundingBox();
    // Narrower, it is a drawer, and the switch is in the menu.
    if (width >= 960) expect((await boxOf(".VPSidebar"))?.width).toBeGreaterThanOrEqual(250);
    if (width >= 1_280) {
      const { x = width, width: own = 0 } = (await boxOf(".VPNavBarAppearance button")) ?? {};
      expect(x + own).toBeLessThanOrEqual(width - 16);
    }
    expect(await reader.evaluate("document.documentElement.scrollWidth")).toBe(width);
  },
);

test("a phone has the sidebar in a drawer, whose entries lead to their pages", async () => {
  await reader.setViewportSize({ width: 390, height: 844 });
  await reader.goto(site.url, { waitUntil: "networkidle" });
  await reader.click(".VPLocalNav .menu");
  await until(() => reader.isVisible(".VPSidebar.open"), { what: "the drawer" });
  const entry = reader.locator(".VPSidebar a.link").nth(1);
  const url = new URL((await entry.getAttribute("href")) as string, site.url).href;
  await entry.click();
  await reader.waitForURL(url);
  expect(await reader.isVisible(".vp-doc h1")).toBe(true);
});

test("axe objects to no page, in light and in dark", async () => {
  await reader.setViewportSize({ width: 1_280, height: 800 });
  const found: string[] = [];
  // The pages of the API are all of one make.
  for (const page of site.pages.filter((each) => !/^api\/.*\//.test(each))) {
    await reader.goto(site.url + page, { waitUntil: "networkidle" });
    for (const colorScheme of ["light", "dark"] as const) {
      await reader.emulateMedia({ colorScheme });
      found.push(...(await objections(reader)).map((each) => `${page}, ${colorScheme}: ${each}`));
    }
  }
  expect(found).toEqual([]);
}, 900_000);

test("its console tells of no error, and nothing is asked of another host", () => {
  expect(troubles).toEqual([]);
});

const FOLDER = join(ROOT, "docs/.vitepress/dist");
const TYPES: Record<string, string> = {
  ".css": "text/css",
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".json": "application/json",
  ".png": "image/png",
  ".svg": "image/svg+xml",
};

/** Where a forge publishes the site: below the name of the repository. */
const BASE = process.env["SITE_BASE"] ?? "/submit-lock/";

/** Builds the site as a contributor does. The generator takes `NODE_ENV` for its own. */
async function buildSite(): Promise<void> {
  const { NODE_ENV: _n, ...env } = process.env;
  const options = { cwd: ROOT, env: { ...env, SITE_BASE: BASE }, maxBuffer: 16 * 1_048_576 };
  await promisify(execFile)("npm", ["run", "docs:site"], options);
}

/** A plain server of files. The site needs no more than that. */
async function serveSite() {
  const fileOf = (path: string) => {
    const file = join(FOLDER, path.endsWith("/") || path === "" ? `${path}index.html` : path);
    return existsSync(file) && statSync(file).isFile() ? file : undefined;
  };
  const server = createServer((req, res) => {
    const path = decodeURIComponent(new URL(req.url as string, "http://site").pathname);
    const file = path.startsWith(BASE) ? fileOf(path.slice(BASE.length)) : undefined;
    if (file === undefined) {
      res.writeHead(404).end();
      return;
    }
    const type = TYPES[extname(file)] ?? "text/plain; charset=utf-8";
    res.writeHead(200, { "content-type": type }).end(readFileSync(file));
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return {
    /** Ends with a slash. */
    url: `http://127.0.0.1:${port}${BASE}`,
    /** The path of every page, without the base: `guide/once.html`. */
    pages: readdirSync(FOLDER, { recursive: true, encoding: "utf8" })
      .map((file) => file.replaceAll("\\", "/"))
      .filter((file) => file.endsWith(".html") && file !== "404.html")
      .sort(),
    /** The HTML of a page as it was built. */
    html: (page: string) => readFileSync(join(FOLDER, page), "utf8"),
    /** The file that a path leads to, without the base, or `undefined`. */
    fileOf,
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}
