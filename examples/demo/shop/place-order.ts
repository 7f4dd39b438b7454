import { type Cart, cartOf, type SeenCart, total } from "./carts.ts";
import type { Database } from "./database.ts";
import { ShopError } from "./errors.ts";
import type { Payments } from "./payments.ts";

export interface Shop {
  readonly db: Database;
  readonly payments: Payments;
}

export interface Order {
  readonly number: number;
  readonly userId: string;
  readonly cart: number;
  readonly cents: number;
  readonly paymentId: string | null;
}

/** Who orders what, and what the guard knows of it. */
export interface Checkout {
  readonly userId: string;
  /** What the customer saw; without it, the cart as it is now. */
  readonly seen?: SeenCart | undefined;
  /** `req.submission`: the same on every retry. */
  readonly submission?: { readonly id: string } | undefined;
  /** `req.submitLease`: its `signal` aborts when the lock was lost. */
  readonly lease?:
    | { readonly signal: AbortSignal; readonly fencingToken?: number | undefined }
    | undefined;
}

const ORDER = `number, user_id AS "userId", cart_id AS "cart", cents, payment_id AS "paymentId"`;

/** Turns a cart into an order that is paid. A second run of a submission goes on with the first's. */
export async function placeOrder({ db, payments }: Shop, checkout: Checkout): Promise<Order> {
  const { userId, submission, lease } = checkout;
  const seen = checkout.seen ?? (await cartOf(db, userId));
  const fence = lease?.fencingToken ?? 0;

  // The fence lies on the cart: whoever comes with an older token was paused beyond its lease.
  const order = await db.transaction(async (tx) => {
    const [cart] = await tx.query<Cart>(
      `UPDATE demo_shop.carts SET fence = $3 WHERE id = $1 AND user_id = $2 AND fence <= $3
       RETURNING id, version, items`,
      [seen.id, userId, fence],
    );
    if (cart === undefined) throw changed();
    const [earlier] = await tx.query<Order>(
      `SELECT ${ORDER} FROM demo_shop.orders WHERE submission_id = $1`,
      [submission?.id],
    );
    if (earlier !== undefined) return earlier;
    if (cart.items.length === 0) throw new ShopError(422, "cart_empty", "The cart is empty.");
    if (cart.version !== seen.version) throw changed();
    const [placed] = await tx.query<Order>(
      `INSERT INTO demo_shop.orders (user_id, cart_id, cents, submission_id)
       VALUES ($1, $2, $3, $4) RETURNING ${ORDER}`,
      [userId, cart.id, total(cart), submission?.id],
    );
    return placed as Order;
  });
  if (order.paymentId !== null) return order;

  // No transaction can undo a charge, so the order is there before it, and its number is the key.
  const { number: orderNumber, cents } = order;
  const paymentId = await payments.charge({ orderNumber, cents }, lease?.signal);

  return await db.transaction(async (tx) => {
    const emptied = await tx.query(
      `UPDATE demo_shop.carts SET items = '[]', version = version + 1
       WHERE id = $1 AND fence <= $2 RETURNING id`,
      [order.cart, fence],
    );
    if (emptied.length === 0) throw changed();
    await tx.query("INSERT INTO demo_shop.outbox (topic, order_number) VALUES ('order.paid', $1)", [
      orderNumber,
    ]);
    const [paid] = await tx.query<Order>(
      `UPDATE demo_shop.orders SET payment_id = $2 WHERE number = $1 RETURNING ${ORDER}`,
      [orderNumber, paymentId],
    );
    return paid as Order;
  });
}

function changed(): ShopError {
  return new ShopError(409, "cart_changed", "Your cart has changed. Please look at it again.");
}
