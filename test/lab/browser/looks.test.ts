import type { BrowserContext, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { codeOf, problemFor, type RefusalReason } from "../../../src/problem.ts";
import { ownDatabase } from "../../docs/examples/own-database.ts";
import { type RunningDemo, startChromium, startDemo } from "./chromium.ts";
import { untilShown } from "./shown.ts";
import { objections, Visitor } from "./visitor.ts";

let demo: RunningDemo;
beforeAll(async () => {
  demo = await startDemo("examples/demo/express.ts", await ownDatabase());
});
afterAll(async () => {
  expect(await demo?.end(), demo?.output()).toBe(0);
});

describe.each([
  ["light", 1_000, 900],
  ["dark", 390, 844],
] as const)("%s, %i px wide", (colorScheme, width, height) => {
  let browser: { context: BrowserContext; close(): Promise<void> };
  let page: Page;

  beforeAll(async () => {
    browser = await startChromium({ colorScheme, viewport: { width, height } });
    page = await browser.context.newPage();
  });
  afterAll(() => browser?.close());

  /** As a program, which a form of another site cannot be. */
  const tell = (path: string, body: object) =>
    fetch(`${demo.url}${path}`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: "Bearer token-of-ada" },
      body: JSON.stringify(body),
    });

  test("axe objects to nothing, in any end, and the end is in view after a tap", async () => {
    const visitor = await Visitor.at(browser.context, demo.url);
    expect(await objections(visitor.page)).toEqual([]);
    const isInView = (id: string) =>
      visitor.page.evaluate(`(() => {
        const { top, bottom } = document.getElementById(${JSON.stringify(id)}).getBoundingClientRect();
        return top >= 0 && bottom <= innerHeight;
      })()`) as Promise<boolean>;
    const end = async (pattern: RegExp, shown: string) => {
      await visitor.summary(pattern);
      await untilShown(() => isInView("verdict"), { what: "the verdict in view", everyMs: 50 });
      await untilShown(() => isInView(shown), { what: `${shown} in view`, everyMs: 50 });
      expect(await objections(visitor.page)).toEqual([]);
      return (await visitor.page.evaluate(
        'getComputedStyle(document.getElementById("verdict")).color.match(/\\d+/g).map(Number)',
      )) as [number, number, number];
    };
    const double = () => visitor.press("double");
    const next = () => visitor.press("next");
    await visitor.twoClicks(double);
    const [badRed, badGreen] = await end(/Not as it should be: 2 orders and 2 charges/, "next");
    expect(badRed).toBeGreaterThan(badGreen);
    await visitor.twoClicks(next, { others: double });
    const [red, green] = await end(/As it should be.* saw a refusal/s, "next");
    expect(green).toBeGreaterThan(red);
    await next();
    await end(/As it should be.* every answer shows/s, "submits");

    // Both taps of an impatient finger hit the button, before the page moves.
    await visitor.freshCart();
    await visitor.page.dblclick("#order", { delay: 100 });
    expect(await visitor.answers(2)).toHaveLength(2);
    await end(/As it should be.* every answer shows/s, "submits");
    const isTooWide = "document.documentElement.scrollWidth > innerWidth";
    expect(await visitor.page.evaluate(isTooWide)).toBe(false);
    expect(visitor.errors).toEqual([]);
    await visitor.page.close();
  });

  test("axe objects to no page of the form, and its refusals look like the shop", async () => {
    const back = () => page.evaluate("getComputedStyle(document.body).backgroundColor");
    const order = async () => {
      const [response] = await Promise.all([
        page.waitForResponse((each) => each.request().method() === "POST"),
        page.click("text=Place order"),
      ]);
      await page.waitForLoadState();
      expect(await objections(page)).toEqual([]);
      return [response.status(), await page.textContent("h1")];
    };
    await page.goto(`${demo.url}/form?fresh&protection=lock`);
    expect(await objections(page)).toEqual([]);
    const shop = await back();

    await tell("/demo/latency", { latencyMs: 8_000 });
    const first = tell("/lock/orders", {});
    await untilShown(
      async () => {
        const state = await (await fetch(`${demo.url}/demo/state?user=ada`)).json();
        return (state as { lock: { state: string } }).lock.state === "held";
      },
      { what: "the first order's lock" },
    );
    expect(await order()).toEqual([409, "You already have an order in progress"]);
    expect(await back()).toBe(shop);
    await page.click("a:text-is('Your orders')");
    await page.waitForSelector("h1:text-is('Your orders')");
    expect(await objections(page)).toEqual([]);
    await tell("/demo/latency", { latencyMs: 800 });
    expect((await first).status).toBe(201);

    await page.goto(`${demo.url}/form?fresh&protection=nothing`);
    expect(await order()).toEqual([303, expect.stringMatching(/^Order \d+ is placed$/)]);
    await page.goBack();
    expect(await order()).toEqual([422, "Your cart is empty"]);
    expect(await back()).toBe(shop);

    await page.goto(`${demo.url}/form?fresh`);
    await browser.context.clearCookies();
    expect(await order()).toEqual([401, "You are not signed in"]);
    expect(await back()).toBe(shop);

    await page.goto(`${demo.url}/form?fresh`);
    await tell("/demo/redis", { away: true });
    expect(await order()).toEqual([503, "We cannot place your order now"]);
    expect(await back()).toBe(shop);
    await tell("/demo/redis", { away: false });
    const isBack = async () => (await tell("/lock/orders", {})).status !== 503;
    await untilShown(isBack, { what: "Redis", everyMs: 200 });
  });

  test("axe objects to no page that a guard has of its own", async () => {
    const contended = { reason: "contended", expiresInMs: 5_000 } as const;
    const refusals = [
      { reason: "anonymous" },
      { reason: "unavailable" },
      { reason: "key-missing" },
      { ...contended, sameSubmission: false, answerUnavailable: false, isCooldown: false },
      { ...contended, sameSubmission: true, answerUnavailable: false, isCooldown: false },
      { ...contended, sameSubmission: true, answerUnavailable: true, isCooldown: false },
    ] as unknown as RefusalReason[];
    for (const refusal of refusals) {
      const audience = { docs: undefined, isDerived: true, prefersPage: true };
      await page.setContent(problemFor(codeOf(refusal), refusal, audience).body);
      expect(await objections(page)).toEqual([]);
      const scheme = await page.evaluate(
        'matchMedia("(prefers-color-scheme: dark)").matches === getComputedStyle(document.body).color.startsWith("rgb(255")',
      );
      expect(scheme, "text is light on dark, and dark on light").toBe(true);
    }
  });
});
