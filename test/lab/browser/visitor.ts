import axe from "axe-core";
import type { BrowserContext, Page } from "playwright-core";
import { expect } from "vitest";
import { untilShown } from "./shown.ts";

/** Where an answer of the page is an error that the page is about. */
const expected =
  /status of (409|422|5\d\d)|ERR_(EMPTY_RESPONSE|CONNECTION_RESET|FAILED|INCOMPLETE)/;

/** What axe objects to, by its rule, with the elements. */
export async function objections(page: Page): Promise<string[]> {
  await page.addScriptTag({ content: axe.source });
  const { violations } = (await page.evaluate("axe.run()")) as axe.AxeResults;
  return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(" ")}`);
}

/** Clicks on the button by the mouse alone: a click on a selector would wait for the navigation. */
export async function mouseOn(page: Page): Promise<() => Promise<void>> {
  const { x, y } = (await page.locator("button").boundingBox()) as { x: number; y: number };
  return () => page.mouse.click(x + 5, y + 5);
}

/** Somebody at the page, who notices every error of its console. */
export class Visitor {
  readonly page: Page;
  readonly errors: string[] = [];

  private constructor(page: Page) {
    this.page = page;
  }

  static async at(context: BrowserContext, url: string): Promise<Visitor> {
    const visitor = new Visitor(await context.newPage());
    visitor.listenTo(visitor.page);
    await visitor.page.goto(url);
    await visitor.ready();
    return visitor;
  }

  listenTo(page: Page): void {
    page.on("pageerror", (error) => this.errors.push(String(error)));
    page.on("console", (message) => {
      if (message.type() === "error" && !expected.test(message.text())) {
        this.errors.push(`${message.text()} ${message.location().url}`);
      }
    });
  }

  async ready(): Promise<void> {
    await this.page.waitForSelector("html[data-ready=true]");
  }

  async protectWith(protection: "nothing" | "lock" | "once"): Promise<void> {
    const choice = `[value=${protection}]`;
    if (await this.page.isChecked(choice)) return await this.freshCart();
    // The page makes a new cart by itself. Another one would follow while the first is ordered.
    const before = await this.cart();
    await this.page.check(choice);
    await untilShown(async () => (await this.cart()) > before, { what: "a new cart" });
  }

  async freshCart(): Promise<void> {
    const before = await this.cart();
    await this.page.click("#refill");
    await untilShown(async () => (await this.cart()) > before, { what: "a new cart" });
  }

  /** The number of the cart that is shown. */
  async cart(): Promise<number> {
    return Number(/Cart (\d+)/.exec((await this.page.textContent("#cart")) ?? "")?.[1] ?? 0);
  }

  press(id: string): Promise<void> {
    return this.page.click(`#${id}`);
  }

  /** The answers on the time axis, once there are so many and none is awaited any more. */
  async answers(count: number): Promise<string[]> {
    const read = async () => {
      const all = await this.page.locator("#submits .answer").allTextContents();
      return all.map((text) => text.replace(/,? \d+ ms$/, ""));
    };
    const isThere = async () => {
      const all = await read();
      return all.length >= count && !all.some((text) => text.endsWith("…"));
    };
    await untilShown(isThere, { what: `${count} answers`, everyMs: 50 });
    return await read();
  }

  /**
   * What two clicks are answered. On a busy machine one comes too late now and then, as its answer says:
   * two others are made then, on another cart.
   *
   * @param late the end of such an answer; by default that of a click behind the first one's order
   */
  async twoClicks(
    make: () => Promise<void>,
    { others = make, late = /422 cart_empty$/ }: { others?: typeof make; late?: RegExp } = {},
  ): Promise<string[]> {
    await make();
    for (let left = 10; ; left--) {
      const answers = await this.answers(2);
      if (left === 0 || !answers.some((answer) => late.test(answer))) return answers;
      await this.freshCart();
      await others();
    }
  }

  /** The verdicts that the page tells from now on while it still waits for an answer. */
  async earlyVerdicts(): Promise<() => Promise<string[]>> {
    await this.page.evaluate(`
      globalThis.early = [];
      new MutationObserver(() => {
        const isWaiting = document.getElementById("submits").textContent.includes("…");
        const { className, textContent } = document.getElementById("verdict");
        if (isWaiting && className !== "") early.push(textContent);
      }).observe(document.getElementById("summary"), { childList: true, subtree: true });
    `);
    return () => this.page.evaluate("early");
  }

  /** The verdict and its story, which are told also to a screen reader, of the cart that was ordered last. */
  async summary(pattern: RegExp): Promise<string> {
    const text = async () => (await this.page.textContent("#summary")) ?? "";
    const what = `the summary ${pattern}`;
    try {
      await untilShown(async () => pattern.test(await text()), { what, everyMs: 50 });
    } catch {
      expect(await text()).toMatch(pattern);
    }
    return await text();
  }
}
