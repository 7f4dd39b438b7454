import { setTimeout as sleep } from "node:timers/promises";
import { fencingSql } from "../../support/fencing-sql.ts";
import { startServer } from "../../support/server-process.ts";
import { until } from "../../support/until.ts";
import { labClients } from "../client-name.ts";
import { type Click, click } from "../service/clicks.ts";
import { openDatabase, query } from "../service/database.ts";
import { Misses, runLaboratory } from "../service/laboratory.ts";
import { type Service, startService } from "../service/service.ts";

const times = { ttlMs: 1_000, maxHoldMs: 60_000, acquireTimeoutMs: 500 } as const;
/** Longer than the next one waits for the lock and writes. */
const pausedMs = 4_000;

/** What a holder writes: how many rows have changed, through the fence and beside it. */
interface Written {
  /** The fencing token, or the epoch of the database. */
  readonly number: number;
  readonly claimed: number;
  readonly noted: number;
}

type Recipe = "epoch" | "token";
const { begin, claim, end, tables } = fencingSql;
const note = "UPDATE carts SET note = $2 WHERE id = $1";
const place = "INSERT INTO orders (cart, placed_by) VALUES ($1, $2) ON CONFLICT DO NOTHING";
const fences = {
  epoch: { begin, claim: end, note, place },
  token: { claim, note, place },
};

/** A holder is paused beyond its lease and goes on to write when another has the lock. */
async function playPaused(recipe: Recipe, database: string, port: number) {
  const order = `cart-${recipe}`;
  await query(database, "INSERT INTO carts (id) VALUES ($1)", order);
  const settings = {
    framework: "Express 5, guard.protect(handler)",
    redisClient: labClients()[0],
    target: { kind: "single", port },
    times,
    fence: { database, ...fences[recipe] },
  } as const;
  const services = await Promise.all([startService(settings), startService(settings)]);
  const [one, other] = services as [Service, Service];
  const hasBegun = (service: Service) =>
    until(() => service.holdings.length > 0, { what: "an order to begin", boundMs: 60_000 });
  const asked = (name: string, gapMs = 0) => ({
    user: "42",
    order,
    headers: { "x-name": name, "x-gap-ms": `${gapMs}` },
  });
  try {
    const first = click(one, { ...asked("older"), workMs: pausedMs });
    await hasBegun(one);
    one.pause();
    // Through the token's fence it goes before the older one wakes; the epoch counts as it begins.
    const second = firstPlaced(other, asked("newer", recipe === "epoch" ? 2 * pausedMs : 0));
    await (recipe === "epoch" ? hasBegun(other) : second);
    one.resume();
    const [had, has] = [await first, await second].map(writtenIn);
    const told = "SELECT note, (SELECT placed_by FROM orders WHERE cart = id) AS by FROM carts";
    const [row = {}] = (await query(database, `${told} WHERE id = $1`, order)).rows;
    const [older, newer] = [had as Written, has as Written];
    // Whose order stands, and whose note, which has no fence.
    return { older, newer, placedBy: String(row["by"]), notedBy: String(row["note"]) };
  } finally {
    await Promise.all(services.map((service) => service.kill()));
  }
}

async function firstPlaced(service: Service, asked: Parameters<typeof click>[1]): Promise<Click> {
  for (;;) {
    const one = await click(service, asked);
    if (one.status === 201) return one;
    await sleep(20);
  }
}

function writtenIn({ reply, status }: Click): Written {
  if (status !== 201) throw new Error(`an order was answered ${status} ${reply?.body}`);
  return JSON.parse(reply?.body ?? "");
}

/** Two transactions of one cart at once: the row lock of the first statement puts them in order. */
async function playAtOnce(database: string): Promise<{ waited: boolean; rows: number }> {
  const cart = "cart-at-once";
  await query(database, "INSERT INTO carts (id) VALUES ($1)", cart);
  const seven = claim.replace("$1", `'${cart}'`).replaceAll("$2", "7");
  const first = query(database, `BEGIN; ${seven} SELECT pg_sleep(3); COMMIT;`);
  const isThere = async (event: string) =>
    (await query(database, `SELECT 1 FROM pg_stat_activity WHERE ${event}`)).count > 0;
  while (!(await isThere("wait_event = 'PgSleep'"))) await sleep(10);
  let [waited, isOver] = [false, false];
  const second = query(database, claim, cart, 6).finally(() => {
    isOver = true;
  });
  while (!(waited || isOver)) waited = await isThere("wait_event_type = 'Lock'");
  await first;
  return { waited, rows: (await second).count };
}

/**
 * `npm run lab -- fencing`: a holder that was paused beyond its lease is refused by a real
 * PostgreSQL. `DATABASE_URL` names another one than the one that is started here.
 */
export async function run(): Promise<void> {
  await runLaboratory("A paused holder and a fence", async (binary) => {
    const redis = await startServer(binary);
    const database = await openDatabase();
    console.log(`PostgreSQL ${database.version}`);
    const misses = new Misses();
    try {
      await query(database.url, tables);
      // What has no fence.
      await query(database.url, "ALTER TABLE carts ADD COLUMN note text");
      for (const recipe of ["epoch", "token"] as const) {
        const result = await playPaused(recipe, database.url, redis.port);
        const { older, newer, notedBy, placedBy } = result;
        console.table({ older, newer });
        console.log(`${recipe}: placed by the ${placedBy}, noted by the ${notedBy}.`);
        const expect = (isMet: boolean, what: string) => misses.expect(isMet, `${recipe}: ${what}`);
        expect(newer.number > older.number, `${newer.number} came after ${older.number}`);
        expect(older.claimed === 0, "the one that was paused got through");
        expect(newer.claimed === 1, "the newer one was refused");
        expect(placedBy === "newer", `the order is of ${placedBy}`);
        // Or else nobody was paused, and the rest shows nothing.
        expect(notedBy === "older", "without a fence nothing was overwritten");
      }
      const atOnce = await playAtOnce(database.url);
      console.log(`Two transactions at once: ${JSON.stringify(atOnce)}`);
      misses.expect(atOnce.waited, "the second transaction did not wait for the first");
      misses.expect(atOnce.rows === 0, "the older of two transactions got through");
    } finally {
      await database.stop();
      await redis.stop();
    }
    return misses.found;
  });
}
