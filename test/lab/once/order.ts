/** The body of `POST /orders`. A retry sends the same one. */
export interface Order {
  /** The handler's runs are counted under this name. */
  readonly cart: string;
  readonly item: string;
  /** How the handler answers; `throw`: the first run throws, the others answer as `json`. */
  readonly answer: "json" | "large" | "stream" | "throw";
  readonly workMs: number;
  /** How long the first run works, where it is another time. */
  readonly firstRunMs?: number;
  /** Neither counted nor waited for: the order of a measurement of speed. */
  readonly uncounted?: boolean;
}

export interface Receipt {
  readonly order: string;
  readonly user: string;
  readonly item: string;
  readonly note?: string;
}

interface Text {
  readonly type: "application/json" | "text/plain";
  readonly body: string;
}

/** Also outside ASCII, so that a body that was decoded and encoded again would show. */
const largeNote = "Größe 42, grün. ".repeat(5_400);

/** Each run of the handler makes another order, so its answer tells whose and which one it is. */
export function receiptOf({ cart, item, answer }: Order, user: string, run: number): Receipt {
  const receipt = { order: `${cart}/${run}`, user, item };
  return answer === "large" ? { ...receipt, note: largeNote } : receipt;
}

/** The three writes of an order that is answered as a stream. */
export function linesOf(order: Order, user: string, run: number): string[] {
  return Object.entries(receiptOf(order, user, run)).map(([name, value]) => `${name}: ${value}\n`);
}

/** What the client has to receive, whatever stands before the handler. */
export function textOf(order: Order, user: string, run: number): Text {
  return order.answer === "stream"
    ? { type: "text/plain", body: linesOf(order, user, run).join("") }
    : { type: "application/json", body: JSON.stringify(receiptOf(order, user, run)) };
}

export const runsKey = (cart: string): string => `runs:${cart}`;

/** The handler's runs are counted beside the library's keys, in another database of the same server. */
export const countsDb = 1;
