import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import express, { type Request, type Response } from "express";
import { Redis } from "ioredis";
import { submitGuard } from "../../../src/express/index.ts";
import { RedisStore, SubmitLock } from "../../../src/index.ts";
import { SubmissionTable } from "../../../src/sql/index.ts";
import { listen } from "../../http/http-client.ts";
import { openDatabase, type Point, type Tx } from "./database.ts";
import type { Blow, Schedule, Settings, Subject } from "./schedule.ts";
import { ordersOf } from "./tables.ts";

/** What a shop tells the laboratory. */
export type FromShop = { readonly port: number } | { readonly struck: Blow };

const settings: Settings = JSON.parse(process.argv[2] ?? "");
const isPostgres = settings.database === "PostgreSQL";
const db = await openDatabase(settings);
const submissions = new SubmissionTable({ dialect: isPostgres ? "postgresql" : "mysql" });
const redis = new Redis(settings.redisPort, "127.0.0.1", { retryStrategy: () => 30 });
redis.on("error", () => {});
const lock = new SubmitLock({
  store: new RedisStore(redis),
  ...{ ttlMs: 1_000, acquireTimeoutMs: 200, commandTimeoutMs: 100 },
});
process.once("disconnect", () => process.exit());

const tell = (message: FromShop) =>
  new Promise<void>((resolve) => process.send?.(message, () => resolve()));

/** Deals the blow of a request when so many points of it were passed. */
function pointsOf(req: Request, res: Response): Point {
  const [kind = "", at = ""] = String(req.headers["x-blow"] ?? "").split("@");
  let left = kind === "" ? Number.POSITIVE_INFINITY : Number(at);
  const deal = async (cut?: () => void) => {
    await tell({ struck: kind as Blow });
    if (kind === "kill") process.kill(process.pid, "SIGKILL");
    if (kind === "stop") process.kill(process.pid, "SIGSTOP");
    if (kind === "cut") cut?.();
    if (kind === "throw") throw new Error("thrown by the laboratory");
  };
  res.once("finish", () => {
    if (left >= 0 && left < Number.POSITIVE_INFINITY) void deal().catch(() => {});
  });
  return async (cut) => {
    if (left-- === 0) await deal(cut);
  };
}

interface Placed {
  readonly number: number;
  readonly replayed: boolean;
}

class AlreadyPlaced extends Error {}

/** Order, stock and outbox, as each subject writes them. */
async function place(subject: Subject, tx: Tx, req: Request): Promise<Placed> {
  const buyer = String(req.headers["x-user"]);
  const orders = ordersOf(subject);
  const rest = async () => {
    await tx.write("UPDATE stock SET changed = changed - 1 WHERE buyer = ?", [buyer]);
    await tx.write("INSERT INTO outbox (buyer, topic) VALUES (?, 'placed')", [buyer]);
  };
  const values = "(buyer, submission_id) VALUES (?, ?)";
  if (subject === "submissions.once") {
    const { value, replayed } = await submissions.once(tx, req.submission, async () => {
      const order = [buyer, req.submission?.id];
      const { insertId } = await tx.write(`INSERT INTO ${orders} ${values}`, order);
      await rest();
      req.submitLease?.signal.throwIfAborted();
      return { number: insertId };
    });
    return { ...value, replayed };
  }
  if (subject === "a plain unique key") {
    const order = [buyer, req.submission?.id];
    const insert = tx.write(`INSERT INTO ${orders} ${values}`, order);
    const { insertId } = await insert.catch((error) => {
      throw error.code === "23505" || error.errno === 1062 ? new AlreadyPlaced() : error;
    });
    await rest();
    return { number: insertId, replayed: false };
  }
  // A guard of before gave a request no submission under "proceed".
  const order = [buyer, req.submitLease === undefined ? null : req.submission?.id];
  const conflict = isPostgres
    ? "ON CONFLICT (submission_id) DO UPDATE SET submission_id = excluded.submission_id"
    : "ON DUPLICATE KEY UPDATE number = LAST_INSERT_ID(number)";
  const { insertId } = await tx.write(`INSERT INTO ${orders} ${values} ${conflict}`, order);
  await rest();
  req.submitLease?.signal.throwIfAborted();
  return { number: insertId, replayed: false };
}

/** The order of steps that the manual recommends, with the subject's transaction in it. */
async function checkout(req: Request, res: Response): Promise<void> {
  const subject = req.headers["x-subject"] as Subject;
  const isolation = req.headers["x-isolation"] as Schedule["isolation"];
  const buyer = String(req.headers["x-user"]);
  const point = pointsOf(req, res);
  await point();
  let placed: Placed;
  try {
    placed = await db.transaction(isolation, point, (tx) => place(subject, tx, req));
  } catch (error) {
    if (!(error instanceof AlreadyPlaced)) throw error;
    res.status(409).json({ code: "already_placed" });
    return;
  }
  const { number } = placed;
  const none: Point = async () => {};
  const status = await db.transaction("READ COMMITTED", none, async (tx) => {
    const row = await tx.row(`SELECT status FROM ${ordersOf(subject)} WHERE number = ?`, [number]);
    return row?.["status"];
  });
  if (status === "pending") {
    await point();
    const isKnown = subject !== "the snippet of before" || req.submitLease !== undefined;
    const key = isKnown ? req.submission?.id : undefined;
    const charged = await fetch(`http://127.0.0.1:${settings.providerPort}/charges`, {
      method: "POST",
      headers: { "idempotency-key": key ?? randomUUID(), "x-buyer": buyer },
    });
    if (!charged.ok) throw new Error(`the provider answered ${charged.status}`);
    await point();
    await db.transaction(isolation, point, async (tx) => {
      const pay = `UPDATE ${ordersOf(subject)} SET status = 'paid' WHERE number = ? AND status = 'pending'`;
      if ((await tx.write(pay, [number])).changed === 0) return;
      await tx.write("INSERT INTO outbox (buyer, topic) VALUES (?, 'paid')", [buyer]);
    });
  }
  await point();
  res.status(201).json({ number });
  await point();
}

const guard = submitGuard({
  lock,
  userId: (req: Request) => req.headers["x-user"]?.toString(),
  onUnavailable: "proceed",
  idempotency: { key: "required" },
});
const app = express();
app.use(express.json());
app.post("/orders", guard.protect(checkout));
app.use((_error: unknown, _req: Request, res: Response, _next: unknown) => {
  if (res.headersSent) res.destroy();
  else res.status(503).json({ code: "failed" });
});
const server = createServer(app);
server.keepAliveTimeout = 120_000;
await tell({ port: await listen(server) });
