import { subscribe } from "node:diagnostics_channel";
import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import express from "express";
import { submitGuard } from "../../../src/express/index.ts";
import { RedisStore, SubmitLock } from "../../../src/index.ts";
import { listen, openClient } from "../../http/http-client.ts";
import { until } from "../../support/until.ts";
import { labClients } from "../laboratory.ts";
import { connect } from "../shop/connect.ts";
import { Random } from "../simulation/time/random.ts";
import { LedgerFile, ofProcess } from "./ledger.ts";

/** A shop, and the customers who click at it. */
export interface Settings {
  readonly by: "lock" | "express";
  readonly index: number;
  readonly redisPort: number;
  /** The path of its part of the ledger. */
  readonly ledger: string;
  readonly seed: number;
  readonly retainMs: number;
}

export type ToShop =
  /** Orders to place, from the first to before the last. */
  | { readonly from: number; readonly to: number }
  /** A second click of an order that another process places. */
  | { readonly click: number }
  | { readonly ends: true };

export type Counts = Record<string, number>;

export type FromShop =
  | { readonly isReady: true }
  | { readonly placed: number; readonly from: number; readonly counts: Counts }
  | { readonly clickElsewhere: number }
  | { readonly ended: Counts };

const settings = JSON.parse(process.argv[2] ?? "") as Settings;
const { by, index, redisPort: port, retainMs } = settings;
const tell = (message: FromShop) => void process.send?.(message);
process.once("disconnect", () => process.exit());

const file = new LedgerFile(settings.ledger);
const random = new Random(settings.seed + index);
let counts: Counts = {};
const count = (name: string) => {
  counts[name] = (counts[name] ?? 0) + 1;
};
subscribe("submit-lock:acquire", (message) => {
  if ((message as { confirmed: boolean }).confirmed) count("confirmed");
});

const client = labClients()[index % 2 === 0 ? 0 : 1];
const lock = new SubmitLock({
  store: new RedisStore(connect({ kind: "single", port }, client).redis),
});

// Every hundredth order is of the user before it, who has two at once.
const userOf = (order: number) => `${(order % 100 === 99 ? order - 1 : order) % 1_000_000}`;

let ran = 0;
/** The order's INSERT, and an answer of about 300 B. */
async function place(order: number) {
  const placed = index * ofProcess + ran++;
  if (random.next() < 0.02) await sleep(random.between(20, 200));
  await file.append("ran", order, placed);
  return { placed, text: "x".repeat(270) };
}

interface Shown {
  readonly placed: number;
  readonly replayed: boolean;
}

async function once(order: number): Promise<Shown> {
  const submission = { id: `order-${order}`, retainMs };
  const { replayed, value } = await lock.once(userOf(order), submission, () => place(order));
  return { placed: value.placed, replayed };
}

/** @returns asks for an order by HTTP. */
async function throughExpress(): Promise<(order: number) => Promise<Shown>> {
  const app = express();
  const userId = (req: express.Request) => req.get("x-user");
  const guard = submitGuard({ lock, userId, idempotency: { key: "required", retainMs } });
  const handler = guard.protect(async (req, res) => {
    res.status(201).json(await place(Number(req.body.order)));
  });
  app.post("/orders", express.json(), handler);
  const clicks = openClient(1, await listen(createServer(app)));
  return async (order) => {
    const ids = { "x-user": userOf(order), "idempotency-key": `order-${order}` };
    const headers = { "content-type": "application/json", ...ids };
    const { reply } = clicks.call({ headers, body: JSON.stringify({ order }) });
    const { body, headers: seen, status } = await reply;
    const { code, placed } = JSON.parse(body) as { code?: string; placed: number };
    if (status !== 201) throw Object.assign(new Error("refused"), { code });
    return { placed, replayed: "idempotent-replayed" in seen };
  };
}

let ask = once;
/** Asks until it is answered, as impatient people do. */
async function customer(order: number): Promise<void> {
  for (;;) {
    try {
      const { placed, replayed } = await ask(order);
      await file.append("shown", order, placed);
      return count(replayed ? "replayed" : "placed");
    } catch (error) {
      count(`refused: ${(error as { code?: string }).code ?? error}`);
      await sleep(random.between(20, 200));
    }
  }
}

const underWay = new Set<Promise<void>>();
function begin(work: Promise<void>): void {
  const ended = work.then(() => void underWay.delete(ended));
  underWay.add(ended);
}

async function all({ from, to }: { from: number; to: number }): Promise<void> {
  let next = from;
  const caller = async () => {
    while (next < to) {
      const order = next++;
      const habit = random.next();
      if (habit < 0.03) tell({ clickElsewhere: order });
      await customer(order);
      if (habit > 0.98) begin(sleep(1_000).then(() => customer(order)));
    }
  };
  await Promise.all(Array.from({ length: 64 }, caller));
  tell({ placed: to - from, from, counts });
  counts = {};
}

process.on("message", async (message: ToShop) => {
  if ("click" in message) return begin(customer(message.click));
  if ("from" in message) return begin(all(message));
  while (underWay.size > 0) await Promise.all(underWay);
  tell({ ended: counts });
});

const isReady = () =>
  lock.check().then(
    () => true,
    () => false,
  );
await until(isReady, { what: "Redis", boundMs: 60_000 });
if (by === "express") ask = await throughExpress();
tell({ isReady: true });
