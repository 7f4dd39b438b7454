import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { buffer } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { freshUser } from "../../support/ids.ts";
import { sharedRedisPort } from "../../support/redis-server.ts";
import { Shop, type ShopSetting } from "../sequences/shop.ts";
import { isWebKit, startChromium } from "./chromium.ts";
import { untilShown } from "./shown.ts";
import { mouseOn } from "./visitor.ts";

// A page that hangs is noticed before the whole file is late.
type Browser = Awaited<ReturnType<typeof startChromium>>;

const built = fileURLToPath(new URL("../../../dist/esm/browser/", import.meta.url));
const head = '<!doctype html><html lang="en"><title>Checkout</title><main>';

/** A checkout as a page of its own code, and as a form of the browser. */
const pages = {
  "/checkout": `<button>Place order</button><p role="status"></p><script type="module">
    import { idOf, submitOnce } from "/module/index.js";
    const given = Object.fromEntries(new URLSearchParams(location.search));
    const { cart, user, id, padding = 0, timeoutMs = 25_000 } = given;
    const [button, status] = document.querySelectorAll("button, p");
    idOf(cart);
    const body = JSON.stringify({ cart, padding: "x".repeat(padding) });
    const headers = { "content-type": "application/json", "x-user": user };
    const onWaiting = ({ reason, tries }) => { status.textContent = "waiting: " + reason; };
    button.addEventListener("click", async () => {
      status.textContent = "sent";
      try {
        const once = { name: cart, id, timeoutMs: Number(timeoutMs), onWaiting };
        const answer = await submitOnce("/orders", { method: "POST", headers, body, once });
        const { number } = await answer.json();
        status.textContent = answer.ok ? "order " + number + " is placed" : "refused";
        if (answer.ok) button.remove();
      } catch (error) {
        status.textContent = error.code ?? String(error);
      }
    });
    document.documentElement.dataset.ready = true;
  </script>`,
  "/form": `<form method="post" action="/orders"><input type="hidden" name="cart">
    <button>Place order</button></form><script type="module">
    import { protectForm } from "/module/index.js";
    const form = document.querySelector("form");
    form.cart.value = new URLSearchParams(location.search).get("cart");
    globalThis.takeOff = protectForm(form);
    document.documentElement.dataset.ready = true;
  </script>`,
};

function serve(req: IncomingMessage, res: ServerResponse): void {
  const { pathname } = new URL(req.url ?? "", "http://shop.example");
  const [, file] = /^\/module\/([\w-]+\.js)$/.exec(pathname) ?? [];
  const [, order] = /^\/placed\/(\d+)$/.exec(pathname) ?? [];
  if (file !== undefined) {
    res.writeHead(200, { "content-type": "text/javascript" });
    res.end(readFileSync(`${built}${file}`));
    return;
  }
  const page = order ? `<p role="status">order ${order} is placed</p>` : pages[pathname as "/form"];
  res.writeHead(page ? 200 : 404, { "content-type": "text/html" }).end(`${head}${page}`);
}

let shop: Shop;
let browser: Browser;
let errors: string[];
beforeAll(async () => {
  shop = await Shop.open(sharedRedisPort());
  shop.serve = serve;
  browser = await startChromium();
});
afterAll(async () => {
  await browser?.close();
  await shop?.close();
});
afterEach(async () => {
  await browser.context.setOffline(false);
  for (const page of browser.context.pages()) if (page.url() !== "about:blank") await page.close();
});

async function begin(given: Partial<ShopSetting> = {}): Promise<string> {
  const usual = { beforeMs: 300, afterMs: 0, declines: 0, waitMs: 0, leaves: true } as const;
  await shop.begin({ framework: "express", isPatient: true, ...usual, ...given });
  shop.received = 0;
  return freshUser();
}

async function open(path: string, of: Browser = browser): Promise<Page> {
  const page = await of.context.newPage();
  await page.goto(`${shop.origin}${path}`);
  await ready(page);
  return page;
}

async function ready(page: Page): Promise<void> {
  page.on("pageerror", (error) => errors.push(String(error)));
  await page.waitForSelector("html[data-ready=true]");
}

const checkout = (cart: string, more = "") => `/checkout?cart=${cart}&user=${cart}${more}`;
const click = (page: Page) => page.click("button", { noWaitAfter: true });
/** Chromium may drop a click of the mouse at a tab that is behind another one. */
const press = (page: Page) => page.dispatchEvent("button", "click");
const says = (page: Page, words: RegExp) =>
  untilShown(async () => words.test((await page.textContent("p")) ?? ""), { what: `${words}` });
const arrived = (count = 1) => untilShown(() => shop.received >= count, { what: "the order" });

/** The customer sees the one order of the cart. */
async function seesOneOrder(page: Page, cart: string): Promise<void> {
  const shown = async () => (await page.textContent("[role=status]").catch(() => "")) ?? "";
  const what = "the order to be shown";
  const isPlaced = async () => /is placed/.test(await shown());
  await untilShown(isPlaced, { what, everyMs: 20 }).catch(async (error: Error) => {
    throw new Error(`${error.message} The page said: ${await shown()}`, { cause: error });
  });
  const orders = shop.ordersOf(cart);
  expect(orders).toHaveLength(1);
  expect(await shown()).toBe(`order ${orders[0]} is placed`);
  expect(errors).toEqual([]);
}

describe.each(["express", "fetch"] as const)("a checkout with submitOnce, on %s", (framework) => {
  /** A cart, and its page. */
  const start = async (more = "", setting: Partial<ShopSetting> = {}) => {
    errors = [];
    const cart = await begin({ framework, ...setting });
    return { cart, page: await open(checkout(cart, more)) };
  };

  test.each([2, 10])("%i clicks are one order", async (clickCount) => {
    // Longer than ten clicks take: one behind the answer is a request of its own.
    const { cart, page } = await start("", { beforeMs: 2_000 });
    await page.click("button", { clickCount, delay: 20, noWaitAfter: true });
    await seesOneOrder(page, cart);
    expect(shop.received).toBe(1);
  });

  test("a reload in flight, and a click, is one order", async () => {
    const { cart, page } = await start();
    await click(page);
    await arrived();
    await page.reload();
    await click(page);
    await seesOneOrder(page, cart);
    // The next order has an id of its own.
    expect(await page.evaluate("sessionStorage.length")).toBe(0);
  });

  test("back, in flight, and a click is one order", async () => {
    const { cart, page } = await start();
    await click(page);
    await arrived();
    await page.goto(`${shop.origin}/placed/0`);
    await page.goBack();
    await page.waitForSelector("html[data-ready=true]");
    await click(page);
    await seesOneOrder(page, cart);
  });

  test("two tabs are one order with an id of the page's own, also later", async () => {
    const { cart, page } = await start("&id=cart:1");
    const other = await open(checkout(cart, "&id=cart:1"));
    await Promise.all([press(page), press(other)]);
    await seesOneOrder(page, cart);
    await seesOneOrder(other, cart);
    const late = await open(checkout(cart, "&id=cart:1"));
    await click(late);
    await seesOneOrder(late, cart);
  });

  test("a tab that is duplicated is the same order", async () => {
    const { cart, page } = await start();
    const opening = browser.context.waitForEvent("page");
    await page.evaluate("void open(location.href)");
    const duplicate = await opening;
    await ready(duplicate);
    await Promise.all([press(page), press(duplicate)]);
    await seesOneOrder(page, cart);
    await seesOneOrder(duplicate, cart);
  });

  const moments: Record<string, (page: Page, cart: string) => Promise<void>> = {
    async before(page) {
      await lose();
      await click(page);
      await says(page, /network/);
    },
    async "while it is sent"(page) {
      await click(page);
      await lose();
    },
    async "while the answer is awaited"(page) {
      await click(page);
      await arrived();
      await lose();
    },
    async "while the answer comes"(page) {
      shop.strike("cut", 1);
      await click(page);
      await says(page, /network/);
      await lose();
    },
    async after(page, cart) {
      await click(page);
      await seesOneOrder(page, cart);
      await lose();
    },
  };
  const lose = async () => {
    shop.goOffline(true);
    await browser.context.setOffline(true);
  };
  test.each(Object.entries(moments))("offline, %s: one order", async (_moment, happens) => {
    const { cart, page } = await start("&padding=4000000", { leaves: false });
    await happens(page, cart);
    await new Promise((resolve) => setTimeout(resolve, 700));
    shop.goOffline(false);
    await browser.context.setOffline(false);
    await seesOneOrder(page, cart);
  });

  test("a server that is killed in the middle, and starts again, places one order", async () => {
    // Until the lock of the killed server has run out, the page waits.
    const { cart, page } = await start("", { isPatient: false });
    await click(page);
    await arrived();
    await shop.kill();
    await says(page, /waiting/);
    await shop.restart();
    await seesOneOrder(page, cart);
  });

  test("a Redis that is away for 3 s delays the order", async () => {
    const { cart, page } = await start("", { isPatient: false });
    await shop.takeRedisAway(true);
    await click(page);
    await says(page, /unavailable/);
    await new Promise((resolve) => setTimeout(resolve, 3_000));
    await shop.takeRedisAway(false);
    await seesOneOrder(page, cart);
  });

  test.each(["502", "504", "429", "unsent", "unanswered", "cut"] as const)(
    "three times %s are one order",
    async (fate) => {
      const { cart, page } = await start();
      shop.strike(fate, 3);
      await click(page);
      await seesOneOrder(page, cart);
      expect(shop.received).toBeGreaterThanOrEqual(4);
    },
  );

  test("an answer that never comes is unknown, and the next click shows the order", async () => {
    const { cart, page } = await start("&timeoutMs=900");
    shop.strike("silent", 1);
    await click(page);
    await says(page, /^SUBMIT_UNANSWERED$/);
    // On a busy machine the next answer may come after these 900 ms, too.
    const isPlaced = async () => {
      const isShown = /is placed/.test((await page.textContent("p")) ?? "");
      if (!isShown) await press(page);
      return isShown;
    };
    await untilShown(isPlaced, { what: "the order", everyMs: 1_000 });
    await seesOneOrder(page, cart);
  });
});

describe("a browser that refuses storage", () => {
  let refusing: Browser;
  beforeAll(async () => {
    refusing = await startChromium({ refusesStorage: true });
  });
  afterAll(() => refusing?.close());

  // The driver of WebKit cannot refuse storage.
  test.skipIf(isWebKit)("places one order of two clicks and of a lost answer", async () => {
    errors = [];
    const cart = await begin();
    const page = await open(checkout(cart), refusing);
    const refusal =
      "(() => { try { return sessionStorage.length } catch ({ name }) { return name } })()";
    expect(await page.evaluate(refusal)).toBe("SecurityError");
    shop.strike("unanswered", 1);
    await page.dblclick("button", { delay: 20, noWaitAfter: true });
    await seesOneOrder(page, cart);
  });
});

test("a file that a script has made is sent whole three times, with garbage collected in between", async () => {
  const received: { id: unknown; body: string }[] = [];
  const server = createServer(async (req, res) => {
    if (req.method !== "POST") return serve(req, res);
    const body = (await buffer(req)).toString("latin1");
    received.push({ id: req.headers["idempotency-key"], body });
    // So long that the page has collected its garbage before the next request.
    res.writeHead(received.length < 3 ? 503 : 201, { "retry-after": "1" }).end("{}");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.close();
    server.closeAllConnections();
  });
  errors = [];
  const page = await browser.context.newPage();
  await page.goto(`http://127.0.0.1:${(server.address() as AddressInfo).port}/form`);
  await ready(page);
  // A driver cannot collect garbage. A page that allocates this much makes the browser do so.
  const outcome = await page.evaluate(`(async () => {
    const { submitOnce } = await import("/module/index.js");
    const send = () => {
      const body = new FormData();
      body.append("copy", new File(["x".repeat(5_000)], "order.csv"));
      return submitOnce("/orders", { method: "POST", body });
    };
    let outcome;
    const ends = (value) => { outcome = value; };
    send().then(({ status }) => ends(status), (error) => ends(String(error)));
    while (outcome === undefined) {
      for (let all = 0; all < 10; all++) new Array(300_000).fill(0).map(() => ({}));
      await new Promise((resolve) => setTimeout(resolve, 60));
    }
    return outcome;
  })()`);
  expect(outcome).toBe(201);
  expect(received).toHaveLength(3);
  for (const { body } of received) expect(body).toContain("x".repeat(5_000));
  expect(new Set(received.map(({ id }) => id))).toEqual(new Set([expect.any(String)]));
  expect(errors).toEqual([]);
});

describe.each(["express", "fetch"] as const)("a form with protectForm, on %s", (framework) => {
  const start = async () => {
    errors = [];
    const cart = await begin({ framework, waitMs: 5_000 });
    return { cart, page: await open(`/form?cart=${cart}`) };
  };
  const idIn = (page: Page) => page.inputValue("[name=submissionId]");

  test("that is double-clicked is sent once, and says that it is busy", async () => {
    const { cart, page } = await start();
    const press = await mouseOn(page);
    await press();
    await arrived();
    await press();
    await seesOneOrder(page, cart);
    expect(shop.received).toBe(1);
  });

  test("back gives the button back, and shows the same order", async () => {
    const { cart, page } = await start();
    const id = await idIn(page);
    await click(page);
    await seesOneOrder(page, cart);
    await page.goBack();
    await page.waitForSelector("html[data-ready=true]");
    expect(await idIn(page)).toBe(id);
    expect(await page.isEnabled("button")).toBe(true);
    expect(await page.getAttribute("form", "aria-busy")).toBe(null);
    await click(page);
    await seesOneOrder(page, cart);
  });

  test("a reload in flight keeps the id, and a new visit makes a new one", async () => {
    const { cart, page } = await start();
    const id = await idIn(page);
    // By the page itself: calls from outside wait for the navigation that is under way.
    await page.evaluate(`
      document.documentElement.dataset.old = true;
      addEventListener("submit", () => setTimeout(() => location.reload(), 100));
    `);
    await click(page);
    await arrived();
    await page.waitForSelector("html[data-ready=true]:not([data-old])");
    expect(await idIn(page)).toBe(id);
    await click(page);
    await seesOneOrder(page, cart);
    await page.goto(`${shop.origin}/form?cart=${cart}`);
    await page.waitForSelector("html[data-ready=true]");
    expect(await idIn(page)).not.toBe(id);
  });

  test("a submit that is prevented gives the button back", async () => {
    const { page } = await start();
    await page.evaluate(
      'document.forms[0].addEventListener("submit", (event) => event.preventDefault())',
    );
    await click(page);
    await untilShown(async () => (await page.getAttribute("form", "aria-busy")) === null, {
      what: "the form not to be busy",
    });
    expect(await page.isEnabled("button")).toBe(true);
    await page.evaluate("takeOff()");
    expect(await page.locator("[name=submissionId]").count()).toBe(0);
    expect(shop.received).toBe(0);
    expect(errors).toEqual([]);
  });
});
