import { setTimeout as sleep } from "node:timers/promises";
import { Child } from "../../support/child.ts";
import { fencingSql } from "../../support/fencing-sql.ts";
import { query } from "./database.ts";
import type { FromHolder, HolderSettings, Recipe, ToHolder } from "./holder-process.ts";

const times = { ttlMs: 1_000, maxHoldMs: 60_000, acquireTimeoutMs: 500 } as const;

export interface PausedResult {
  readonly recipe: Recipe;
  /** The fencing tokens, or the epochs of the database. */
  readonly older: number;
  readonly newer: number;
  /** How many rows the one that was paused has changed, through the fence and beside it. */
  readonly olderClaimed: number;
  readonly olderNoted: number;
  readonly newerClaimed: number;
  /** Whose order stands, and whose note, which has no fence. */
  readonly placedBy: string;
  readonly notedBy: string;
}

/** A holder is paused beyond its lease and goes on to write when another has the lock. */
export async function playPaused(
  recipe: Recipe,
  database: string,
  port: number,
): Promise<PausedResult> {
  const cart = `cart-${recipe}`;
  await query(database, "INSERT INTO carts (id) VALUES ($1)", cart);
  const common = { recipe, cart, port, database, times };
  const older = startHolder({ ...common, name: "older" });
  const holders = [older];
  try {
    const had = await older.next();
    older.signal("SIGSTOP");
    const newer = startHolder({ ...common, name: "newer" });
    holders.push(newer);
    const has = await newer.next();
    // Through the token's fence it goes before the older one wakes; the epoch has counted already.
    const claims: number[] = [];
    if (recipe === "token") claims.push(await written(newer, "claim"));
    await written(newer, "note");
    older.signal("SIGCONT");
    const olderClaimed = await written(older, "claim");
    const olderNoted = await written(older, "note");
    claims.push(await written(newer, "claim"));
    const place = "INSERT INTO orders (cart, placed_by) VALUES ($1, $2)";
    if (olderClaimed > 0) await query(database, place, cart, "older");
    if (claims.at(-1) === 1) await query(database, place, cart, "newer");
    const told =
      "SELECT note, (SELECT placed_by FROM orders WHERE cart = id) AS by FROM carts WHERE id = $1";
    const [row = {}] = (await query(database, told, cart)).rows;
    const number = recipe === "epoch" ? "epoch" : "token";
    return {
      recipe,
      older: had[number] ?? Number.NaN,
      newer: has[number] ?? Number.NaN,
      olderClaimed,
      olderNoted,
      newerClaimed: Math.min(...claims),
      placedBy: String(row["by"]),
      notedBy: String(row["note"]),
    };
  } finally {
    await Promise.all(holders.map((holder) => holder.kill()));
  }
}

type Holder = Child<FromHolder, ToHolder>;

function startHolder(settings: HolderSettings): Holder {
  return new Child(new URL("./holder-process.ts", import.meta.url), [JSON.stringify(settings)]);
}

/** How many rows a holder has changed. */
async function written(holder: Holder, write: ToHolder["write"]): Promise<number> {
  holder.send({ write });
  return (await holder.next()).rows ?? 0;
}

/** Two transactions of one cart at once: the row lock of the first statement puts them in order. */
export async function playAtOnce(database: string): Promise<{ waited: boolean; rows: number }> {
  const cart = "cart-at-once";
  await query(database, "INSERT INTO carts (id) VALUES ($1)", cart);
  const claim = fencingSql.claim.replace("$1", `'${cart}'`).replaceAll("$2", "7");
  const first = query(database, `BEGIN; ${claim} SELECT pg_sleep(1); COMMIT;`);
  const isAsleep = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
  while ((await query(database, isAsleep)).count === 0) await sleep(10);
  let isOver = false;
  void first.then(() => {
    isOver = true;
  });
  const { count } = await query(database, fencingSql.claim, cart, 6);
  const waited = isOver;
  await first;
  return { waited, rows: count };
}

/** What was not as it should be. */
export function misses(results: readonly PausedResult[]): string[] {
  return results.flatMap(({ recipe, older, newer, ...found }) => {
    const missed: string[] = [];
    if (!(newer > older)) missed.push(`${recipe}: ${newer} came after ${older}`);
    if (found.olderClaimed !== 0) missed.push(`${recipe}: the one that was paused got through`);
    if (found.newerClaimed !== 1) missed.push(`${recipe}: the newer one was refused`);
    if (found.placedBy !== "newer") missed.push(`${recipe}: the order is of ${found.placedBy}`);
    // Or else nobody was paused, and the rest shows nothing.
    if (found.notedBy !== "older")
      missed.push(`${recipe}: without a fence nothing was overwritten`);
    return missed;
  });
}
