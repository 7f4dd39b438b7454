import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { openClient, type Reply } from "../../http/http-client.ts";
import { type ShopProcess, startShopProcess } from "../../http/shop-processes.ts";
import { startServer } from "../../support/server-process.ts";
import { Random } from "../simulation/time/random.ts";

export interface ClicksOptions {
  /** The Redis server. */
  readonly binary: string;
  readonly seed: number;
  readonly doubleClicks: number;
  /** How many of them are under way at a time. */
  readonly atOnce: number;
}

export interface ClicksResult {
  /** Double clicks whose handler has run once, and those for which it has not. */
  readonly orders: number;
  readonly ranOtherwise: readonly string[];
  readonly fresh: number;
  readonly replayed: number;
  readonly inFlight: number;
  /** What no click should be answered. */
  readonly others: readonly string[];
  /** Double clicks of which neither was answered with the order, and whose answers were not one. */
  readonly unanswered: number;
  readonly differing: number;
}

const frameworks = ["Express 5, guard.protect(handler)", "Koa 3"];
const maxGapMs = 500;
const maxWorkMs = 100;

/**
 * Double clicks with an id on two server processes and one Redis: two submits of one key, each to
 * either process, up to 500 ms apart, while an order takes up to 100 ms.
 */
export async function playClicks(options: ClicksOptions): Promise<ClicksResult> {
  const redis = await startServer(options.binary);
  const shops = await Promise.all(frameworks.map((name) => startShopProcess(name, redis.port)));
  try {
    return await play(shops, options);
  } finally {
    await Promise.all(shops.map((shop) => shop.stop()));
    await redis.stop();
  }
}

async function play(
  shops: readonly ShopProcess[],
  { atOnce, doubleClicks, seed }: ClicksOptions,
): Promise<ClicksResult> {
  const random = new Random(seed);
  const clients = shops.map(({ port }) => openClient(1, port));
  const pairs: Reply[][] = [];
  let next = 0;

  const doubleClick = async (order: string) => {
    const headers = {
      "x-user": `user-of-${order}`,
      "x-order": order,
      "x-work-ms": `${Math.floor(random.between(0, maxWorkMs))}`,
      "idempotency-key": randomUUID(),
    };
    const click = () => random.pick(clients).call({ headers }).reply;
    const first = click();
    await sleep(random.between(0, maxGapMs));
    pairs.push(await Promise.all([first, click()]));
  };
  const customer = async () => {
    while (next < doubleClicks) await doubleClick(`order-${next++}`);
  };
  await Promise.all(Array.from({ length: atOnce }, customer));
  for (const client of clients) client.close();
  return resultOf(pairs, shops, doubleClicks);
}

function resultOf(
  pairs: readonly (readonly Reply[])[],
  shops: readonly ShopProcess[],
  doubleClicks: number,
): ClicksResult {
  const runs = new Map<string, number>();
  for (const { started } of shops.flatMap((shop) => shop.started)) {
    runs.set(started, (runs.get(started) ?? 0) + 1);
  }
  const names = Array.from({ length: doubleClicks }, (_, i) => `order-${i}`);
  const replies = pairs.flat();
  const placed = replies.filter(isPlaced);
  const isReplay = ({ headers }: Reply) => headers["idempotent-replayed"] === "true";
  const bodies = pairs.map((pair) => pair.filter(isPlaced).map(({ body }) => body));
  const others = replies.filter((reply) => !isPlaced(reply) && !isInFlight(reply));
  return {
    orders: names.filter((name) => runs.get(name) === 1).length,
    ranOtherwise: names.filter((name) => runs.get(name) !== 1),
    fresh: placed.filter((reply) => !isReplay(reply)).length,
    replayed: placed.filter(isReplay).length,
    inFlight: replies.filter(isInFlight).length,
    others: others.map(({ body, status }) => `${status} ${body}`),
    unanswered: bodies.filter((each) => each.length === 0).length,
    differing: bodies.filter((each) => new Set(each).size > 1).length,
  };
}

function isPlaced({ status }: Reply): boolean {
  return status === 201;
}

function isInFlight({ body, status }: Reply): boolean {
  return status === 409 && JSON.parse(body).code === "idempotency_in_flight";
}

/** What was not as it should be. */
export function misses(result: ClicksResult, doubleClicks: number): string[] {
  const { differing, fresh, inFlight, others, ranOtherwise, replayed, unanswered } = result;
  const found = [
    ...ranOtherwise.map((order) => `${order} did not run once`),
    ...new Set(others.map((other) => `an answer was ${other}`)),
  ];
  if (fresh !== doubleClicks) found.push(`${fresh} answers came from a handler`);
  if (fresh + replayed + inFlight !== 2 * doubleClicks) found.push("a click was not answered");
  if (unanswered > 0) found.push(`${unanswered} double clicks were not answered with their order`);
  if (differing > 0) found.push(`${differing} double clicks were answered with two orders`);
  return found;
}
