import { setTimeout as sleep } from "node:timers/promises";
import fc from "fast-check";
import { freshUser } from "../../support/ids.ts";
import { until } from "../../support/until.ts";
import { byContent, type Strategy, Tab } from "./customer.ts";
import { type Fate, fates, type Shop, type ShopSetting } from "./shop.ts";

type Event =
  | { readonly kind: "reload" | "duplicate"; readonly tab: number }
  | { readonly kind: "click" | "double click"; readonly tab: number; readonly sizes: number[] }
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
 * a duplicate of a page whose order was refused, by the shop or in front of it: the page has given its
 * id up, and the duplicate has not. Where the content is the name, any duplicate.
 */
export function sequences(strategy: Strategy): fc.Arbitrary<Sequence> {
  const hasSecondTabs = strategy === "`submitOnce` with `id`";
  const isByContent = strategy === byContent;
  const tab = fc.nat({ max: 3 });
  const ms = fc.integer({ min: 5, max: 120 });
  const size = fc.oneof({ weight: 3, arbitrary: fc.constant(0) }, fc.constant(1));
  const sizes = fc.array(size, { minLength: 2, maxLength: 2 });
  const ofTab: fc.Arbitrary<Event> = fc.oneof(
    { weight: 6, arbitrary: fc.record({ kind: fc.constant("click" as const), tab, sizes }) },
    { weight: 3, arbitrary: fc.record({ kind: fc.constant("double click" as const), tab, sizes }) },
    { weight: 4, arbitrary: fc.record({ kind: fc.constantFrom("duplicate", "reload"), tab }) },
  );
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
    declines: fc.oneof({ weight: 2, arbitrary: fc.constant(0) }, fc.constant(1)),
    waitMs: fc.constantFrom(0, 200),
    leaves: fc.boolean(),
    format: fc.constantFrom("problem", "error", "page"),
    keepsBodies: fc.oneof({ weight: 4, arbitrary: fc.constant(true) }, fc.constant(false)),
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
    const isRefused =
      shop.declines > 0 || sequence.events.some((event) => "fate" in event && event.fate === "403");
    const isMeant = ({ kind }: Event) =>
      (hasStorage || (kind !== "reload" && kind !== "duplicate")) &&
      ((!isRefused && !isByContent) || kind !== "duplicate");
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
  const isByContent = strategy === byContent;
  const user = freshUser();
  const cart = `cart-of-${user}`;
  const { hasStorage, disables } = sequence;
  const all = (size: number | undefined) =>
    (size === undefined ? [0, 1] : [size]).flatMap((each) => shop.ordersOf(`${cart}-${each}`));
  const ordered = (size: number | undefined) => all(size)[0];
  const clicked = new Set<number>();
  const click = (tab: Tab, size = 0) => {
    clicked.add(size);
    tab.click(size);
  };
  const visit = { url: shop.url, user, cart, strategy, hasStorage, disables, ordered };
  const tabs = [new Tab(visit)];
  const tabAt = (at: number) => tabs[at % tabs.length] as Tab;
  const repairs: Promise<unknown>[] = [];
  const later = (ms: number, repair: () => unknown) => repairs.push(sleep(ms).then(repair));

  for (const event of sequence.events) {
    switch (event.kind) {
      case "click":
        click(tabAt(event.tab), event.sizes[0]);
        break;
      case "double click":
        for (const size of event.sizes) click(tabAt(event.tab), size);
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
    for (const size of clicked.add(0)) {
      for (let clicks = 0; clicks < 200 && !tab.shows(size); clicks++) {
        if (!(await look(isIdle, "the page stays busy"))) break;
        tab.click(size);
        if (!(await look(isIdle, "the page stays busy after a click"))) break;
        if (!tab.shows(size)) await sleep(10);
      }
      const last = tab.errors.at(-1);
      if (!tab.shows(size)) flaws.push(`tab ${at}: the order is never shown, but ${last}`);
    }
  }
  for (const tab of tabs) {
    tab.close();
    for (const { number, size } of tab.shown) {
      if (!all(undefined).includes(number))
        flaws.push(`order ${number} is shown, and is not placed`);
      else if (isByContent && !all(size).includes(number)) {
        flaws.push(`order ${number} is shown for another content`);
      }
    }
  }
  const orders = all(undefined).length - (isByContent ? clicked.size - 1 : 0);
  for (const size of isByContent ? clicked : []) {
    if (all(size).length !== 1) flaws.push(`content ${size}: ${all(size).length} orders`);
  }
  if (orders === 0) flaws.push("no order is placed");
  return { orders, flaws };
}
