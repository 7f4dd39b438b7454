import type { Database, Sql } from "./database.ts";

interface Item {
  readonly name: string;
  readonly cents: number;
}

export interface Cart {
  readonly id: number;
  readonly version: number;
  readonly items: readonly Item[];
}

/** Which cart the customer saw when they pressed the button. */
export type SeenCart = Pick<Cart, "id" | "version">;

const goods: readonly Item[] = [
  { name: "Coffee beans, 1 kg", cents: 2_190 },
  { name: "Paper filters, 100 pieces", cents: 390 },
  { name: "Mug, blue", cents: 1_250 },
];

/** The cart as it is now; a customer who has none is given one. */
export async function cartOf(db: Sql, userId: string): Promise<Cart> {
  const [cart] = await db.query<Cart>(
    "SELECT id, version, items FROM demo_shop.carts WHERE user_id = $1 ORDER BY id DESC LIMIT 1",
    [userId],
  );
  return cart ?? (await refillCart(db, userId));
}

/** A new cart with something in it. */
export async function refillCart(db: Sql, userId: string): Promise<Cart> {
  const [cart] = await db.query<Cart>(
    `INSERT INTO demo_shop.carts (user_id, items) VALUES ($1, $2) RETURNING id, version, items`,
    [userId, JSON.stringify(goods)],
  );
  return cart as Cart;
}

/** What a page or a form says of the cart that it showed; nothing if it says nothing. */
export function seenCart(body: unknown): SeenCart | undefined {
  const { cart, version } = (body ?? {}) as Record<string, unknown>;
  const [id, of] = [Number(cart), Number(version)];
  // Up to what an integer column holds.
  const isWhole = (value: number) => Number.isInteger(value) && value > 0 && value < 2 ** 31;
  return isWhole(id) && isWhole(of) ? { id, version: of } : undefined;
}

/** What is one submission, whatever the client sends: this cart, as the customer saw it. */
export function submissionOf(body: unknown): string | undefined {
  const seen = seenCart(body);
  return seen && `${seen.id}:${seen.version}`;
}

/** What the customer sees. */
export async function viewOf(db: Database, userId: string): Promise<object> {
  const cart = await cartOf(db, userId);
  const orders = await db.query<{ paid: boolean }>(
    `SELECT number, cart_id AS cart, cents, payment_id IS NOT NULL AS paid
       FROM demo_shop.orders WHERE user_id = $1 ORDER BY number DESC LIMIT 50`,
    [userId],
  );
  const ordering = orders.some(({ paid }) => !paid);
  return {
    cart: cart.id,
    version: cart.version,
    items: cart.items,
    cents: total(cart),
    orders,
    ordering,
  };
}

export function total({ items }: Pick<Cart, "items">): number {
  return items.reduce((cents, item) => cents + item.cents, 0);
}
