import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { type ShopServer, startProcess } from "../../../examples/demo/servers.ts";
import { type Charged, PaymentProvider } from "../../../examples/payments/provider.ts";
import { type Database, openDatabase } from "../../../examples/shop/database.ts";
import { labClients } from "../client-name.ts";
import { Random } from "../simulation/time/random.ts";
import { beImpatient, type Customer } from "./customer.ts";

export interface CrowdOptions {
  readonly isProtected: boolean;
  readonly customers: number;
  /** How many are in the shop at a time. */
  readonly atOnce: number;
  readonly seed: number;
  readonly redisUrl: string;
  readonly databaseUrl: string;
  /** After which the customers give up. */
  readonly boundMs: number;
}

export interface Seen {
  readonly customers: readonly Customer[];
  readonly tables: Tables;
  readonly kills: number;
  readonly lostReplies: number;
  readonly tookMs: number;
}

const example = (name: string) =>
  fileURLToPath(new URL(`../../../examples/${name}-checkout.ts`, import.meta.url));

/** One shop of two processes, Express and Koa, with everything that goes wrong in it. */
export async function playCrowd(options: CrowdOptions): Promise<Seen> {
  const { isProtected, redisUrl, databaseUrl, seed } = options;
  const from = performance.now();
  const source = new Random(seed);
  const random = () => source.next();
  let lostReplies = 0;
  const provider = new PaymentProvider({
    latencyMs: 200,
    losesReply: () => {
      const isLost = random() < 0.1;
      if (isLost) lostReplies++;
      return isLost;
    },
  });
  const db = await openDatabase(databaseUrl);
  await db.query("TRUNCATE demo_shop.outbox, demo_shop.orders, demo_shop.carts");
  const env = {
    REDIS_URL: redisUrl,
    DATABASE_URL: databaseUrl,
    PAYMENTS_URL: await provider.listen(),
    PAYMENTS_KEYED: isProtected ? "yes" : "no",
    ...clientEnv(),
  };
  const start = (name: string) => startProcess(name, { file: example(name), env });
  const servers = await Promise.all([start("express"), start("koa")]);
  const killing = new AbortController();
  const kills = killNowAndThen(servers, random, killing.signal);
  try {
    const path = isProtected ? "/orders" : "/nothing/orders";
    const endMs = from + options.boundMs;
    const customers: Customer[] = [];
    let next = 0;
    const enter = async () => {
      while (next < options.customers) {
        const name = `${isProtected ? "on" : "off"}-${next++}`;
        customers.push(await beImpatient(name, { path, servers, random, endMs }));
      }
    };
    await Promise.all(Array.from({ length: options.atOnce }, enter));
    killing.abort();
    const killed = await kills;
    // Orders whose customer has left are still being placed.
    await Promise.all(servers.map((server) => server.close()));
    const tables = await countTables(db, provider.charges);
    return { customers, tables, kills: killed, lostReplies, tookMs: performance.now() - from };
  } finally {
    killing.abort();
    await Promise.all(servers.map((server) => server.close()));
    provider.close();
    await db.close();
  }
}

/** The example shop knows ioredis and node-redis, and not their versions. */
export function clientEnv(): NodeJS.ProcessEnv {
  return labClients()[0] === "node-redis 6" ? { REDIS_CLIENT: "node-redis" } : {};
}

/** Never both at a time: then there would be nobody to be impatient with. */
async function killNowAndThen(
  servers: readonly ShopServer[],
  random: () => number,
  signal: AbortSignal,
): Promise<number> {
  let kills = 0;
  while (!signal.aborted) {
    await sleep(1_500 + 1_500 * random(), undefined, { signal }).catch(() => {});
    if (signal.aborted || servers.some(({ port }) => port === undefined)) continue;
    servers[kills++ % servers.length]?.kill?.();
  }
  return kills;
}

/** What stands in the database and in the provider's books when all is over. */
interface Tables {
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

async function countTables(db: Database, charges: readonly Charged[]): Promise<Tables> {
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
