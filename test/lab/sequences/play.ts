import { setTimeout as sleep } from "node:timers/promises";
import fc from "fast-check";
import { freshUser } from "../../support/ids.ts";
import { until } from "../../support/until.ts";
import { type Strategy, Tab } from "./customer.ts";
import { type Fate, fates, type Shop, type ShopSetting } from "./shop.ts";

type Event =
  | { readonly kind: "click" | "double click" | "reload" | "duplicate"; readonly tab: number }
  | { readonly kind: "second tab" }
  | { readonly kind: "offline" | "kill" | "redis away"; readonly ms: number }
  | { readonly kind: "fate"; readonly fate: Fate; readonly count: number };

/** What happens to one cart. */
export interface Sequence {
  readonly shop: ShopSetting;
  readonly hasStorage: boolean;
  readonly disables: boolean;
  readonly events: readonly (Event & { readonly thenMs: number })[];
}

/**
 * Sequences for one cart. Where the id is made by the page, three things are two orders by intention:
 * a second tab that was not duplicated, a page that is loaded again although storage is refused, and
 * a duplicate of a page whose payment was declined.
 */
export function sequences(hasSecondTabs: boolean): fc.Arbitrary<Sequence> {
  const tab = fc.nat({ max: 3 });
  const ms = fc.integer({ min: 5, max: 120 });
  const ofTab = fc.record({
    kind: fc.oneof(
      { weight: 6, arbitrary: fc.constant("click" as const) },
      { weight: 7, arbitrary: fc.constantFrom("double click", "duplicate", "reload") },
    ),
    tab,
  });
  const trouble = fc.constantFrom("offline", "offline", "kill", "redis away");
  const fate = fc.record({
    kind: fc.constant("fate" as const),
    fate: fc.constantFrom(...fates),
    count: fc.integer({ min: 1, max: 3 }),
  });
  const event: fc.Arbitrary<Event> = fc.oneof(
    { weight: 13, arbitrary: ofTab },
    { weight: 4, arbitrary: fc.record({ kind: trouble, ms }) },
    { weight: 4, arbitrary: fate },
    { weight: hasSecondTabs ? 2 : 0, arbitrary: fc.constant({ kind: "second tab" as const }) },
  );
  const thenMs = fc.oneof(fc.constant(0), fc.integer({ min: 1, max: 60 }));
  const events = fc.array(
    fc.tuple(event, thenMs).map(([event, thenMs]) => ({ ...event, thenMs })),
    { minLength: 2, maxLength: 10 },
  );
  const shop = fc.record({
    framework: fc.constantFrom("express" as const, "fetch" as const),
    beforeMs: fc.integer({ min: 0, max: 50 }),
    afterMs: fc.integer({ min: 0, max: 15 }),
    declines: fc.oneof({ weight: 3, arbitrary: fc.constant(0) }, fc.constant(1)),
    waitMs: fc.constantFrom(0, 200),
    leaves: fc.boolean(),
  });
  const all = fc.record({
    shop,
    hasStorage: fc.oneof({ weight: 4, arbitrary: fc.constant(true) }, fc.constant(false)),
    disables: fc.boolean(),
    events,
  });
  if (hasSecondTabs) return all;
  return all.map((sequence) => {
    const { hasStorage, shop } = sequence;
    const isMeant = ({ kind }: Event) =>
      (hasStorage || (kind !== "reload" && kind !== "duplicate")) &&
      (shop.declines === 0 || kind !== "duplicate");
    return { ...sequence, events: sequence.events.filter(isMeant) };
  });
}

/** What came of a sequence. */
export interface End {
  readonly orders: number;
  /** Breaks of a promise other than that there is one order. */
  readonly flaws: readonly string[];
}

/** Plays a sequence, and then lets the customer click until the order is seen. */
export async function play(shop: Shop, sequence: Sequence, strategy: Strategy): Promise<End> {
  await shop.begin(sequence.shop);
  const user = freshUser();
  const cart = `cart-of-${user}`;
  const { hasStorage, disables } = sequence;
  const ordered = () => shop.ordersOf(cart)[0];
  const visit = { url: shop.url, user, cart, strategy, hasStorage, disables, ordered };
  const tabs = [new Tab(visit)];
  const tabAt = (at: number) => tabs[at % tabs.length] as Tab;
  const repairs: Promise<unknown>[] = [];
  const later = (ms: number, repair: () => unknown) => repairs.push(sleep(ms).then(repair));

  for (const event of sequence.events) {
    switch (event.kind) {
      case "click":
        tabAt(event.tab).click();
        break;
      case "double click":
        tabAt(event.tab).click();
        tabAt(event.tab).click();
        break;
      case "reload":
        tabAt(event.tab).reload();
        break;
      case "duplicate":
        if (tabs.length < 4) tabs.push(tabAt(event.tab).duplicate());
        break;
      case "second tab":
        if (tabs.length < 4) tabs.push(new Tab(visit));
        break;
      case "offline":
        shop.goOffline(true);
        later(event.ms, () => shop.goOffline(false));
        break;
      case "kill":
        await shop.kill();
        later(event.ms, () => shop.restart());
        break;
      case "redis away":
        await shop.takeRedisAway(true);
        later(event.ms, () => shop.takeRedisAway(false));
        break;
      case "fate":
        shop.strike(event.fate, event.count);
    }
    if (event.thenMs > 0) await sleep(event.thenMs);
  }
  await Promise.all(repairs);
  await shop.heal();

  const flaws: string[] = [];
  for (const [at, tab] of tabs.entries()) {
    const isIdle = () => !tab.isBusy;
    const look = async (found: () => boolean, what: string) => {
      const options = { what, boundMs: 20_000, everyMs: 2 };
      await until(found, options).catch(() => flaws.push(`tab ${at}: ${what}`));
      return found();
    };
    for (let clicks = 0; clicks < 200 && tab.placed === undefined; clicks++) {
      if (!(await look(isIdle, "the page stays busy"))) break;
      tab.click();
      if (!(await look(isIdle, "the page stays busy after a click"))) break;
      if (tab.placed === undefined) await sleep(10);
    }
    const last = tab.errors.at(-1);
    if (tab.placed === undefined) flaws.push(`tab ${at}: the order is never shown, but ${last}`);
  }
  const orders = shop.ordersOf(cart);
  for (const tab of tabs) {
    tab.close();
    for (const number of tab.shown) {
      if (!orders.includes(number)) flaws.push(`order ${number} is shown, and is not placed`);
    }
  }
  if (orders.length === 0) flaws.push("no order is placed");
  return { orders: orders.length, flaws };
}
