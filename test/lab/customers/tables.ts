import type { Charged } from "../../../examples/payments/provider.ts";
import type { Database } from "../../../examples/shop/database.ts";

/** What stands in the database and in the provider's books when all is over. */
export interface Tables {
  readonly carts: number;
  readonly orders: number;
  /** Carts that were ordered; of them, those with more than one order. */
  readonly orderedCarts: number;
  readonly cartsOrderedTwice: number;
  readonly paidOrders: number;
  readonly outboxRows: number;
  readonly charges: number;
  readonly ordersChargedTwice: number;
  readonly ordersNeverCharged: number;
  /** The order of each cart. */
  readonly orderOf: ReadonlyMap<number, number>;
}

interface Row {
  readonly number: number;
  readonly cart: number;
  readonly paid: boolean;
}

export async function countTables(db: Database, charges: readonly Charged[]): Promise<Tables> {
  const rows = await db.query<Row>(
    "SELECT number, cart_id AS cart, payment_id IS NOT NULL AS paid FROM demo_shop.orders",
  );
  const [carts] = await db.query<{ count: number }>(
    "SELECT count(*)::integer AS count FROM demo_shop.carts",
  );
  const [outbox] = await db.query<{ count: number }>(
    "SELECT count(*)::integer AS count FROM demo_shop.outbox",
  );
  const ordersOfCart = countBy(rows.map(({ cart }) => cart));
  const chargesOfOrder = countBy(charges.map(({ orderNumber }) => orderNumber));
  const twice = (counts: Map<number, number>) => [...counts.values()].filter((n) => n > 1).length;
  return {
    carts: carts?.count ?? 0,
    orders: rows.length,
    orderedCarts: ordersOfCart.size,
    cartsOrderedTwice: twice(ordersOfCart),
    paidOrders: rows.filter(({ paid }) => paid).length,
    outboxRows: outbox?.count ?? 0,
    charges: charges.length,
    ordersChargedTwice: twice(chargesOfOrder),
    ordersNeverCharged: rows.filter(({ number }) => !chargesOfOrder.has(number)).length,
    orderOf: new Map(rows.map(({ cart, number }) => [cart, number])),
  };
}

function countBy(values: readonly number[]): Map<number, number> {
  const counts = new Map<number, number>();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return counts;
}
