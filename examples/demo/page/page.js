// The buttons. Each one is a customer who speaks HTTP with the shop.
import { isRedisAway, isSlow, ordersOf, refresh } from "./status.js";
import { answers, clear, isIdle, onSettled, submit } from "./submits.js";
import { storyOf, verdictOf } from "./words.js";

const at = (id) => document.getElementById(id);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const given = new URLSearchParams(location.search);
const isSecondTab = given.has("tab");
const user = () => at("user").value;
const token = () => `token-of-${user()}`;
const protection = () => document.querySelector("[name=protection]:checked").value;

/** The cart that is shown: a click orders this one, whatever has become of it meanwhile. */
let seen;
/** The last thing that the customer did: "next" repeats it with more protection. */
let repeats = "double";
/** What explains a wait that the answers do not explain. */
let note = "";

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
  wantsTwo = false;
  note = "";
  say({ text: "A new cart." });
  await showCart("PUT");
}

const names = { nothing: "nothing", lock: "the lock", once: "the lock and “once”" };

/** Also said to a screen reader. */
function say({ text, tone = "", story = note }) {
  const name = protection() === "nothing" ? "nothing to protect the order" : names[protection()];
  at("result-title").textContent = `What happened with ${name}`;
  at("verdict").className = tone;
  at("verdict").textContent = text;
  at("story").textContent = story;
  at("next-line").hidden = true;
}

function click(options = {}) {
  say({ text: "Under way …" });
  return submit({ protection: protection(), token: token(), seen, ...options });
}

/** Said once the last answer is there. */
async function summarise() {
  if (!(await refresh(user()))) return;
  const rows = answers().filter(({ cart }) => cart === seen.cart);
  // By now another one may be under way, which summarises when it is over.
  if (rows.length === 0 || !isIdle()) return;
  const facts = ordersOf(seen.cart);
  const verdict = verdictOf(facts);
  const told = storyOf(rows, { ...facts, ...verdict, protection: protection() });
  say({ ...verdict, story: `${told} ${note}`.trim() });
  offerNext();
}
onSettled(summarise);

const nexts = { nothing: "lock", lock: "once" };

function offerNext() {
  const next = nexts[protection()];
  if (next === undefined) return;
  at("next").textContent = `Now the same with ${names[next]}`;
  at("next-line").hidden = false;
}

/** The result is below the buttons, and on a phone out of sight. */
function reveal() {
  const { top } = at("result").getBoundingClientRect();
  if (top >= 0 && top + 240 <= innerHeight) return;
  const isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  at("result").scrollIntoView({ behavior: isCalm ? "auto" : "smooth" });
}

/** When there was no other click for so long: the button stays below an impatient finger. */
const revealAfterMs = 700;
let revealing;
function revealSoon() {
  clearTimeout(revealing);
  revealing = setTimeout(reveal, revealAfterMs);
}

/** A customer clicks until the order is placed or refused. `submitOnce` does that for them. */
async function untilAnswered(answer) {
  for (let clicks = 1; clicks < 30; clicks++) {
    const { status } = await answer;
    if (status !== 0 && status !== 409 && status < 500) return;
    await sleep(1_000);
    answer = click();
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

/** What a customer does; the result is shown. */
const scenes = {
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
    await untilAnswered(click());
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
  async lose() {
    await newCart();
    await tell("lose-reply");
    await click();
  },
  async kill() {
    await newCart();
    note =
      protection() === "nothing"
        ? "A server is killed meanwhile."
        : "A server is killed meanwhile. It cannot release its lock, which runs out by itself after 5 seconds.";
    const first = click();
    await sleep(400);
    await tell("kill");
    await untilAnswered(first);
  },
};
const buttons = {
  order() {
    revealSoon();
    return click();
  },
  refill: newCart,
  slow: () => tell("latency", { latencyMs: isSlow() ? 800 : 5_000 }),
  redis: () => tell("redis", { away: !isRedisAway() }),
  next() {
    document.querySelector(`[value=${nexts[protection()]}]`).checked = true;
    return play(repeats);
  },
};
for (const id of Object.keys(scenes)) buttons[id] = () => play(id);

/** Two scenes at once would be mixed on the axis. */
let isPlaying = false;
function setPlaying(is) {
  isPlaying = is;
  at("protection").disabled = is;
  at("user").disabled = is;
  // Not `disabled`, which would take the focus away.
  for (const id of Object.keys(buttons)) at(id).ariaDisabled = is && !isSwitch(id);
}

/** What is broken behind the shop may also change in the middle of a scene. */
const isSwitch = (id) => at(id).ariaPressed !== null;

async function play(scene) {
  setPlaying(true);
  repeats = scene;
  reveal();
  try {
    await scenes[scene]();
  } finally {
    setPlaying(false);
  }
}

for (const [id, press] of Object.entries(buttons)) {
  at(id).addEventListener("click", () => (isPlaying && !isSwitch(id) ? undefined : press()));
}
at("user").addEventListener("change", () => showCart().then(clear));
at("protection").addEventListener("change", newCart);

if (isSecondTab) document.title = "Checkout, second tab";
await showCart();
if (seen.items.length === 0) await showCart("PUT");
await refresh(user());
tabs.postMessage({ ready: isSecondTab });
setInterval(() => document.hidden || refresh(user()), 500);
document.documentElement.dataset.ready = "true";
