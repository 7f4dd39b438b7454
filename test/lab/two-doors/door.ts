import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import pg from "pg";
import { type Lease, RedisStore, SubmitLock } from "../../../src/index.ts";
import type { CompleteRequest } from "../../../src/lock/store.ts";
import { SubmissionTable } from "../../../src/sql/index.ts";
import { type DoorCall, type FromDoor, type Step, type ToDoor, tableOf } from "./protocol.ts";

let goOn: () => void = () => {};
let call: DoorCall | undefined;

async function stop(at: Step): Promise<void> {
  if (call?.goes.includes(at)) return;
  const told = new Promise<void>((resolve) => {
    goOn = resolve;
  });
  process.send?.({ at } satisfies FromDoor);
  await told;
}

/** The record is written when the parent says so, and so a process can be killed before. */
class StoppingStore extends RedisStore {
  override complete(request: CompleteRequest): void {
    void stop("record").then(() => super.complete(request));
  }
}

const [, , redisPort, ttlMs, url] = process.argv;
const redis = new Redis(Number(redisPort), "127.0.0.1");
const times = { ttlMs: Number(ttlMs), acquireTimeoutMs: 1_000, commandTimeoutMs: 500 };
const lock = new SubmitLock({ store: new StoppingStore(redis), ...times });
const db = new pg.Client({ connectionString: url });
await db.connect();
const submissions = new SubmissionTable();

/** The door's work: the only function that writes an order. */
async function placeOrder({ payment, way }: DoorCall, lease: Lease): Promise<string> {
  const insert = async (more = ""): Promise<string> => {
    const text = `INSERT INTO ${tableOf(way)} VALUES ($1, $2) ${more} RETURNING number`;
    return Object((await db.query(text, [payment, randomUUID()])).rows[0]).number;
  };
  if (way === "a transaction") {
    await db.query("BEGIN");
    const { value } = await submissions.once(db, lease.submission, insert);
    await stop("commit");
    await db.query("COMMIT");
    return value;
  }
  await stop("commit");
  // A second run finds the order of the first.
  return await insert(
    way === "a unique key" ? "ON CONFLICT (payment) DO UPDATE SET payment = $1" : "",
  );
}

async function answer(asked: DoorCall): Promise<FromDoor> {
  call = asked;
  const submission = { id: asked.payment };
  try {
    const work = async (lease: Lease) => {
      const order = await placeOrder(asked, lease);
      await stop("return");
      return order;
    };
    const { value } = await lock.once(`payment:${asked.payment}`, submission, work);
    return { order: value };
  } catch (error) {
    await db.query("ROLLBACK");
    return { failed: `${(error as { code?: string }).code}` };
  }
}

process.on("message", (message: ToDoor) => {
  if ("goOn" in message) goOn();
  else void answer(message).then((reply) => process.send?.(reply));
});
process.send?.({ failed: "not asked" } satisfies FromDoor);
