// The submits of this page, each a bar on one time axis.
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

/** What came back, and how often; and what the last answer says to the customer. */
export function answers() {
  const counts = new Map();
  let detail = "";
  for (const { row } of rows.values()) {
    const name = row.status || row.text;
    counts.set(name, (counts.get(name) ?? 0) + 1);
    detail = row.detail ?? "";
  }
  return { counts, detail };
}

/** Begins a new axis. */
export function clear() {
  for (const { li } of rows.values()) li.remove();
  rows.clear();
  shown = 0;
}

/**
 * One submission of the cart that the customer saw.
 *
 * @returns `{ status, retryAfter, order, isReplay }`; status 0 where there was no answer.
 */
export async function submit({ protection, token, seen, signal, label }) {
  const lastEnd = Math.max(0, ...[...rows.values()].map(({ row }) => row.endMs ?? Infinity));
  if (rows.size > 0 && now() - lastEnd > idleMs) clear();
  const row = { id: crypto.randomUUID(), label: label ?? `click ${++shown}`, startMs: now() };
  publish(row);
  const answer = await ask({ protection, token, seen, signal });
  publish({ ...row, endMs: now(), ...told(answer) });
  return answer;
}

async function ask({ protection, token, seen, signal }) {
  try {
    const response = await fetch(paths[protection], {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: JSON.stringify({ cart: seen.cart, version: seen.version }),
      signal,
    });
    const body = await response.json().catch(() => ({}));
    return {
      status: response.status,
      code: body.code,
      detail: body.detail,
      order: body.number,
      isReplay: response.headers.get("idempotent-replayed") === "true",
      retryAfter: Number(response.headers.get("retry-after") ?? 0),
    };
  } catch {
    return { status: 0, code: signal?.aborted ? "went away" : "no answer" };
  }
}

function told({ status, code, detail, order, isReplay }) {
  if (status === 0) return { status, text: code, tone: code === "went away" ? "" : "bad" };
  const text = `${status} ${order === undefined ? (code ?? "") : `order ${order}`}${isReplay ? ", again" : ""}`;
  const tone = status < 400 ? "good" : status < 500 ? "wait" : "bad";
  return { status, text, tone, isReplay, detail };
}

function publish(row) {
  show(row);
  tabs.postMessage({ row });
}

function show(row) {
  if (rows.size === 0) since = row.startMs;
  since = Math.min(since, row.startMs);
  const li = rows.get(row.id)?.li ?? newLine(row);
  rows.set(row.id, { row, li });
  const [, track, answer] = li.children;
  li.className = row.tone ?? "";
  track.firstChild.className = `bar ${row.endMs === undefined ? "waiting" : ""} ${row.isReplay ? "again" : ""}`;
  answer.textContent =
    row.text === undefined ? "…" : `${row.text} (${Math.round(row.endMs - row.startMs)} ms)`;
  draw();
  if (isIdle()) settled();
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
