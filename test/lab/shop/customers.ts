import { spawnSync } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { type ShopServer, startProcess } from "../../../examples/demo/servers.ts";
import { PaymentProvider } from "../../../examples/payments/provider.ts";
import { type Database, openDatabase } from "../../../examples/shop/database.ts";
import { givenPostgres } from "../../support/postgres-server.ts";
import { startServer } from "../../support/server-process.ts";
import { labClients } from "../client-name.ts";
import { crowd } from "../service/clicks.ts";
import { Misses, runLaboratory, seedOf, setting } from "../service/laboratory.ts";
import { Random } from "../simulation/time/random.ts";

interface CrowdOptions {
  readonly isProtected: boolean;
  readonly customers: number;
  readonly seed: number;
  readonly redisUrl: string;
  readonly databaseUrl: string;
}

type Seen = Awaited<ReturnType<typeof playCrowd>>;

interface Order {
  readonly number: number;
  readonly cart: number;
  readonly paid: boolean;
}

/** How many customers are in the shop at a time. */
const atOnce = 40;
/** After which they give up. */
const boundMs = 180_000;
const root = new URL("../../../", import.meta.url);
/** The example shop knows ioredis and node-redis, and not their versions. */
const client = labClients()[0] === "node-redis 6" ? { REDIS_CLIENT: "node-redis" } : {};

/** The example shop in two processes, Express and Koa, with everything that goes wrong in it. */
async function playCrowd(options: CrowdOptions) {
  const { isProtected, redisUrl, databaseUrl, seed } = options;
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
    ...client,
  };
  const start = (name: string) => {
    const file = fileURLToPath(new URL(`examples/${name}-checkout.ts`, root));
    return startProcess(name, { file, env });
  };
  const servers = await Promise.all([start("express"), start("koa")]);
  const killing = new AbortController();
  const kills = killNowAndThen(servers, random, killing.signal);
  try {
    const path = isProtected ? "/orders" : "/nothing/orders";
    const habits = { path, servers, random, endMs: performance.now() + boundMs };
    const customers: Customer[] = [];
    let next = 0;
    await crowd(atOnce, async () => {
      while (next < options.customers) {
        customers.push(await beImpatient(`${isProtected ? "on" : "off"}-${next++}`, habits));
      }
    });
    killing.abort();
    const killed = await kills;
    // Orders whose customer has left are still being placed.
    await Promise.all(servers.map((server) => server.close()));
    const { charges } = provider;
    return { customers, charges, kills: killed, lostReplies, ...(await rowsOf(db)) };
  } finally {
    killing.abort();
    await Promise.all(servers.map((server) => server.close()));
    provider.close();
    await db.close();
  }
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

/** What is in the database when all is over. */
async function rowsOf(db: Database) {
  const paid = "SELECT number, cart_id AS cart, payment_id IS NOT NULL AS paid";
  const orders = await db.query<Order>(`${paid} FROM demo_shop.orders`);
  const count = "SELECT count(*)::integer AS count FROM demo_shop.outbox";
  const [outbox] = await db.query<{ count: number }>(count);
  return { orders, outboxRows: outbox?.count ?? 0 };
}

/** How many there are above one of each. */
const surplus = (all: readonly number[]): number => all.length - new Set(all).size;
const surplusOrders = ({ orders }: Seen) => surplus(orders.map(({ cart }) => cart));
const surplusCharges = ({ charges }: Seen) =>
  surplus(charges.map(({ orderNumber }) => orderNumber));

/** What does not hold; nothing, if each cart is one order, each order one charge, and all were told. */
function misses(seen: Seen, expected: number): string[] {
  const { customers, orders, outboxRows, charges, kills, lostReplies } = seen;
  const misses = new Misses();
  const orderOf = new Map(orders.map(({ cart, number }) => [cart, number]));
  const charged = new Set(charges.map(({ orderNumber }) => orderNumber));
  const counts = {
    customers: customers.length,
    orders: orders.length,
    "carts that were ordered": orderOf.size,
    "paid orders": orders.filter(({ paid }) => paid).length,
    "rows in the outbox": outboxRows,
    charges: charges.length,
    "orders that were charged": orders.filter(({ number }) => charged.has(number)).length,
  };
  for (const [what, count] of Object.entries(counts)) {
    misses.expect(count === expected, `${count} ${what}, for ${expected} customers`);
  }
  for (const { name, cart, told } of customers) {
    misses.expect(told.length > 0, `${name} was never told`);
    const wrong = told.filter(({ order }) => order !== orderOf.get(cart));
    misses.expectNone(wrong.map(({ order }) => `${name} was told of order ${order}`));
  }
  // Else it would have been no trouble at all.
  misses.expect(kills > 0, "no server was killed");
  misses.expect(lostReplies > 0, "no payment reply was lost");
  return misses.found;
}

function row(seen: Seen): Record<string, number> {
  const { charges, customers, kills, lostReplies, orders } = seen;
  const told = customers.flatMap((customer) => customer.told);
  const of = (status: number) =>
    customers.reduce((sum, { statuses }) => sum + (statuses.get(status) ?? 0), 0);
  return {
    customers: customers.length,
    orders: orders.length,
    "orders too many": surplusOrders(seen),
    charges: charges.length,
    "charges too many": surplusCharges(seen),
    "answers 201": told.length,
    "of them repeated": told.filter(({ isReplay }) => isReplay).length,
    "answers 5xx": of(500) + of(503) + of(504),
    "no answer": of(0),
    "servers killed": kills,
    "replies lost": lostReplies,
  };
}

/** The terminal play of the demo, on the same two servers. */
function playOnce(redisUrl: string, databaseUrl: string): void {
  const shop = { PORT: "0", REDIS_URL: redisUrl, DATABASE_URL: databaseUrl };
  const env = { ...process.env, ...shop, ...client };
  const args = ["--import", "tsx", "examples/express-checkout.ts", "--once"];
  const options = { cwd: root, env, encoding: "utf8", timeout: 60_000 } as const;
  const { status, stdout, stderr } = spawnSync(process.execPath, args, options);
  if (status !== 0) throw new Error(`the play ended with ${status}:\n${stdout}${stderr}`);
  console.log(stdout.split("\n")[1]);
}

/**
 * `npm run lab -- customers`: a thousand impatient customers in the example shop, on two server
 * processes (Express and Koa), a real Redis and a real PostgreSQL, with servers killed and payment
 * replies lost; once with everything that protects an order, and once with nothing. `CUSTOMERS`,
 * `CUSTOMERS_SEED` and `DATABASE_URL` say otherwise. At most six minutes.
 */
export async function run(): Promise<void> {
  const customers = setting("CUSTOMERS", 1_000);
  const seed = seedOf("CUSTOMERS_SEED");
  const what = `${customers} customers with CUSTOMERS_SEED=${seed}`;
  await runLaboratory(what, async (binary) => {
    const redis = await startServer(binary);
    const postgres = await givenPostgres();
    console.log(`PostgreSQL ${postgres.version}`);
    try {
      const common = { customers, seed, redisUrl: redis.url, databaseUrl: postgres.url };
      playOnce(redis.url, postgres.url);
      const on = await playCrowd({ ...common, isProtected: true });
      const off = await playCrowd({ ...common, isProtected: false });
      console.table({ protected: row(on), "with nothing": row(off) });
      console.log(
        `With nothing: ${surplusOrders(off)} orders and ${surplusCharges(off)} charges too many.`,
      );
      return misses(on, customers);
    } finally {
      await postgres.stop();
      await redis.stop();
    }
  });
}

/** How a customer was told that the order is placed. */
interface Told {
  readonly order: number;
  readonly isReplay: boolean;
}

interface Customer {
  readonly name: string;
  readonly cart: number;
  /** Every 201. */
  readonly told: Told[];
  /** How often each status came; 0 where no answer did. */
  readonly statuses: Map<number, number>;
}

interface Habits {
  readonly path: string;
  readonly servers: readonly ShopServer[];
  /** From 0 to 1, from the seed. */
  readonly random: () => number;
  /** `performance.now()` at which they give up. */
  readonly endMs: number;
}

/** Fills a cart and orders it as people do: twice, from two tabs, leaving, and again until told. */
async function beImpatient(name: string, habits: Habits): Promise<Customer> {
  const { random } = habits;
  const shown = await fillCart(name, habits);
  const customer = { name, cart: shown.cart, told: [], statuses: new Map() };
  const press = (leavesAfterMs?: number) => submit(customer, shown, habits, leavesAfterMs);

  const presses = [press(random() < 0.2 ? 20 + 400 * random() : undefined)];
  // A double click, or a second tab; now and then a third.
  while (presses.length < 3 && random() < 0.6) {
    await sleep(400 * random());
    presses.push(press(random() < 0.2 ? 20 + 400 * random() : undefined));
  }
  await Promise.all(presses);
  // Nobody goes home without having been told, and some press once more.
  while (!isTold(customer) && performance.now() < habits.endMs) {
    await sleep(100 + 400 * random());
    await press();
  }
  if (random() < 0.3) await press();
  return customer;
}

/** An order, or a cart that is empty because it was ordered. */
function isTold({ told, statuses }: Customer): boolean {
  return told.length > 0 || statuses.has(422);
}

interface Shown {
  readonly cart: number;
  readonly version: number;
}

async function fillCart(name: string, habits: Habits): Promise<Shown> {
  while (performance.now() < habits.endMs) {
    const answer = await ask(name, habits, "PUT", "/cart", undefined, undefined);
    if (answer.status === 200) return answer.body as unknown as Shown;
    await sleep(100);
  }
  throw new Error(`${name} got no cart`);
}

async function submit(
  customer: Customer,
  { cart, version }: Shown,
  habits: Habits,
  leavesAfterMs: number | undefined,
): Promise<void> {
  const said = { cart, version };
  const answer = await ask(customer.name, habits, "POST", habits.path, said, leavesAfterMs);
  const { status, body, isReplay } = answer;
  customer.statuses.set(status, (customer.statuses.get(status) ?? 0) + 1);
  if (status === 201) customer.told.push({ order: Number(body["number"]), isReplay });
}

interface Answer {
  readonly status: number;
  readonly body: Record<string, unknown>;
  readonly isReplay: boolean;
}

/** Asks one of the servers, whichever. */
async function ask(
  name: string,
  { servers, random }: Habits,
  method: string,
  path: string,
  body: object | undefined,
  leavesAfterMs = 15_000,
): Promise<Answer> {
  const up = servers.filter(({ port }) => port !== undefined);
  const server = up[Math.floor(random() * up.length)];
  try {
    const answer = await fetch(`http://127.0.0.1:${server?.port}${path}`, {
      method,
      headers: {
        authorization: `Bearer token-of-${name}`,
        ...(body && { "content-type": "application/json" }),
      },
      body: body === undefined ? null : JSON.stringify(body),
      signal: AbortSignal.timeout(Math.round(leavesAfterMs)),
    });
    const isReplay = answer.headers.get("idempotent-replayed") === "true";
    return { status: answer.status, body: (await answer.json()) as Answer["body"], isReplay };
  } catch {
    return { status: 0, body: {}, isReplay: false };
  }
}
