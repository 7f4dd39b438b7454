// The submits of this page, each a bar on one time axis.
import { submitOnce } from "submit-lock/browser";
import { kindOf, rowWords, waitWords } from "./words.js";

const at = (id) => document.getElementById(id);
const paths = { nothing: "/nothing/orders", lock: "/lock/orders", once: "/orders" };
/** An axis that nothing came to for so long makes room for a new one. */
const idleMs = 5_000;

const now = () => performance.timeOrigin + performance.now();
const rows = new Map();
let since = 0;
let shown = 0;

/** What other tabs of this browser do is on the axis, too. */
const tabs = new BroadcastChannel("submit-lock-demo");
tabs.addEventListener("message", ({ data }) => {
  if (data.row) show({ ...data.row, label: `other tab, ${data.row.label}` });
});

/** Whether every answer on the axis is there. */
export const isIdle = () => [...rows.values()].every(({ row }) => row.endMs !== undefined);
let settled = () => {};

/** Calls `callback` whenever every answer on the axis is there. */
export function onSettled(callback) {
  settled = callback;
}

/** The answers on the axis, each with its `kind`, its `order` and what it `waited` for. */
export const answers = () =>
  [...rows.values()].map(({ row }) => row).filter(({ endMs }) => endMs !== undefined);

/** Begins a new axis. */
export function clear() {
  for (const { li } of rows.values()) li.remove();
  rows.clear();
  shown = 0;
  at("legend").hidden = true;
}

/**
 * One submission of the cart that the customer saw.
 *
 * @returns `{ status, code, order, isReplay }`; status 0 where there was no answer.
 */
export async function submit({ protection, token, seen, signal, label }) {
  const lastEnd = Math.max(0, ...[...rows.values()].map(({ row }) => row.endMs ?? Infinity));
  if (rows.size > 0 && now() - lastEnd > idleMs) clear();
  const id = crypto.randomUUID();
  const waited = [];
  const row = { id, cart: seen.cart, label: label ?? `click ${++shown}`, startMs: now(), waited };
  publish(row);
  const onWaiting = ({ reason }) => {
    waited.push(reason);
    publish(row);
  };
  const answer = await ask({ protection, token, seen, signal, onWaiting });
  publish({ ...row, endMs: now(), ...told(answer, seen.cart) });
  return answer;
}

async function ask({ protection, token, seen, signal, onWaiting }) {
  const { cart, version } = seen;
  // `fetch` ignores `init.once`.
  const send = protection === "once" ? submitOnce : fetch;
  try {
    const response = await send(paths[protection], {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: JSON.stringify({ cart, version }),
      signal,
      once: { name: `cart:${cart}`, id: `${cart}:${version}`, onWaiting },
    });
    return await read(response);
  } catch (error) {
    if (signal?.aborted) return { status: 0, code: "went away" };
    // `submitOnce` has given up, and has kept the last answer.
    if (error.cause instanceof Response) return await read(error.cause);
    return { status: 0, code: "no answer" };
  }
}

async function read(response) {
  const body = await response.json().catch(() => ({}));
  return {
    status: response.status,
    code: body.code,
    order: body.number,
    isReplay: response.headers.get("idempotent-replayed") === "true",
  };
}

function told(answer, cart) {
  const { status, code, order } = answer;
  const placed = answers().filter((other) => other.kind === "placed" && other.cart === cart);
  // Clicks of one page share a request, and get its answer one after the other.
  const isReplay = answer.isReplay || placed.some((other) => other.order === order);
  const kind = kindOf({ ...answer, isReplay });
  // Nothing came back that would have a code.
  const codes = status === 0 ? "" : `${status}${code === undefined ? "" : ` ${code}`}, `;
  const isSurplus = kind === "placed" && placed.length > 0;
  const words = rowWords(isSurplus ? "surplus" : kind, order);
  const isBad = isSurplus || status >= 500 || kind === "no answer";
  const tone = isBad ? "bad" : status >= 400 ? "wait" : status > 0 ? "good" : "";
  return { kind, words, codes, tone, order, isReplay };
}

function publish(row) {
  show(row);
  tabs.postMessage({ row });
}

function show(row) {
  // It began before the axis was cleared.
  if (row.endMs !== undefined && !rows.has(row.id)) return;
  if (rows.size === 0) since = row.startMs;
  since = Math.min(since, row.startMs);
  const li = rows.get(row.id)?.li ?? newLine(row);
  rows.set(row.id, { row, li });
  const [, track, answer] = li.children;
  li.className = row.tone ?? "";
  track.firstChild.className = `bar ${row.endMs === undefined ? "waiting" : ""} ${row.isReplay ? "again" : ""}`;
  if (row.endMs === undefined) answer.textContent = waitWords(row.waited);
  else showAnswer(answer, row);
  showLegend();
  draw();
  if (isIdle()) settled();
}

/** The words first, the code behind them. */
function showAnswer(answer, { words, codes, startMs, endMs }) {
  const small = document.createElement("small");
  small.textContent = `${codes}${Math.round(endMs - startMs)} ms`;
  answer.replaceChildren(`${words} `, small);
}

function showLegend() {
  const hatched = answers().some(({ isReplay }) => isReplay);
  const text = `A bar lasts from a click to its answer.${hatched ? " A hatched bar got the answer of an earlier one." : ""}`;
  if (at("legend").textContent !== text) at("legend").textContent = text;
  at("legend").hidden = false;
}

function newLine({ label }) {
  const li = document.createElement("li");
  const [name, track, answer] = ["label", "track", "answer"].map((className) => {
    const span = document.createElement("span");
    span.className = className;
    li.append(span);
    return span;
  });
  name.textContent = label;
  track.append(document.createElement("span"));
  track.setAttribute("aria-hidden", "true");
  answer.textContent = "…";
  at("submits").append(li);
  return li;
}

function draw() {
  const all = [...rows.values()];
  const ends = all.map(({ row }) => row.endMs ?? now());
  const wholeMs = Math.max(500, ...ends.map((endMs) => endMs - since));
  for (const { row, li } of all) {
    const { style } = li.children[1].firstChild;
    style.left = `${((row.startMs - since) / wholeMs) * 100}%`;
    style.width = `${(((row.endMs ?? now()) - row.startMs) / wholeMs) * 100}%`;
  }
  at("middle").textContent = Math.round(wholeMs / 2);
  at("end").textContent = `${Math.round(wholeMs)} ms`;
}

setInterval(() => {
  if (!isIdle()) draw();
}, 100);
