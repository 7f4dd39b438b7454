import { setTimeout as sleep } from "node:timers/promises";
import { isSubmitLockError } from "submit-lock";

/** How long placing an order takes: a payment provider is slow. */
export const orderTakesMs = 800;

export interface Item {
  readonly name: string;
  readonly cents: number;
}

export interface Order {
  readonly number: number;
  readonly userId: string;
  readonly cartId: string;
  readonly cents: number;
}

interface Cart {
  readonly id: string;
  items: readonly Item[];
}

const goods: readonly Item[] = [
  { name: "Coffee beans, 1 kg", cents: 2_190 },
  { name: "Paper filters, 100 pieces", cents: 390 },
  { name: "Mug, blue", cents: 1_250 },
];

/** A shop would verify a session or a signed token. These two are the only customers here. */
const usersByToken = new Map([
  ["token-of-ada", "ada"],
  ["token-of-grace", "grace"],
]);

/** Whose request it is, by its `Authorization` header. */
export function userOf(authorization: string | undefined): string | undefined {
  return usersByToken.get(authorization?.replace(/^Bearer /, "") ?? "");
}

/** The same, where there has to be somebody. */
export function signedIn(authorization: string | undefined): string {
  const user = userOf(authorization);
  if (user === undefined) throw new ShopError(401, "sign_in", "Sign in first.");
  return user;
}

/** Something that the customer can be told. */
export class ShopError extends Error {
  readonly status: number;
  readonly code: string;

  constructor(status: number, code: string, message: string) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** Carts and orders, in memory. It knows neither Express nor Koa. */
export class Shop {
  readonly #carts = new Map<string, Cart>();
  readonly #orderByCart = new Map<string, Order>();
  readonly #ordering = new Set<string>();
  #cartsMade = 0;

  /** What the customer sees. */
  view(userId: string): object {
    const { items } = this.#cart(userId);
    const orders = [...this.#orderByCart.values()].filter((order) => order.userId === userId);
    return { items, cents: total(items), orders, ordering: this.#ordering.has(userId) };
  }

  /** A new cart with something in it. */
  refill(userId: string): void {
    this.#carts.set(userId, { id: `cart-${++this.#cartsMade}`, items: goods });
  }

  /**
   * Turns the cart into an order and empties it. The lock keeps a second submission out meanwhile;
   * the empty cart stops one that comes afterwards.
   *
   * @param signal aborts when the lock was lost: then somebody else may be at work on this cart.
   */
  async placeOrder(userId: string, signal: AbortSignal | undefined): Promise<Order> {
    const cart = this.#cart(userId);
    if (cart.items.length === 0) throw new ShopError(422, "cart_empty", "The cart is empty.");
    this.#ordering.add(userId);
    try {
      await charge(total(cart.items), signal);
      // The last moment to stop: what follows is one transaction.
      signal?.throwIfAborted();
      const order = this.#insertOrder(userId, cart);
      cart.items = [];
      return order;
    } finally {
      this.#ordering.delete(userId);
    }
  }

  /** The order table with its own unique key: the last line where a lock could not hold. */
  #insertOrder(userId: string, { id: cartId, items }: Cart): Order {
    if (this.#orderByCart.has(cartId)) {
      throw new ShopError(409, "order_exists", "This cart was ordered already.");
    }
    const number = this.#orderByCart.size + 1;
    const order = { number, userId, cartId, cents: total(items) };
    this.#orderByCart.set(cartId, order);
    return order;
  }

  #cart(userId: string): Cart {
    if (!this.#carts.has(userId)) this.refill(userId);
    return this.#carts.get(userId) as Cart;
  }
}

/** The status and body for an error that a handler threw. */
export function answerTo(error: unknown): {
  status: number;
  body: { code: string; detail: string };
} {
  if (error instanceof ShopError) {
    return { status: error.status, body: { code: error.code, detail: error.message } };
  }
  if (isSubmitLockError(error) && error.code === "SUBMIT_LOCK_LOST") {
    const detail = "The order was stopped, because its lock was lost. Look at your orders.";
    return { status: 503, body: { code: "order_stopped", detail } };
  }
  console.error(error);
  return { status: 500, body: { code: "internal", detail: "Something went wrong." } };
}

function total(items: readonly Item[]): number {
  return items.reduce((cents, item) => cents + item.cents, 0);
}

/** The payment provider. Like a real one it can be told to stop waiting. */
async function charge(_cents: number, signal: AbortSignal | undefined): Promise<void> {
  // `sleep` would reject with an error of its own; the reason says more.
  await sleep(orderTakesMs, undefined, signal && { signal }).catch(() => signal?.throwIfAborted());
}
