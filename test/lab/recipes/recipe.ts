import { randomUUID } from "node:crypto";
import { expect } from "vitest";
import { freshUser } from "../../support/ids.ts";
import { sharedRedisPort } from "../../support/redis-server.ts";
import { until } from "../../support/until.ts";
import { Bank } from "./bank.ts";
import { type Command, ShopProcess } from "./shop-process.ts";

/** Runs a shop, on the tests' Redis or another one, and a bank for it as long as `play` takes. */
export async function withShop(
  command: Command,
  play: (shop: ShopProcess, bank: Bank) => Promise<void>,
  redisPort = sharedRedisPort(),
): Promise<void> {
  const bank = await Bank.open();
  try {
    const shop = await ShopProcess.start(command, bank, redisPort);
    try {
      await play(shop, bank);
    } finally {
      await shop.stop();
    }
  } finally {
    bank.close();
  }
}

/**
 * Clicks twice at the same moment. The bank answers nobody before one of the two is answered, or
 * both are charged.
 */
export async function clickTwice(
  click: () => Promise<Response>,
  bank: Bank,
): Promise<[Response, Response]> {
  const charged = bank.charges;
  let isAnswered = false;
  const answered = () => {
    isAnswered = true;
  };
  bank.hold();
  const clicks = [click(), click()] as const;
  Promise.race(clicks).then(answered, answered);
  try {
    const decided = () => isAnswered || bank.charges === charged + 2;
    await until(decided, { what: "the second click to be refused or charged" });
  } finally {
    bank.release();
  }
  return await Promise.all(clicks);
}

/** What every recipe has to do: one order of two clicks, and of a late one the first answer. */
export async function expectOneOrder(shop: ShopProcess, bank: Bank): Promise<void> {
  const user = freshUser();
  const before = bank.charges;
  const both = await clickTwice(() => shop.order(user), bank);
  expect(both.map(({ status }) => status).sort()).toEqual([201, 409]);
  expect(bank.charges).toBe(before + 1);

  const another = freshUser();
  const key = randomUUID();
  const first = await shop.order(another, { key });
  expect(first.status).toBe(201);
  const late = await shop.order(another, { key });
  expect(late.status).toBe(201);
  expect(late.headers.get("idempotent-replayed")).toBe("true");
  expect(await late.text()).toBe(await first.text());
  expect(bank.charges).toBe(before + 2);
}

/** A client that leaves takes no lock away from the handler that goes on, and leaves none behind. */
export async function expectHeldUntilDone(shop: ShopProcess, bank: Bank): Promise<void> {
  const user = freshUser();
  const leaving = new AbortController();
  const before = bank.charges;
  bank.hold();
  const left = shop.order(user, { signal: leaving.signal }).catch((error) => error.name);
  await until(() => bank.charges === before + 1, { what: "the charge" });
  leaving.abort();
  expect(await left).toBe("AbortError");
  expect((await shop.order(user)).status).toBe(409);
  bank.release();
  await untilFree(shop, user);
  expect(bank.charges).toBe(before + 2);
}

/** The lock is held while a stream is read, and released when its reader leaves. */
export async function expectHeldWhileRead(shop: ShopProcess): Promise<void> {
  const user = freshUser();
  const leaving = new AbortController();
  const path = "/orders/report";
  const report = await shop.order(user, { path, key: randomUUID(), signal: leaving.signal });
  expect(report.status).toBe(201);
  const parts = await report.body?.getReader().read();
  expect(new TextDecoder().decode(parts?.value)).toMatch(/^at work/);
  expect((await shop.order(user)).status).toBe(409);
  leaving.abort();
  await untilFree(shop, user);
}

/** Orders again until the lock of the order before is released. */
export async function untilFree(shop: ShopProcess, user: string): Promise<void> {
  const placed = async () => (await shop.order(user)).status === 201;
  await until(placed, { what: "another order of the same user", boundMs: 8_000, everyMs: 50 });
}
