import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { type Lease, RedisStore, SubmitLock, type SubmitLockOptions } from "../../../src/index.ts";
import { fencingSql } from "../../support/fencing-sql.ts";
import { query } from "./database.ts";

export type Recipe = "epoch" | "token";

export interface HolderSettings {
  readonly name: string;
  readonly recipe: Recipe;
  readonly cart: string;
  /** Of Redis. */
  readonly port: number;
  readonly database: string;
  readonly times: Partial<Omit<SubmitLockOptions, "store">>;
}

/** `claim`: through the fence; `note`: beside it. */
export interface ToHolder {
  readonly write: "claim" | "note";
}

/** It has the lock, with the first two; or it has written, and so many rows have changed. */
export interface FromHolder {
  readonly token?: number | undefined;
  readonly epoch?: number;
  readonly rows?: number;
}

/** A process that takes a lock, waits to be told, and writes what it was about to write. */
const { cart, database, name, port, recipe, times } = JSON.parse(
  process.argv[2] ?? "{}",
) as HolderSettings;
const tell = (message: FromHolder) => process.send?.(message);
process.once("disconnect", () => process.exit());

const lock = new SubmitLock({ store: new RedisStore(new Redis(port)), ...times });
await lock.check();
const lease = await firstLease();
const begun = recipe === "epoch" ? await query(database, fencingSql.begin, cart) : undefined;
const epoch = begun?.rows[0]?.["epoch"];
tell({ token: lease.fencingToken, epoch: Number(epoch) });

async function firstLease(): Promise<Lease> {
  for (;;) {
    const attempt = await lock.acquire("42");
    if (attempt.outcome === "acquired") return attempt.lease;
    await sleep(20);
  }
}

process.on("message", (message: ToHolder) => void write(message));

/** What a handler does that does not look at its signal. */
async function write({ write: what }: ToHolder): Promise<void> {
  // Beside the fence: as one writes without.
  const note = "UPDATE carts SET note = $2 WHERE id = $1";
  const claim = recipe === "epoch" ? fencingSql.end : fencingSql.claim;
  const number = recipe === "epoch" ? epoch : lease.fencingToken;
  const { count } =
    what === "claim"
      ? await query(database, claim, cart, number)
      : await query(database, note, cart, name);
  tell({ rows: count });
}
