import { randomUUID } from "node:crypto";
import { expect } from "vitest";
import { freshUser } from "../../support/ids.ts";
import { until } from "../../support/until.ts";
import { Bank } from "./bank.ts";
import { type Command, ShopProcess } from "./shop-process.ts";

/** Runs a shop and a bank for it as long as `play` takes. */
export async function withShop(
  command: Command,
  play: (shop: ShopProcess, bank: Bank) => Promise<void>,
): Promise<void> {
  const bank = await Bank.open();
  try {
    const shop = await ShopProcess.start(command, bank);
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
