// Says in words what the answers mean. Their codes stand behind the words, for developers.

/** For each kind of answer: the words of its row, and why a click was refused. */
const kinds = {
  placed: { row: (order) => `order ${order} is placed` },
  surplus: { row: (order) => `order ${order}, one order too many` },
  again: { row: (order) => `order ${order}, the same answer again` },
  "went away": { row: () => "left before the answer" },
  "no answer": { row: () => "no answer" },
  "no server": { row: () => "no server is up" },
  submit_contended: {
    row: () => "refused: one order at a time",
    why: "because the lock lets one order of a customer through at a time",
  },
  idempotency_in_flight: {
    row: () => "asked to wait for the order",
    why: "because this order was still being placed",
  },
  submit_unavailable: {
    row: () => "refused: no lock can be taken",
    why: "because without a lock it could become a second order",
  },
  cart_empty: {
    row: () => "refused: the cart is empty",
    why: "because the cart had been ordered",
  },
  cart_changed: {
    row: () => "refused: the cart has changed",
    why: "because the cart had changed",
  },
  order_stopped: { row: () => "stopped: its lock was lost", why: "because its lock was lost" },
};

/** What the row of a click says while `submitOnce` waits, by the reason. */
const waits = {
  network: "no answer yet, asks again …",
  in_flight: "the order is under way, asks again …",
  unavailable: "refused for now, asks again …",
};
export const waitWords = (reasons) => waits[reasons.at(-1)] ?? "…";

export function kindOf({ status, code, order, isReplay }) {
  // The load balancer says so, which knows no codes.
  if (status === 502) return "no server";
  if (order === undefined) return code;
  return isReplay ? "again" : "placed";
}

export const rowWords = (kind, order) => kinds[kind]?.row(order) ?? "refused";

const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
const numbers = [
  "No",
  "One",
  "Two",
  "Three",
  "Four",
  "Five",
  "Six",
  "Seven",
  "Eight",
  "Nine",
  "Ten",
];
const clicks = (number) => `${numbers[number] ?? number} click${number === 1 ? "" : "s"}`;

/** Whether it went well for the customer; `tone` is good, bad or wait. */
export function verdictOf({ orders, charges }) {
  const both = `${count(orders, "order")} and ${count(charges, "charge")}`;
  if (orders > 1 || charges > 1) {
    return { tone: "bad", text: `Not as it should be: ${both} for one cart.` };
  }
  if (orders === 1 && charges === 1) return { tone: "good", text: `As it should be: ${both}.` };
  if (orders === 1) return { tone: "wait", text: "Not over yet: 1 order, and no charge so far." };
  return { tone: "wait", text: "No order and no charge." };
}

/** What happened, and what it means for the customer. */
export function storyOf(rows, { tone, charges, protection }) {
  const of = (kind) => rows.filter((row) => row.kind === kind);
  const [placed, again] = [of("placed"), of("again")];
  const told = [];
  if (of("went away").length > 0) told.push("The customer left before the answer came.");
  const waited = rows.flatMap((row) => row.waited);
  if (of("no answer").length > 0 || waited.includes("network")) {
    told.push("The connection broke before the answer came.");
  }
  if (waited.length > 0) told.push("The page waited, and asked again by itself.");
  if (of("no server").length > 0) told.push("For a while no server was up.");
  if (placed.length === 1) told.push(`One click placed order ${placed[0].order}.`);
  if (placed.length > 1) told.push(`${clicks(placed.length)} placed an order each.`);
  if (again.length > 0) {
    told.push(`${clicks(again.length)} got the answer of order ${again[0].order} again.`);
  }
  for (const [kind, { why }] of Object.entries(kinds)) {
    const { length } = of(kind);
    if (why === undefined || length === 0) continue;
    told.push(`${clicks(length)} ${length === 1 ? "was" : "were"} refused, ${why}.`);
  }
  if (charges > 1) told.push(`The customer pays ${charges === 2 ? "twice" : `${charges} times`}.`);
  if (tone === "good" && protection === "nothing") {
    told.push("But a second click while the first one is at work is a second order.");
  } else if (tone === "good" && of("submit_contended").length > 0) {
    told.push("The customer pays once, but saw a refusal although the order is placed.");
  } else if (tone === "good" && again.length > 0) {
    told.push("The customer pays once, and every answer shows the order.");
  }
  return told.join(" ");
}
