import { isRetryable, type SqlSubmission } from "submit-lock/sql";
import { type Cart, cartOf, type SeenCart, total } from "./carts.ts";
import type { Database, Sql } from "./database.ts";
import { ShopError } from "./errors.ts";
import type { Payments } from "./payments.ts";
import { submissions } from "./schema.ts";

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
  readonly submission?: SqlSubmission | undefined;
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

  /** What commits together: the cart's fence, the order, the stock and the outbox. */
  async function place(tx: Sql): Promise<{ number: number }> {
    // The fence lies on the cart: whoever comes with an older token was paused beyond its lease.
    const [cart] = await tx.query<Cart>(
      `UPDATE demo_shop.carts SET fence = $3 WHERE id = $1 AND user_id = $2 AND fence <= $3
       RETURNING id, version, items`,
      [seen.id, userId, fence],
    );
    if (cart === undefined) throw changed();
    if (cart.items.length === 0) throw new ShopError(422, "cart_empty", "The cart is empty.");
    if (cart.version !== seen.version) throw changed();
    const [placed] = await tx.query<{ number: number }>(
      `INSERT INTO demo_shop.orders (user_id, cart_id, cents, submission_id)
       VALUES ($1, $2, $3, $4) RETURNING number`,
      [userId, cart.id, total(cart), submission?.id],
    );
    const { number } = placed as { number: number };
    const sold = cart.items.map(({ name }) => name);
    await tx.query("UPDATE demo_shop.stock SET pieces = pieces - 1 WHERE item = ANY($1)", [sold]);
    await tell(tx, "order.placed", number);
    lease?.signal.throwIfAborted();
    return { number };
  }

  // A second run finds the first one's number, and does none of this again.
  const { number } = await inTransaction(db, async (tx) =>
    submission === undefined
      ? await place(tx)
      : (await submissions.once(tx, submission, () => place(tx))).value,
  );
  const [found] = await db.query<Order>(`SELECT ${ORDER} FROM demo_shop.orders WHERE number = $1`, [
    number,
  ]);
  const order = found as Order;
  if (order.paymentId !== null) return order;

  // No transaction can undo a charge, so the order is there before it, and its number is the key.
  const { cents } = order;
  const paymentId = await payments.charge({ orderNumber: number, cents }, lease?.signal);

  return await inTransaction(db, async (tx) => {
    // Only the first of several runs changes it, so only that one tells it.
    const [paid] = await tx.query<Order>(
      `UPDATE demo_shop.orders SET payment_id = $2 WHERE number = $1 AND payment_id IS NULL
       RETURNING ${ORDER}`,
      [number, paymentId],
    );
    if (paid === undefined) return { ...order, paymentId };
    const emptied = await tx.query(
      `UPDATE demo_shop.carts SET items = '[]', version = version + 1
       WHERE id = $1 AND fence <= $2 RETURNING id`,
      [order.cart, fence],
    );
    if (emptied.length === 0) throw changed();
    await tell(tx, "order.paid", number);
    return paid;
  });
}

async function tell(tx: Sql, topic: string, number: number): Promise<void> {
  const outbox = "INSERT INTO demo_shop.outbox (topic, order_number) VALUES ($1, $2)";
  await tx.query(outbox, [topic, number]);
}

/** The transaction again where the database asks for it: a conflict, or a deadlock. */
async function inTransaction<Result>(
  db: Database,
  work: (tx: Sql) => Promise<Result>,
): Promise<Result> {
  for (let tries = 1; ; tries++) {
    try {
      return await db.transaction(work);
    } catch (error) {
      if (tries === 5 || !isRetryable(error)) throw error;
    }
  }
}

function changed(): ShopError {
  return new ShopError(409, "cart_changed", "Your cart has changed. Please look at it again.");
}
