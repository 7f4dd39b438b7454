/** What keeps a payment's order from being placed again, beside `lock.once`. */
export const ways = ["nothing else", "a unique key", "a transaction"] as const;
export type Way = (typeof ways)[number];

/** The transaction has to do without a unique key. */
export const tableOf = (way: Way): string => (way === "a unique key" ? "keyed_orders" : "orders");

/** A call of one door, which stops before each step until it is told to go on. */
export interface DoorCall {
  readonly payment: string;
  readonly way: Way;
  /** Steps before which it does not stop. */
  readonly goes: readonly Step[];
}

/** A call, or to go on behind a stop. */
export type ToDoor = DoorCall | { readonly goOn: true };

/** The steps of a call that has the lock. */
export const steps = ["commit", "return", "record"] as const;
export type Step = (typeof steps)[number];

export type FromDoor =
  | { readonly at: Step }
  | { readonly order: string }
  | { readonly failed: string };
