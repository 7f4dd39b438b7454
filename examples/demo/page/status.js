// What the shop says of itself: the order table, the lock, the servers and what can be pressed.
const at = (id) => document.getElementById(id);
const euros = (cents) => (cents / 100).toLocaleString("en", { style: "currency", currency: "EUR" });
const seconds = (ms) => `${(Math.max(ms, 0) / 1_000).toFixed(1)} s`;

let state = { orders: [], disabled: {} };
let last = "";

/** The orders of a cart, and how often they were charged. */
export function ordersOf(cart) {
  const orders = state.orders.filter((order) => order.cart === cart);
  return { orders: orders.length, charges: orders.reduce((sum, { charges }) => sum + charges, 0) };
}

/** @returns false where the demo has ended. */
export async function refresh(user) {
  try {
    const response = await fetch(`/demo/state?user=${user}`);
    state = await response.json();
  } catch {
    at("servers").textContent = "The demo has ended. Start it again with npm run demo.";
    return false;
  }
  showLock(state);
  showOrders(state.orders);
  showServers(state);
  showDisabled(state.disabled);
  return true;
}

function pairs(list) {
  return list.flatMap(([name, value]) => {
    const [dt, dd] = [document.createElement("dt"), document.createElement("dd")];
    dt.textContent = name;
    dd.textContent = value;
    return [dt, dd];
  });
}

function showLock({ lock, redis }) {
  // The demo itself still reaches Redis. The servers do not, and the page looks through their eyes.
  const isAway = redis === "away";
  const list = [["State", isAway ? "unknown: Redis is away" : (lock?.state ?? "unknown")]];
  if (!isAway && lock?.holder) list.push(["Holder", lock.holder]);
  if (!isAway && lock?.heldMs !== undefined) list.push(["Held for", seconds(lock.heldMs)]);
  if (!isAway && lock?.expiresInMs !== undefined) {
    list.push(["Expires in", seconds(lock.expiresInMs)]);
  }
  at("lock").replaceChildren(...pairs(list));
}

function showOrders(orders) {
  // Untouched where nothing has changed, so that a reader is not thrown out of the table.
  const text = JSON.stringify(orders);
  if (text === last) return;
  last = text;
  const lines = orders.map(({ number, user, cart, cents, paid, charges }) => {
    const tr = document.createElement("tr");
    const ofCart = orders.filter((order) => order.cart === cart).length;
    const isTwice = ofCart > 1;
    tr.className = isTwice || charges > 1 ? "twice" : "";
    const cartText = isTwice ? `${cart}, ${ofCart} orders` : cart;
    const cells = [number, user, cartText, `${euros(cents)}${paid ? "" : ", unpaid"}`, charges];
    for (const cell of cells) tr.insertCell().textContent = cell;
    return tr;
  });
  at("orders").replaceChildren(...lines);
}

function showServers({ framework, servers, redis }) {
  const all = servers.map(({ name, isUp }) => `${name} ${isUp ? "is up" : "is down"}`).join(", ");
  const where =
    redis === null
      ? "The lock is kept in memory."
      : redis === "away"
        ? "Redis, which keeps the lock, does not answer them."
        : "Redis, which keeps the lock, answers them.";
  at("servers").textContent = `${framework}: ${all}. ${where}`;
  at("redis").setAttribute("aria-pressed", String(redis === "away"));
  at("slow").setAttribute("aria-pressed", String(state.latencyMs > 1_000));
}

function showDisabled(disabled) {
  const reasons = new Map();
  for (const [id, reason] of Object.entries(disabled)) {
    const button = at(id);
    button.disabled = reason !== null;
    if (reason === null) continue;
    reasons.set(reason, [...(reasons.get(reason) ?? []), `“${button.textContent}”`]);
    button.setAttribute("aria-describedby", "why");
  }
  const texts = [...reasons].map(([reason, names]) => `${names.join(" and ")} ${reason}.`);
  if (at("why").textContent !== texts.join(" ")) at("why").textContent = texts.join(" ");
  at("why").hidden = texts.length === 0;
}

export const isSlow = () => state.latencyMs > 1_000;
export const isRedisAway = () => state.redis === "away";
