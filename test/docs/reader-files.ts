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
const versions = new Map<string, number>();
const orders: Order[] = [];
export async function cartOf(userId: string | undefined): Promise<Cart> {
  return { id: "cart-of-" + userId, version: versions.get("cart-of-" + userId) ?? 1 };
}
export async function placeOrder(cart: Cart): Promise<Order> {
  await sleep(50);
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

/** A GraphQL schema whose mutation fails the first time. */
export const schema = `
let runs = 0;
export async function execute(_request: unknown): Promise<{ data?: object; errors?: object[] }> {
  runs++;
  return runs === 1 ? { errors: [{ message: "the payment was refused" }] } : { data: { runs } };
}
`;

/** Whose server action it is. */
export const session = `
export async function userOfSession(): Promise<string> {
  return "next";
}
`;
