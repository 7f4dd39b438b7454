/** The application of the reader whose tests are shown. */
export const appOfReader = `
import express from "express";
import type { SubmitLock } from "submit-lock";
import { submitGuard } from "submit-lock/express";
export function createApp(lock: SubmitLock): express.Express {
  const app = express();
  const guard = submitGuard({ lock, userId: (req) => req.get("x-user-id") });
  app.post("/orders", guard.protect(async (_req, res) => {
    res.status(201).json({ placed: true });
  }));
  return app;
}
`;

/** Beside the store that is shown: it holds, contends and releases as a lock expects. */
export const useOfMapStore = `
import { SubmitLock } from "submit-lock";
const lock = new SubmitLock({ store: new MapStore(), ttlMs: 150, maxHoldMs: 5_000 });
await lock.check();
const attempt = await lock.acquire("42");
if (attempt.outcome !== "acquired") throw new Error(attempt.outcome);
await new Promise((resolve) => setTimeout(resolve, 400));
console.log((await lock.acquire("42")).outcome, await attempt.lease.release());
console.log((await lock.acquire("42")).outcome);
await lock.close({ timeoutMs: 0 });
`;

/** The shop behind the recipes. It tells the test of each order, and takes 50 ms for it. */
export const shop = `
import { appendFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
export interface Cart { readonly id: string; readonly version: number }
export interface Order { readonly number: number; readonly cart: string }
const carts = new Map<string, string>();
const versions = new Map<string, number>();
const orders: Order[] = [];
export async function cartOf(userId: string | undefined): Promise<Cart> {
  const id = carts.get(userId ?? "") ?? "cart-of-" + userId;
  return { id, version: versions.get(id) ?? 1 };
}
export async function moveCart(from: string, to: string): Promise<void> {
  carts.set(to, (await cartOf(from)).id);
  carts.set(from, "no-cart");
}
export async function placeOrder(cart: Cart): Promise<Order> {
  await sleep(Number(process.env["ORDER_MS"] ?? 50));
  versions.set(cart.id, cart.version + 1);
  const order = { number: orders.length + 1, cart: cart.id };
  orders.push(order);
  if (process.env["PLACED"]) appendFileSync(process.env["PLACED"], cart.id + "\\n");
  return order;
}
export async function findOrder(number: number): Promise<Order | undefined> {
  return orders[number - 1];
}
`;

/** The database behind a long job: an account with three pages to settle. */
export const ledger = `
let settled = 0;
export async function nextPage(_account: string): Promise<number | undefined> {
  return settled < 3 ? settled + 1 : undefined;
}
export async function settle(page: number, token: number | undefined): Promise<void> {
  settled = page;
  console.log("page", page, token);
}
`;

/** Beside the long job: an order of the same account, which waits for its turn. */
export const useOfLedger = `
import { lock, redis } from "./lock.ts";
import { settleAccount } from "./steps.ts";
await lock.check();
const settling = settleAccount("ledger");
const order = lock.withLock("ledger", { waitMs: 60_000 }, async () => console.log("order"));
await Promise.all([settling, order]);
await lock.close();
redis.disconnect();
`;

/** Whose server action it is. */
export const session = `
export async function userOfSession(): Promise<string> {
  return "next";
}
`;
