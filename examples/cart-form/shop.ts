// What a shop has in its database, in the memory of this process. Yours is in the transaction.
import { setTimeout as sleep } from "node:timers/promises";

export interface Cart {
  readonly id: string;
  /** Rises with each change of the cart, and with each order. */
  readonly version: number;
}

export interface Order {
  readonly number: number;
  readonly cart: string;
}

const versions = new Map<string, number>();
const orders: Order[] = [];

export async function cartOf(user: string | undefined): Promise<Cart> {
  const id = `cart-of-${user}`;
  return { id, version: versions.get(id) ?? 1 };
}

export async function placeOrder(cart: Cart, signal: AbortSignal | undefined): Promise<Order> {
  await sleep(100, undefined, { signal }); // yours: fetch(provider, { signal, … })
  signal?.throwIfAborted();
  versions.set(cart.id, cart.version + 1);
  const order = { number: orders.length + 1, cart: cart.id };
  orders.push(order);
  return order;
}
