import { readFileSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import { fileURLToPath } from "node:url";
import type { Page } from "playwright-core";
import {
  afterAll,
  afterEach,
  beforeAll,
  beforeEach,
  describe,
  expect,
  onTestFinished,
  test,
} from "vitest";
import { freshUser } from "../../support/ids.ts";
import { sharedRedisPort } from "../../support/redis-server.ts";
import { Shop } from "../sequences/shop.ts";
import { isWebKit, startChromium } from "./chromium.ts";
import { untilShown } from "./shown.ts";
import { mouseOn } from "./visitor.ts";

const files: Record<string, URL> = {
  "/turbo.js": new URL(
    "../../../node_modules/@hotwired/turbo/dist/turbo.es2017-esm.js",
    import.meta.url,
  ),
  "/htmx2.js": new URL("../../../node_modules/htmx2/dist/htmx.js", import.meta.url),
  "/htmx4.js": new URL("../../../node_modules/htmx.org/dist/htmx.js", import.meta.url),
  "/zone.js": new URL("../../../node_modules/zone.js/bundles/zone.umd.js", import.meta.url),
};
for (const name of ["index", "ids", "bounds", "protect-form"]) {
  files[`/module/${name}.js`] = new URL(`../../../dist/esm/browser/${name}.js`, import.meta.url);
}

/** As the guide has it. A form stays behind its `hx-post`, and its next submit is another order. */
const onHtmx = (loaded: string, answered: string, isWell: string) => `<script type="module">
    import { protectForm } from "/module/index.js";
    const protections = new WeakMap();
    addEventListener("${loaded}", () => {
      for (const form of document.forms)
        if (!protections.has(form)) protections.set(form, protectForm(form));
    });
    addEventListener("${answered}", ({ detail, target }) => {
      globalThis.answers = (globalThis.answers ?? 0) + 1;
      if (${isWell} && target.matches("[hx-post]")) protections.get(target).renew();
    });
  </script>`;

const plain = `<script type="module">
    import { forget, idOf, protectForm, submitOnce } from "/module/index.js";
    Object.assign(globalThis, { forget, idOf, protectForm, submitOnce });
    globalThis.protections = [...document.forms].map((form) => protectForm(form));
    document.documentElement.dataset.ready = true;
  </script>`;

/** What a page has beside its content. */
const kinds: Record<string, string> = {
  plain,
  // Angular 16 has it: its `addEventListener` knows of no signal that takes a listener off.
  zone: `<script src="/zone.js"></script>${plain}`,
  unprotected: `<script type="module">
    import { forget, idOf, protectForm, submitOnce } from "/module/index.js";
    Object.assign(globalThis, { forget, idOf, protectForm, submitOnce });
    document.documentElement.dataset.ready = true;
  </script>`,
  // As the guide has it.
  turbo: `<script type="module" src="/turbo.js"></script><script type="module">
    import { protectForm } from "/module/index.js";
    const known = new WeakSet();
    for (const event of ["turbo:load", "turbo:render", "turbo:frame-render"]) {
      addEventListener(event, ({ target }) => {
        for (const form of target.querySelectorAll("form")) {
          if (!known.has(form)) known.add(form), protectForm(form);
        }
      });
    }
    addEventListener("turbo:frame-missing", (event) => {
      event.preventDefault();
      event.detail.visit(event.detail.response);
    });
  </script>`,
  htmx2: `<script src="/htmx2.js"></script>
    ${onHtmx("htmx:load", "htmx:afterRequest", "detail.successful")}`,
  // It fetches a page again where the customer goes back, unless it is told to load it.
  htmx4: `<meta name="htmx-config" content='{"history":"reload"}'>
    <script src="/htmx4.js"></script>
    ${onHtmx("htmx:after:process", "htmx:finally:request", "detail.ctx.response?.status < 300")}`,
};

const forms: Record<string, string> = {
  buy: `<form method="post" action="/orders">USER
    <input name="cart" value="CART"><button>Buy</button></form>`,
  two: `<form method="post" action="/orders">USER
      <input type="hidden" name="cart" value="CART-apples"><button id="apples">Buy apples</button></form>
    <form method="post" action="/orders">USER
      <input type="hidden" name="cart" value="CART-pears"><button id="pears">Buy pears</button></form>`,
  hiding: `<form method="post" action="/orders">USER<input name="cart" value="CART">
    ${"elements append setAttribute getAttribute action method addEventListener ariaBusy querySelector"
      .split(" ")
      .map((name) => `<input type="hidden" name="${name}" value="1">`)
      .join("")}<button>Buy</button></form>`,
  withoutTurbo: `<form method="post" action="/orders" data-turbo="false">USER
    <input name="cart" value="CART"><button>Buy</button></form>`,
  swapped: `<form method="post" action="/orders" hx-post="/orders" hx-target="#out" hx-sync="this:drop">
    USER<input name="cart" value="CART"><button>Buy</button></form><p id="out"></p>`,
  elsewhere: `<form method="post" action="/orders" target="elsewhere">USER
    <input name="cart" value="CART"><button>Buy</button></form><iframe name="elsewhere"></iframe>`,
  tokens: `<form method="post" action="/orders">USER<input name="cart" value="CART">
    ${"_csrf _xsrf authenticity_token form[_token] _wpnonce altcha g-recaptcha-response cf-turnstile-response"
      .split(" ")
      .map((name) => `<input type="hidden" name="${name}" value="RANDOM">`)
      .join("")}<button>Buy</button></form>`,
  // As a page without JavaScript has it: the server has made the id.
  token: `<form method="post" action="/orders">USER<input name="cart" value="CART">
    <input type="hidden" name="submissionId" value="id-CART"><button>Buy</button></form>`,
  // As in Firefox: a reload and Back bring back what a script has put into a field of the server.
  empty: `<form method="post" action="/orders">USER<input name="cart" value="CART">
    <input type="hidden" name="submissionId" value=""><script>{
      const field = document.currentScript.previousElementSibling;
      field.value = history.state ?? "";
      addEventListener("pagehide", () => history.replaceState(field.value, ""));
    }</script><button>Buy</button></form>`,
  consent: `<form action="/consent"><input name="cookies"></form><script>
      if (sessionStorage.isAsked) document.forms[0].remove();
      sessionStorage.isAsked = true;
    </script><form method="post" action="/orders">USER
    <input name="cart" value="CART"><button>Buy</button></form>`,
  upload: `<form method="post" action="/orders">USER<input name="cart" value="CART">
    <input type="file" name="copy"><button>Buy</button></form>`,
  framed: `<turbo-frame id="framed"><form method="post" action="/orders">USER
    <input name="cart" value="CART"><button>Buy</button></form></turbo-frame>`,
  dialog: `<dialog open><form method="DIALOG"><button>Close</button></form></dialog>`,
  buttons: `<form method="post" action="/orders">USER
    <button name="cart" value="CART-one">One</button>
    <button name="cart" value="CART-five">Five</button></form>`,
  image: `<form method="post" action="/orders">USER<input name="cart" value="CART">
    <input type="image" name="buy" alt="Buy" width="200" height="100"></form>`,
  actions: `<form method="post" action="/orders">USER<input name="cart" value="CART">
    <button>Card</button><button formaction="/orders?by=invoice">Invoice</button></form>`,
  returns: `<form method="post" action="/orders">USER<input name="cart" value="CART">
    ${["returns", "tokens", "tokenId", "announcement"]
      .map((name) => `<input name="${name}" value="no">`)
      .join("")}<button>Buy</button></form>`,
};

/** `/shop/<kind>/<form>?user=…&cart=…`, `/placed/<number>`, and files. */
function serve(req: IncomingMessage, res: ServerResponse): void {
  const { pathname, search, searchParams } = new URL(req.url ?? "", "http://shop.example");
  const file = files[pathname];
  if (file !== undefined) {
    res.writeHead(200, { "content-type": "text/javascript" });
    res.end(readFileSync(fileURLToPath(file)));
    return;
  }
  const [, folder, kind = "", form = ""] = pathname.split("/");
  const user = searchParams.get("user") ?? "";
  const cart = searchParams.get("cart") ?? user;
  const field = `<input type="hidden" name="user" value="${user}">`;
  const content =
    folder === "placed"
      ? `<p role="status">order ${kind} is placed</p>`
      : forms[form]
          ?.replaceAll("USER", field)
          .replaceAll("CART", cart)
          .replaceAll("RANDOM", `${Math.random()}`);
  // The page of an order has what its document came with, which a router keeps.
  const head = folder === "placed" ? (kinds[searchParams.get("kind") ?? ""] ?? "") : kinds[kind];
  // The page of an order leads back to the shop. Routers read a link when its page is there.
  const again = folder === "placed" ? req.headers.referer : pathname + search;
  const isStored = !searchParams.has("no-store");
  res.writeHead(content ? 200 : 404, {
    "content-type": "text/html",
    ...(!isStored && { "cache-control": "no-store" }),
  });
  res.end(`<!doctype html><html lang="en"><head><title>Shop</title>${head}</head>
    <body hx-boost="true" hx-boost:inherited="true">
    <a id="again" href="${again}">Shop</a>${content}</body></html>`);
}

let shop: Shop;
type Browser = Awaited<ReturnType<typeof startChromium>>;
/** One keeps the pages that a customer leaves, as all do, and one does not, as a busy phone. */
let keeping: Browser;
let forgetting: Browser;
let browser: Browser;
let page: Page;
let user: string;
beforeAll(async () => {
  shop = await Shop.open(sharedRedisPort());
  shop.serve = serve;
  keeping = await startChromium({ keepsPages: true });
  forgetting = await startChromium();
});
afterAll(async () => {
  await keeping?.close();
  await forgetting?.close();
  await shop?.close();
});
beforeEach(() => {
  browser = keeping;
});
afterEach(() => page?.close());

/** A page of the shop, in a tab of its own. */
async function open(kind: string, form: string, more = ""): Promise<void> {
  const usual = { beforeMs: 50, afterMs: 0, declines: 0, leaves: true } as const;
  await shop.begin({ framework: "express", waitMs: 5_000, isPatient: true, ...usual });
  shop.received = 0;
  user = freshUser();
  page = await browser.context.newPage();
  await visit(kind, form, more);
}

async function visit(kind: string, form: string, more = ""): Promise<void> {
  await page.goto(`${shop.origin}/shop/${kind}/${form}?user=${user}${more}`);
  await ready();
}
const ready = () =>
  page.waitForSelector("form [name=submissionId], html[data-ready=true]", { state: "attached" });

const click = (selector = "button") => page.click(selector, { noWaitAfter: true });
/** The number of the order that the customer sees. */
async function sees(): Promise<number> {
  const shown = page.getByText("is placed");
  try {
    await shown.waitFor();
  } catch (cause) {
    throw new Error(`The customer sees no order, but: ${await page.content()}`, { cause });
  }
  return Number(/\d+/.exec((await shown.textContent()) ?? "")?.[0]);
}
async function buys(selector = "button"): Promise<number> {
  await click(selector);
  return await sees();
}
async function goesBack(): Promise<void> {
  await page.goBack({ waitUntil: "commit" });
  await page.waitForSelector("form button, form [type=image]");
  await ready();
}
const ordersOf = (cart = user) => shop.ordersOf(cart);

describe.each([
  ["with", true],
  ["without", false],
])("the form of a page, %s the back/forward cache", (_with, keepsPages) => {
  beforeEach(() => {
    browser = keepsPages ? keeping : forgetting;
  });

  test("is one order after Back and a reload, and another one on a new visit", async () => {
    await open("plain", "buy");
    await page.evaluate("document.documentElement.dataset.old = true");
    const first = await buys();
    await goesBack();
    const isKept = await page.evaluate("document.documentElement.dataset.old === 'true'");
    expect(isKept).toBe(keepsPages);
    expect(await page.isEnabled("button")).toBe(true);
    expect(await page.getAttribute("form", "aria-busy")).toBe(null);
    expect(await buys()).toBe(first);
    await goesBack();
    await page.reload();
    await ready();
    expect(await buys()).toBe(first);
    await visit("plain", "buy");
    expect(await buys()).not.toBe(first);
    expect(ordersOf()).toHaveLength(2);
  });

  test("is another order with another quantity after Back, and the first one again with the first", async () => {
    await open("plain", "buy");
    const first = await buys();
    await goesBack();
    await page.fill("[name=cart]", `${user}-five`);
    const second = await buys();
    expect(second).not.toBe(first);
    expect(ordersOf(`${user}-five`)).toEqual([second]);
    await goesBack();
    await page.fill("[name=cart]", user);
    expect(await buys()).toBe(first);
  });

  test("is another order with another quantity where Angular has protected it twice", async () => {
    await open("zone", "buy");
    await page.evaluate("protectForm(document.forms[0])");
    const first = await buys();
    await goesBack();
    await page.evaluate("protectForm(document.forms[0])");
    await page.fill("[name=cart]", `${user}-five`);
    expect(await buys()).not.toBe(first);
    expect([ordersOf().length, ordersOf(`${user}-five`).length]).toEqual([1, 1]);
  });

  test("is an order of its own beside another one of the same action", async () => {
    await open("plain", "two");
    const apples = await buys("#apples");
    await goesBack();
    const pears = await buys("#pears");
    await goesBack();
    expect([await buys("#apples"), ordersOf(`${user}-apples`)]).toEqual([apples, [apples]]);
    await goesBack();
    await page.reload();
    await ready();
    expect([await buys("#pears"), ordersOf(`${user}-pears`)]).toEqual([pears, [pears]]);
  });

  test("is not the order of another product's page", async () => {
    await open("plain", "buy", "&cart=other");
    const [one, two] = [`one-${user}`, `two-${user}`];
    await visit("plain", "buy", `&cart=${one}`);
    await visit("plain", "buy", `&cart=${two}`);
    const second = await buys();
    await goesBack();
    await goesBack();
    const first = await buys();
    expect(first).not.toBe(second);
    expect([ordersOf(one), ordersOf(two)]).toEqual([[first], [second]]);
  });

  test("is one order after Back though its token against forgery is another one", async () => {
    await open("plain", "tokens", "&no-store");
    const first = await buys();
    await goesBack();
    expect(await buys()).toBe(first);
  });

  test("is one order after Back where the browser brings back the id in the server's field", async () => {
    await open("plain", "empty");
    const first = await buys();
    await goesBack();
    expect(await buys()).toBe(first);
    await visit("plain", "empty");
    const second = await buys();
    expect(ordersOf()).toEqual([first, second]);
    await goesBack();
    // The page of the first order, and then its form.
    await page.goBack({ waitUntil: "commit" });
    await sees();
    await goesBack();
    await page.reload();
    await ready();
    expect(await buys()).toBe(first);
    await goesBack();
    await page.fill("[name=cart]", `${user}-five`);
    expect([first, second]).not.toContain(await buys());
  });

  test("is one order after Back though another form is gone", async () => {
    await open("plain", "consent");
    const first = await buys("text=Buy");
    await goesBack();
    expect(await buys("text=Buy")).toBe(first);
  });

  test("is one order after Back of a page that was prerendered, and loses what it had stored", async () => {
    const protect = "protectForm(document.forms[0])";
    await open("unprotected", "buy");
    await page.evaluate(protect);
    const first = await buys();
    await visit("unprotected", "buy");
    await page.evaluate(`{
      const stored = { ...sessionStorage };
      Object.defineProperty(document, "prerendering", { value: true });
      ${protect};
      sessionStorage.clear();
      Object.assign(sessionStorage, stored);
      document.dispatchEvent(new Event("prerenderingchange"));
    }`);
    const second = await buys();
    await goesBack();
    if (!keepsPages) await page.evaluate(protect);
    expect(await buys()).toBe(second);
    expect(ordersOf()).toEqual([first, second]);
  });

  test("is one order after Back wherever the customer clicks on its image", async () => {
    await open("plain", "image");
    const first = await buys("[type=image]");
    await goesBack();
    await page.click("[type=image]", { position: { x: 3, y: 5 } });
    expect(await sees()).toBe(first);
  });

  test("is another order with another action of a button", async () => {
    await open("plain", "actions");
    const card = await buys("text=Card");
    await goesBack();
    expect(await buys("text=Invoice")).not.toBe(card);
    await goesBack();
    expect(await buys("text=Card")).toBe(card);
  });

  test("is another order with another answer in a field that is like a token's", async () => {
    await open("plain", "returns");
    const orders = [await buys()];
    for (const name of ["returns", "tokens", "tokenId", "announcement"]) {
      await goesBack();
      await page.fill(`[name=${name}]`, "yes");
      orders.push(await buys());
    }
    expect(new Set(orders).size).toBe(5);
  });

  test("is another order with another button", async () => {
    await open("plain", "buttons");
    const one = await buys("text=One");
    await goesBack();
    const five = await buys("text=Five");
    expect(five).not.toBe(one);
    await goesBack();
    expect(await buys("text=One")).toBe(one);
  });
});

describe("a form that is clicked twice", () => {
  test("shows the answer of the first click, a declined card too, and another card is an order", async () => {
    await shop.begin({
      framework: "express",
      // So long that the second click of a busy browser still finds the first one at work.
      ...{
        waitMs: 20_000,
        isPatient: true,
        beforeMs: 4_000,
        afterMs: 0,
        declines: 1,
        leaves: true,
      },
    });
    shop.received = 0;
    user = freshUser();
    page = await browser.context.newPage();
    await page.goto(`${shop.origin}/shop/unprotected/token?user=${user}`);
    await ready();
    // As slow as a hand: of two clicks within a few milliseconds Chromium sends one request.
    await page.dblclick("button", { delay: 100, noWaitAfter: true });
    await page.getByText("declined").waitFor();
    expect([shop.received, ordersOf()]).toEqual([2, []]);
    await page.goBack({ waitUntil: "commit" });
    await page.fill("[name=cart]", `${user}-other-card`);
    const order = await buys();
    expect(ordersOf(`${user}-other-card`)).toEqual([order]);
  });
});

describe("a page that stays", () => {
  const formOf = "document.forms[0]";
  const idIn = () => page.inputValue("[name=submissionId]");

  test("protects a form where no navigation is told, as in jsdom", async () => {
    await open("unprotected", "buy");
    await page.evaluate("performance.getEntriesByType = undefined; protectForm(document.forms[0])");
    await click();
    await untilShown(() => ordersOf().length === 1, { what: "the order" });
  });

  test("renews an id on demand, and for a form that is protected again after it was sent", async () => {
    await open("plain", "elsewhere");
    const ids = [await idIn()];
    await page.evaluate("protections[0].renew()");
    ids.push(await idIn());
    await page.evaluate(`protections[0](); protections = [protectForm(${formOf})]`);
    expect(await idIn()).toBe(ids[1]);
    await click();
    await untilShown(() => ordersOf().length === 1, { what: "the order" });
    await page.evaluate(`protectForm(${formOf})`);
    ids.push(await idIn());
    expect(new Set(ids).size).toBe(3);
    expect(await page.locator("[name=submissionId]").count()).toBe(1);
  });

  test("has an order for each form that a router puts there", async () => {
    await open("plain", "buy");
    const body = await page.evaluate(
      "document.body.innerHTML = document.body.innerHTML.replace(/<input[^>]*submissionId[^>]*>/, '')",
    );
    const ids: string[] = [];
    for (let renders = 0; renders < 3; renders++) {
      await page.evaluate(
        `document.body.innerHTML = ${JSON.stringify(body)}; protectForm(${formOf})`,
      );
      ids.push(await idIn());
    }
    expect(new Set(ids).size).toBe(3);
  });

  test("has another id for another file of one name and size, but not without a file", async () => {
    await open("plain", "upload");
    const idOf = (files: string): Promise<string> =>
      page.evaluate(`{
        const chosen = new DataTransfer();
        for (const file of [${files}]) chosen.items.add(file);
        ${formOf}.elements.copy.files = chosen.files;
      }
      new FormData(${formOf}).get("submissionId")`);
    const file = (changedAt: number) =>
      `new File(["sku,5"], "order.csv", { lastModified: ${changedAt} })`;
    const first = await idOf(file(1));
    expect(await idOf(file(2))).not.toBe(first);
    expect(await idOf(file(1))).toBe(first);
    const empty = await idOf(`new File([], "order.csv", { lastModified: 1 })`);
    const none = await idOf("");
    expect(empty).not.toBe(none);
    // The browser gives a field without a file the time of the call.
    await page.waitForTimeout(5);
    expect(await idOf("")).toBe(none);
  });

  // Firefox fills the fields of a page by their place: it puts the id of a form that is gone into
  // the next form's field.
  test("has another id for another action, wherever the browser brings it back", async () => {
    await open("unprotected", "empty");
    const idsOf = (action: string, restored: string): Promise<string[]> =>
      page.evaluate(`{
        document.body.innerHTML = '<form action="${action}"><input name="submissionId"></form>';
        ${formOf}.elements.submissionId.value = "${restored}";
        protectForm(${formOf});
      }
      [${formOf}.elements.submissionId.value, new FormData(${formOf}).get("submissionId")]`);
    const [id = "", apples] = await idsOf("/apples", "");
    const [same, pears] = await idsOf("/pears", id);
    expect(same).toBe(id);
    expect(pears).not.toBe(apples);
    expect((await idsOf("/apples", id))[1]).toBe(apples);
  });

  test("keeps the id where the fields are rendered anew, and puts it in again", async () => {
    await open("plain", "elsewhere");
    const id = await idIn();
    await page.evaluate("document.querySelector('[name=submissionId]').remove()");
    await click();
    await untilShown(() => ordersOf().length === 1, { what: "the order" });
    expect(await idIn()).toBe(id);
    await page.evaluate(
      `document.querySelector('[name=submissionId]').remove(); ${formOf}.submit()`,
    );
    // What was sent is used up for what is rendered next.
    await untilShown(() => ordersOf().length === 2, { what: "the second order" });
    expect(await idIn()).not.toBe(id);
  });

  test("sends the id also by `form.submit()`", async () => {
    await open("plain", "buy");
    const place = async () => {
      await page.evaluate(`${formOf}.submit()`);
      return await sees();
    };
    const first = await place();
    await goesBack();
    expect(await place()).toBe(first);
  });

  test("renews the field of a form that submitOnce has sent, when its order is placed", async () => {
    await open("plain", "buy");
    const send = `submitOnce("/orders", { method: "POST", body: new URLSearchParams(new FormData(${formOf})),
      redirect: "manual" })`;
    const ids = [await idIn()];
    shop.strike("unanswered", 2);
    await page.evaluate(`Promise.all([${send}, ${send}])`);
    ids.push(await idIn());
    await page.evaluate(send);
    ids.push(await idIn());
    expect(new Set(ids).size).toBe(3);
    expect(ordersOf()).toHaveLength(2);
  });

  // The driver of WebKit cannot collect garbage.
  test.skipIf(isWebKit)("lets go of a form that is thrown away", async () => {
    await open("plain", "buy");
    await page.evaluate(`globalThis.gone = new WeakRef(${formOf}); protections.length = 0;
      ${formOf}.addEventListener("submit", (event) => event.preventDefault());
      ${formOf}.requestSubmit(); document.body.innerHTML = ""`);
    const session = await browser.context.newCDPSession(page);
    await untilShown(
      async () => {
        await session.send("HeapProfiler.collectGarbage");
        return (await page.evaluate("gone.deref() === undefined")) as boolean;
      },
      { what: "the form to be collected" },
    );
  });
});

describe("a submit", () => {
  // In the listener itself a browser ignores `requestSubmit()`, of any form.
  test.each([
    ["in the same task", "queueMicrotask(submit)"],
    ["in a later task", "setTimeout(submit)"],
    ["when a server has answered", "fetch('/shop').then(submit)"],
  ])(
    "of a validator that prevents it and asks for the next one %s is sent",
    async (_when, next) => {
      await open("unprotected", "buy");
      await page.evaluate(`protectForm(document.forms[0]);
      document.forms[0].addEventListener("submit", (event) => {
        event.preventDefault();
        const submit = () => document.forms[0].requestSubmit();
        ${next};
      }, { once: true });
      document.forms[0].requestSubmit()`);
      const first = await sees();
      expect(shop.received).toBe(1);
      await goesBack();
      expect(await page.isEnabled("button")).toBe(true);
      expect(await buys()).toBe(first);
    },
  );

  test("is held back while one is under way, and nobody else learns of it", async () => {
    await open("plain", "buy");
    await page.evaluate(`globalThis.seen = 0;
      document.forms[0].addEventListener("submit", () => { seen++; })`);
    const press = await mouseOn(page);
    await press();
    await untilShown(() => shop.received === 1, { what: "the order" });
    await press();
    await sees();
    expect(shop.received).toBe(1);
  });

  test("gives the focus back, and what the page has set", async () => {
    // All pages of a browser get the clock, and with it a `performance` without navigations.
    browser = await startChromium();
    onTestFinished(browser.close);
    await open("plain", "elsewhere");
    await page.clock.install();
    await page.focus("button");
    await page.evaluate(`document.forms[0].setAttribute("aria-busy", "false")`);
    await page.keyboard.press("Enter");
    const isDisabled = () => page.isDisabled("button");
    await page.clock.runFor(10);
    await untilShown(isDisabled, { what: "the button to be disabled" });
    expect(await page.getAttribute("form", "aria-busy")).toBe("true");
    // As a browser does it at the next frame.
    await page.evaluate("document.activeElement.blur()");
    await page.clock.runFor(31_000);
    await untilShown(async () => !(await isDisabled()), { what: "the button to be enabled" });
    expect(await page.getAttribute("form", "aria-busy")).toBe("false");
    expect(await page.evaluate("document.activeElement.tagName")).toBe("BUTTON");
    // The page itself disables it in its listener.
    await page.evaluate(`document.forms[0].addEventListener("submit", (event) => {
      event.submitter.disabled = true;
    })`);
    await click();
    await page.clock.runFor(31_000);
    expect(await isDisabled()).toBe(true);
  });

  test("of a dialog does not disable its button", async () => {
    await open("plain", "dialog");
    await click();
    await page.waitForTimeout(50);
    expect(await page.evaluate("document.querySelector('button').disabled")).toBe(false);
  });

  test("works where fields hide the members of their form", async () => {
    await open("plain", "hiding");
    const errors: Error[] = [];
    page.on("pageerror", (error) => errors.push(error));
    // By the mouse: a driver's click asks the form for its attributes, and finds the fields, too.
    const buysHere = async () => {
      await (await mouseOn(page))();
      return await sees();
    };
    const first = await buysHere();
    await goesBack();
    expect(await buysHere()).toBe(first);
    expect(errors).toEqual([]);
  });
});

/** Turbo fetches a page again where the customer goes back to a form that was sent. */
describe.each([
  ["turbo", "another order"],
  ["htmx2", "the last one"],
  ["htmx4", "the last one"],
])("a shop on %s", (router, back) => {
  test(`shows three carts as three orders, and Back as ${back}`, async () => {
    await open(router, "buy");
    await page.evaluate("globalThis.isThisDocument = true");
    const numbers: number[] = [];
    for (let carts = 0; carts < 3; carts++) {
      if (carts > 0) await visitsAgain();
      await isRouted();
      numbers.push(await buys());
      await page.waitForURL(/placed/);
      await isRouted();
    }
    expect(new Set(numbers).size).toBe(3);
    expect(ordersOf()).toEqual(numbers);
    // No document was loaded.
    expect(await page.evaluate("globalThis.isThisDocument")).toBe(true);
    await goesBack();
    numbers.push(await buys());
    const [first = 0] = numbers;
    const next = back === "the last one" ? first + 2 : first + 3;
    expect(numbers).toEqual([first, first + 1, first + 2, next]);
    expect(ordersOf()).toEqual([...new Set(numbers)]);
  });
});

test.each([["htmx2"], ["htmx4"]])(
  "a form with hx-post on %s is one order a double click, and another one after its answer",
  async (router) => {
    await open(router, "swapped");
    let answers = 0;
    const clickTwice = async () => {
      await page.evaluate(`for (const time of [1, 2]) document.querySelector("button").click()`);
      await page.waitForFunction(`globalThis.answers === ${++answers}`);
    };
    await clickTwice();
    const first = await sees();
    await clickTwice();
    expect(ordersOf()).toEqual([first, first + 1]);
    // Not behind an error.
    const ids: (string | null)[] = [];
    await page.route("**/orders", (route) => {
      ids.push(new URLSearchParams(route.request().postData() ?? "").get("submissionId"));
      return route.fulfill({ status: 500, body: "The bank is away" });
    });
    await clickTwice();
    await clickTwice();
    expect(ids).toEqual([expect.stringMatching(/^[0-9a-f-]{36}~/), ids[0]]);
  },
);

test.each([
  ["with an error", "buy"],
  ["in a frame", "framed"],
])("a form that Turbo renders again %s has an id", async (_where, form) => {
  await open("turbo", form);
  const body = (await (await page.request.get(page.url())).text()).replace(
    "<button>",
    "<p role=alert>Please check</p><button>",
  );
  await page.route("**/orders", (route) =>
    route.fulfill({ status: 422, contentType: "text/html", body }),
  );
  await click();
  await page.getByText("Please check").waitFor();
  await page.waitForSelector("form [name=submissionId]", { state: "attached" });
});

test("a refusal without a frame is shown where the form was in one", async () => {
  await open("turbo", "framed");
  await page.route("**/orders", (route) =>
    route.fulfill({ status: 409, contentType: "text/html", body: "<p>Being placed</p>" }),
  );
  await click();
  await page.getByText("Being placed").waitFor();
});

test("a form that Turbo does not send is one order after Back, and another one on a new visit", async () => {
  await open("turbo", "withoutTurbo");
  const first = await buys();
  await goesBack();
  expect(await buys()).toBe(first);
  await visitsAgain();
  expect(await buys()).not.toBe(first);
});

/** Until htmx has looked at a link or a form, the browser follows the one and sends the other. */
async function isRouted(): Promise<void> {
  await page.waitForFunction(`globalThis.htmx === undefined ||
    [...document.querySelectorAll("#again, form")].every(
      (each) => (each._htmx ?? each["htmx-internal-data"])?.boosted,
    )`);
}

/** By a link of the page, which a router follows. */
async function visitsAgain(): Promise<void> {
  await page.click("#again");
  await page.waitForSelector("form button, form [type=image]");
  await ready();
}
