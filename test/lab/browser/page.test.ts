import type { BrowserContext } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ownDatabase } from "../../docs/examples/own-database.ts";
import { isWebKit, type RunningDemo, startChromium, startDemo } from "./chromium.ts";
import { untilShown } from "./shown.ts";
import { Visitor } from "./visitor.ts";

describe.each([
  ["Express", "examples/demo/express.ts"],
  ["Koa", "examples/demo/koa.ts"],
])("the page of the shop on %s", (_framework, file) => {
  let demo: RunningDemo;
  let browser: { context: BrowserContext; close(): Promise<void> };
  let visitor: Visitor;

  beforeAll(async () => {
    demo = await startDemo(file, await ownDatabase());
    browser = await startChromium();
    visitor = await Visitor.at(browser.context, demo.url);
  });

  afterAll(async () => {
    await browser?.close();
    expect(await demo?.end(), demo?.output()).toBe(0);
  });

  test("a double click is two orders with nothing, one and a 409 with the lock, and one order twice with once", async () => {
    const doubleClick = async (protection: "nothing" | "lock" | "once") => {
      await visitor.protectWith(protection);
      return (await visitor.twoClicks(() => visitor.page.dblclick("#order"))).sort();
    };
    expect(await doubleClick("nothing")).toEqual([
      expect.stringMatching(/^order \d+ is placed 201$|too many/),
      expect.stringMatching(/^order \d+, one order too many 201$|is placed/),
    ]);
    await visitor.summary(/Not as it should be: 2 orders and 2 charges .* pays twice\./s);
    expect(await visitor.page.getAttribute("#verdict", "class")).toBe("bad");

    const withLock = await doubleClick("lock");
    expect(withLock).toEqual([
      expect.stringMatching(/^order \d+ is placed 201$/),
      "refused: one order at a time 409 submit_contended",
    ]);
    await visitor.summary(/As it should be: 1 order and 1 charge\..* saw a refusal/s);
    expect(await visitor.page.getAttribute("#verdict", "class")).toBe("good");

    const [placed = "", again] = (await doubleClick("once")).sort();
    const [, number] = /^order (\d+) is placed 201$/.exec(placed) ?? [];
    expect(again).toBe(`order ${number}, the same answer again 201`);
    await visitor.summary(/As it should be: 1 order and 1 charge\..* every answer shows/s);
  });

  test("it begins with nothing, and leads to the lock and to once", async () => {
    await visitor.page.reload();
    await visitor.ready();
    expect(await visitor.page.isChecked("[value=nothing]")).toBe(true);
    const double = () => visitor.press("double");
    await visitor.twoClicks(double);
    await visitor.summary(/Not as it should be: 2 orders and 2 charges/);
    await visitor.twoClicks(() => visitor.press("next"), { others: double });
    expect(await visitor.page.isChecked("[value=lock]")).toBe(true);
    await visitor.summary(/As it should be.* saw a refusal/s);
    await visitor.press("next");
    expect(await visitor.page.isChecked("[value=once]")).toBe(true);
    await visitor.summary(/As it should be.* got the answer of order \d+ again/s);
    expect(await visitor.page.isVisible("#next")).toBe(false);
  });

  test("Click twice, Click ten times and a late click are one order with once", async () => {
    await visitor.protectWith("once");
    for (const [button, clicks] of [
      ["double", 2],
      ["ten", 10],
      ["late", 2],
    ] as const) {
      const before = await visitor.cart();
      await visitor.press(button);
      await untilShown(async () => (await visitor.cart()) > before, { what: "a new cart" });
      const answers = await visitor.answers(clicks);
      const numbers = answers.map((answer) => /^order (\d+)/.exec(answer)?.[1]);
      expect(new Set(numbers).size, answers.join()).toBe(1);
      const again = answers.filter((answer) => answer.includes("the same answer again"));
      expect(again).toHaveLength(clicks - 1);
      await visitor.summary(/As it should be: 1 order and 1 charge\./);
    }
  });

  test("an order goes on when the customer leaves, and is told when they come back", async () => {
    await visitor.protectWith("once");
    // A click that Chromium had not sent before the customer left: the next one places the order.
    await visitor.twoClicks(() => visitor.press("leave"), { late: /is placed 201$/ });
    await visitor.summary(/The customer left before the answer came\. .* again\./s);
    const answers = await visitor.answers(2);
    expect(answers[0]).toBe("left before the answer");
    expect(answers.at(-1)).toMatch(/^order \d+, the same answer again 201$/);
    await visitor.summary(/As it should be: 1 order and 1 charge\./);
    // On Koa the next order of a customer who left waits for outer middleware, for a second.
    await untilShown(async () => /free/.test((await visitor.page.textContent("#lock")) ?? ""), {
      what: "the cooldown to be over",
    });
  });

  test("two tabs are one order", async () => {
    await visitor.protectWith("once");
    const opened = browser.context.waitForEvent("page");
    await visitor.press("tabs");
    const second = await opened;
    visitor.listenTo(second);
    const [placed = "", again] = (await visitor.answers(2)).sort();
    const [, number] = /^order (\d+) is placed 201$/.exec(placed) ?? [];
    expect(again).toBe(`order ${number}, the same answer again 201`);
    await visitor.summary(/As it should be: 1 order and 1 charge\./);
    expect(await visitor.page.textContent("#submits")).toContain("other tab, click 1");
    await second.close();
  });

  test("a slow payment keeps the lock, which is shown live", async () => {
    await visitor.protectWith("lock");
    await visitor.press("slow");
    await visitor.page.waitForSelector("#slow[aria-pressed=true]");
    await visitor.press("order");
    const lock = async () => (await visitor.page.textContent("#lock")) ?? "";
    await untilShown(async () => /held.*Holder.*Held for.*Expires in/s.test(await lock()), {
      what: "the lock to be shown as held",
    });
    await visitor.press("order");
    expect((await visitor.answers(2))[1]).toMatch(/409 submit_contended$/);
    await untilShown(async () => (await lock()).includes("free"), { what: "the lock to be free" });
    await visitor.press("slow");
    await visitor.page.waitForSelector("#slow[aria-pressed=false]");
  });

  test("a payment whose reply is lost is charged once", async () => {
    await visitor.protectWith("once");
    await visitor.press("lose");
    expect(await visitor.answers(1)).toEqual([expect.stringMatching(/^order \d+ is placed/)]);
    await visitor.summary(/As it should be: 1 order and 1 charge\./);
  });

  test("nobody orders while Redis is away, and everybody when it is back", async () => {
    await visitor.protectWith("lock");
    await visitor.press("redis");
    await visitor.page.waitForSelector("#redis[aria-pressed=true]");
    await visitor.press("order");
    expect(await visitor.answers(1)).toEqual([
      "refused: no lock can be taken 503 submit_unavailable",
    ]);
    await visitor.summary(/No order and no charge\..*without a lock/s);
    expect(await visitor.page.textContent("#lock")).toContain("unknown: Redis is away");
    expect(await visitor.page.textContent("#servers")).toContain("does not answer them");

    // With submitOnce one click is enough: the page asks again until Redis is back.
    await visitor.protectWith("once");
    await visitor.press("order");
    await visitor.page.waitForSelector("#submits :text('refused for now, asks again')");
    await visitor.press("redis");
    await visitor.page.waitForSelector("#redis[aria-pressed=false]");
    expect(await visitor.answers(1)).toEqual([expect.stringMatching(/^order \d+ is placed 201$/)]);
    await visitor.summary(/As it should be: 1 order and 1 charge\..* asked again by itself/s);
  });

  test("a server that is killed in the middle leaves one order and one charge", async () => {
    await visitor.protectWith("once");
    const early = await visitor.earlyVerdicts();
    await visitor.press("kill");
    // One scene at a time: its clicks would be mixed with those of another one.
    expect(await visitor.page.getAttribute("#double", "aria-disabled")).toBe("true");
    // By an event: a page that grows may have moved the button away from under the mouse.
    await visitor.page.dispatchEvent("#order", "click");
    // The page waits for the lock of the dead server.
    await visitor.summary(/As it should be.* order \d+.* runs out by itself/s);
    expect(await early()).toEqual([]);
    expect(await visitor.answers(1)).toEqual([expect.stringMatching(/^order \d+/)]);
    const up = async () => (await visitor.page.textContent("#servers"))?.includes("down") === false;
    await untilShown(up, { what: "both servers to be up" });
  });

  test("all of it is reached with the keyboard alone", async () => {
    await visitor.protectWith("once");
    await visitor.page.focus("#user");
    const reached: string[] = [];
    for (let tabs = 0; tabs < 16; tabs++) {
      await visitor.page.keyboard.press("Tab");
      reached.push((await visitor.page.evaluate("document.activeElement.id")) as string);
    }
    const buttons = ["order", "refill", "double", "ten", "leave", "late", "tabs", "slow", "lose"];
    for (const id of [...buttons, "redis", "kill"]) expect(reached).toContain(id);
    await visitor.page.focus("#order");
    await visitor.page.keyboard.press("Enter");
    expect(await visitor.answers(1)).toEqual([expect.stringMatching(/^order \d+ is placed/)]);
  });

  test("its console tells of no error that it is not about", () => {
    expect(visitor.errors).toEqual([]);
  });
});

// The driver of WebKit has no window of 390 px.
describe.skipIf(isWebKit)("the page without a Redis", () => {
  test("disables what needs one, says why, and places orders all the same", async () => {
    const demo = await startDemo("examples/demo/express.ts", { PATH: "/nowhere" });
    const browser = await startChromium({ viewport: { width: 390, height: 800 } });
    try {
      const visitor = await Visitor.at(browser.context, demo.url);
      const { page } = visitor;
      expect(await page.isDisabled("#redis")).toBe(true);
      expect(await page.isDisabled("#kill")).toBe(true);
      expect(await page.textContent("#why")).toMatch(/“Redis away” and .* needs a Redis: install/);
      await visitor.protectWith("once");
      await page.dblclick("#order");
      await visitor.summary(/As it should be: 1 order and 1 charge/);
      // A phone: nothing is wider than the screen.
      expect(await page.evaluate("document.documentElement.scrollWidth")).toBeLessThanOrEqual(390);
    } finally {
      await browser.close();
      expect(await demo.end(), demo.output()).toBe(0);
    }
  });
});
