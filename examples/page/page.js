// The buttons. Each one is a customer who speaks HTTP with the shop.
import { isRedisAway, isSlow, ordersOf, refresh } from "./status.js";
import { answers, clear, isIdle, onSettled, submit } from "./submits.js";

const at = (id) => document.getElementById(id);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const given = new URLSearchParams(location.search);
const isSecondTab = given.has("tab");
const user = () => at("user").value;
const token = () => `token-of-${user()}`;
const protection = () => document.querySelector("[name=protection]:checked").value;

/** The cart that is shown: a click orders this one, whatever has become of it meanwhile. */
let seen;

async function showCart(method = "GET") {
  const response = await fetch("/cart", {
    method,
    headers: { authorization: `Bearer ${token()}` },
  });
  seen = await response.json();
  const total = (seen.cents / 100).toLocaleString("en", { style: "currency", currency: "EUR" });
  const items = seen.items.map(({ name }) => name).join("; ");
  at("cart").textContent =
    seen.items.length === 0
      ? `Cart ${seen.cart} is empty: it has been ordered.`
      : `Cart ${seen.cart}: ${items}. Total ${total}.`;
}

async function newCart() {
  clear();
  at("summary").className = "";
  at("summary").textContent = "A new cart.";
  await showCart("PUT");
}

function click(options = {}) {
  at("summary").textContent = "Under way …";
  return submit({ protection: protection(), token: token(), seen, ...options });
}

/** Said once the last answer is there, also to a screen reader. */
async function summarise() {
  await refresh(user());
  const { counts, detail } = answers();
  // By now another one may be under way, which summarises when it is over.
  if (counts.size === 0 || !isIdle()) return;
  const told = [...counts].map(([name, times]) => `${times} × ${name}`).join(", ");
  const { orders, charges } = ordersOf(seen.cart);
  at("summary").textContent =
    `Cart ${seen.cart} has ${count(orders, "order")} and ${count(charges, "charge")}. Answers: ${told}. ${detail}`;
  at("summary").className = orders > 1 || charges > 1 ? "bad" : "";
}
onSettled(summarise);

const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

/** Asks until it is told what became of the order. */
async function retry() {
  for (let times = 1; times <= 30; times++) {
    const { status, retryAfter } = await click({ label: `retry ${times}` });
    if (status !== 0 && status !== 409 && status < 500) return;
    await sleep(Math.max(500, 1_000 * (retryAfter ?? 0)));
  }
}

/** For buttons of the demo itself. */
async function tell(path, body = {}) {
  const headers = { "content-type": "application/json" };
  await fetch(`/demo/${path}`, { method: "POST", headers, body: JSON.stringify(body) });
  await refresh(user());
}

const tabs = new BroadcastChannel("submit-lock-demo-tabs");
let wantsTwo = false;
tabs.addEventListener("message", async ({ data }) => {
  if (data.ping && isSecondTab) tabs.postMessage({ ready: true });
  if (data.ready && wantsTwo) {
    wantsTwo = false;
    tabs.postMessage({ click: { seen, protection: protection(), user: user() } });
    await click();
  }
  if (data.click && isSecondTab) {
    ({ seen } = data.click);
    at("user").value = data.click.user;
    document.querySelector(`[value=${data.click.protection}]`).checked = true;
    clear();
    await click();
  }
});

const buttons = {
  order: () => click(),
  refill: newCart,
  async double() {
    await newCart();
    const first = click();
    await sleep(150);
    await Promise.all([first, click()]);
  },
  async ten() {
    await newCart();
    await Promise.all(Array.from({ length: 10 }, () => click()));
  },
  async leave() {
    await newCart();
    const leaving = new AbortController();
    setTimeout(() => leaving.abort(), 300);
    await click({ signal: leaving.signal });
    await retry();
  },
  async late() {
    await newCart();
    await click();
    await sleep(400);
    await click({ label: "late click" });
  },
  async tabs() {
    await newCart();
    wantsTwo = true;
    tabs.postMessage({ ping: true });
    await sleep(200);
    if (wantsTwo) window.open("/?tab=2", "submit-lock-second-tab");
  },
  slow: () => tell("latency", { latencyMs: isSlow() ? 800 : 5_000 }),
  async lose() {
    await newCart();
    await tell("lose-reply");
    await click();
  },
  redis: () => tell("redis", { away: !isRedisAway() }),
  async kill() {
    await newCart();
    const first = click();
    await sleep(400);
    await tell("kill");
    await first;
    await retry();
  },
};
for (const [id, press] of Object.entries(buttons)) at(id).addEventListener("click", () => press());
at("user").addEventListener("change", () => showCart().then(clear));
at("protection").addEventListener("change", newCart);

if (isSecondTab) document.title = "Checkout, second tab";
await showCart();
if (seen.items.length === 0) await showCart("PUT");
await refresh(user());
tabs.postMessage({ ready: isSecondTab });
setInterval(() => document.hidden || refresh(user()), 500);
document.documentElement.dataset.ready = "true";
