import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { givenPostgres } from "../../support/postgres-server.ts";
import { serverBinary, serverVersion } from "../../support/server-binary.ts";
import { startServer } from "../../support/server-process.ts";
import { clientEnv, playCrowd, type Seen } from "./crowd.ts";

/**
 * `npm run lab -- customers`: a thousand impatient customers in the example shop, on two server processes
 * (Express and Koa), a real Redis and a real PostgreSQL, with servers killed and payment replies
 * lost; once with everything that protects an order, and once with nothing. `CUSTOMERS`,
 * `CUSTOMERS_SEED` and `DATABASE_URL` say otherwise. At most six minutes.
 */
const customers = Number(process.env["CUSTOMERS"] ?? 1_000);
const seed = Number(process.env["CUSTOMERS_SEED"] ?? Math.floor(Math.random() * 2 ** 32));
const binary = serverBinary();
const redis = await startServer(binary);
const postgres = await givenPostgres();
console.log(
  `${customers} customers with CUSTOMERS_SEED=${seed}; ${serverVersion(binary)}, PostgreSQL ${postgres.version}, Node ${process.version}`,
);
try {
  playOnce(redis.url, postgres.url);
  const play = (isProtected: boolean) =>
    playCrowd({
      isProtected,
      customers,
      seed,
      atOnce: 40,
      redisUrl: redis.url,
      databaseUrl: postgres.url,
      boundMs: 180_000,
    });
  const on = await play(true);
  const off = await play(false);
  console.table({ protected: row(on), "with nothing": row(off) });
  const missed = misses(on);
  for (const miss of missed.slice(0, 20)) console.log(`MISSED: ${miss}`);
  console.log(`Protected: ${missed.length} misses. With nothing: ${tooMany(off)}.`);
  process.exitCode = missed.length === 0 ? 0 : 1;
} finally {
  await postgres.stop();
  await redis.stop();
}

/** The terminal play of the demo, on the same two servers. */
function playOnce(redisUrl: string, databaseUrl: string): void {
  const root = fileURLToPath(new URL("../../..", import.meta.url));
  const shop = { PORT: "0", REDIS_URL: redisUrl, DATABASE_URL: databaseUrl };
  const env = { ...process.env, ...shop, ...clientEnv() };
  const args = ["--import", "tsx", "examples/express-checkout.ts", "--once"];
  const options = { cwd: root, env, encoding: "utf8", timeout: 60_000 } as const;
  const { status, stdout, stderr } = spawnSync(process.execPath, args, options);
  if (status !== 0) throw new Error(`the play ended with ${status}:\n${stdout}${stderr}`);
  console.log(stdout.split("\n")[1]);
}

function row({ tables, customers, kills, lostReplies, tookMs }: Seen): Record<string, number> {
  const { carts, orders, cartsOrderedTwice, charges, ordersChargedTwice } = tables;
  const told = customers.flatMap((customer) => customer.told);
  const of = (status: number) =>
    customers.reduce((sum, { statuses }) => sum + (statuses.get(status) ?? 0), 0);
  return {
    carts,
    orders,
    "carts ordered twice": cartsOrderedTwice,
    charges,
    "orders charged twice": ordersChargedTwice,
    "answers 201": told.length,
    "of them repeated": told.filter(({ isReplay }) => isReplay).length,
    "answers 5xx": of(500) + of(503) + of(504),
    "no answer": of(0),
    "servers killed": kills,
    "replies lost": lostReplies,
    seconds: Math.round(tookMs / 1_000),
  };
}

/** What does not hold; nothing, if each cart is one order, each order one charge, and all were told. */
function misses({ tables, customers: all, kills, lostReplies }: Seen): string[] {
  const { orders, orderedCarts, paidOrders, outboxRows, charges, orderOf } = tables;
  const missed: string[] = [];
  const expectAll = (what: string, found: number) => {
    if (found !== all.length)
      missed.push(`${found} ${what}, and there were ${all.length} customers`);
  };
  expectAll("customers", customers);
  expectAll("orders", orders);
  expectAll("carts were ordered", orderedCarts);
  expectAll("orders are paid", paidOrders);
  expectAll("rows are in the outbox", outboxRows);
  expectAll("charges were made", charges);
  if (tables.ordersNeverCharged > 0) missed.push(`${tables.ordersNeverCharged} were never charged`);
  for (const { name, cart, told } of all) {
    if (told.length === 0) missed.push(`${name} was never told`);
    for (const { order } of told) {
      if (order !== orderOf.get(cart)) missed.push(`${name} was told of order ${order}`);
    }
  }
  // Else it would have been no trouble at all.
  if (kills === 0) missed.push("no server was killed");
  if (lostReplies === 0) missed.push("no payment reply was lost");
  return missed;
}

function tooMany({ tables: { orders, orderedCarts, charges } }: Seen): string {
  return `${orders - orderedCarts} orders and ${charges - orderedCarts} charges too many`;
}
