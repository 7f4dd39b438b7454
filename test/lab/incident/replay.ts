import { setTimeout as sleep } from "node:timers/promises";
import { type AnyRedis, ioredis6, untilReady } from "../../support/clients.ts";
import { startProxy } from "../../support/proxy.ts";
import type { Library } from "../faults/library.ts";
import { type StreamOptions, streamOf, type Wish } from "./stream.ts";
import { openOnce, type Submitted } from "./submit-once.ts";

export interface ReplayOptions extends StreamOptions {
  /** A lock, or `once`: this package with an id for each wish. */
  readonly library: Library | "once";
  readonly redisPort: number;
  /** How long after the stream blocked customers go on trying. */
  readonly tailSeconds: number;
}

/** A time in which a customer wanted to order, had no order under way, and was refused. */
export interface Block {
  readonly user: string;
  readonly fromMs: number;
  readonly untilMs: number;
}

export interface Replay {
  readonly clicks: number;
  readonly wishes: number;
  readonly orders: number;
  /** Wishes that became two orders at the same time. */
  readonly doubleOrders: number;
  /** Wishes whose second click became an order after that of the first had been finished. */
  readonly laterOrders: number;
  /** Wishes that had not become an order at the end of the run. */
  readonly unfulfilled: number;
  readonly repliesLost: number;
  readonly blocks: readonly Block[];
  readonly lengthMs: number;
}

const servers = 8;
const workMs = 120;
/** A refused customer tries again. */
const retryMs = 1_000;
/** A connection that lost a reply is noticed dead after so long. */
const resetAfterMs = 300;

/** One shop, one stream of customers, one kind of lock. */
export async function replay(options: ReplayOptions): Promise<Replay> {
  const proxy = await startProxy(options.redisPort);
  const shop = await openShop(options.library, proxy.port);
  const startedAt = performance.now();
  const now = (): number => performance.now() - startedAt;
  const endMs = (options.seconds + options.tailSeconds) * 1_000;
  const blocks: Block[] = [];
  const busy = new Set<string>();
  let [clicks, wishes, orders, doubleOrders, laterOrders] = [0, 0, 0, 0, 0];
  let [unfulfilled, repliesLost] = [0, 0];

  function loseReplyOf(user: string): void {
    const isTheirs = (argv: string[]): boolean =>
      isAcquire(argv) && argv.some((argument) => argument.endsWith(user));
    void proxy.loseReplyOnce(isTheirs, { resetAfterMs }).then(() => repliesLost++);
  }

  async function click(
    user: string,
    wish: string,
  ): Promise<Order | { refusedMs: number } | "repeated"> {
    const order = await shop.order(user, wish, clicks++);
    if (order === "repeated") return order;
    if (order === undefined) return { refusedMs: now() };
    orders++;
    return order;
  }

  async function come({ user, secondClickMs, losesReply }: Wish): Promise<void> {
    const wish = `${user}-${wishes++}`;
    if (losesReply) loseReplyOf(user);
    let refusedMs: number | undefined;
    for (let tries = 0; ; tries++) {
      const askedMs = now();
      const asking = [click(user, wish)];
      // Only the first try is impatient: a refused customer clicks once a second.
      if (tries === 0 && secondClickMs !== undefined) {
        asking.push(sleep(secondClickMs).then(() => click(user, wish)));
      }
      const answers = await Promise.all(asking);
      const placed = answers.filter((answer): answer is Order =>
        Object.hasOwn(answer as object, "fromMs"),
      );
      const [first, second] = placed;
      if (first !== undefined && second !== undefined) {
        const apart = first.untilMs <= second.fromMs || second.untilMs <= first.fromMs;
        if (apart) laterOrders++;
        else doubleOrders++;
      }
      if (first !== undefined || answers.includes("repeated")) {
        if (refusedMs !== undefined) blocks.push({ user, fromMs: refusedMs, untilMs: askedMs });
        return;
      }
      for (const answer of answers) {
        if (answer !== "repeated" && "refusedMs" in answer) {
          refusedMs = Math.min(refusedMs ?? endMs, answer.refusedMs);
        }
      }
      if (now() + retryMs >= endMs) {
        blocks.push({ user, fromMs: refusedMs ?? endMs, untilMs: endMs });
        unfulfilled++;
        return;
      }
      await sleep(retryMs);
    }
  }

  const coming: Promise<void>[] = [];
  for (const wish of streamOf(options)) {
    await sleep(Math.max(0, wish.atMs - now()));
    // Somebody who still waits for one order does not want the next.
    if (busy.has(wish.user)) continue;
    busy.add(wish.user);
    coming.push(come(wish).finally(() => busy.delete(wish.user)));
  }
  await Promise.all(coming);
  const lengthMs = now();
  await shop.close();
  await proxy.stop();
  const counts = { clicks, wishes, orders, doubleOrders, laterOrders, unfulfilled, repliesLost };
  return { ...counts, blocks, lengthMs };
}

/** The time in which the shop worked on an order under the lock. */
interface Order {
  readonly fromMs: number;
  readonly untilMs: number;
}

interface Shop {
  /** One submit at one of the servers, and the order that it became or that its answer repeats. */
  order(user: string, wish: string, click: number): Promise<Order | "repeated" | undefined>;
  close(): Promise<void>;
}

/** Several server processes with a connection each, as behind a load balancer. */
async function openShop(library: Library | "once", port: number): Promise<Shop> {
  const clients = Array.from({ length: servers }, () =>
    ioredis6.connect(port, { commandTimeout: 200 }),
  );
  await Promise.all(clients.map(untilReady));
  const contenders = clients.map((client) =>
    library === "once" ? openOnce(client) : openLock(library, client),
  );
  return {
    async order(user, wish, click) {
      const contender = contenders[click % servers];
      // As applications do: a lock that could not be asked for is a refusal.
      const submitted = await contender?.submit(user, wish).catch(() => undefined);
      if (submitted === "repeated") return submitted;
      if (submitted === undefined || submitted === "refused") return undefined;
      const fromMs = performance.now();
      await sleep(workMs);
      const untilMs = performance.now();
      submitted.release().catch(() => {});
      return { fromMs, untilMs };
    },
    async close() {
      await Promise.all(contenders.map((contender) => contender.close()));
      for (const client of clients) client.disconnect();
    },
  };
}

function openLock(library: Library, client: AnyRedis) {
  const contender = library.open(client);
  return {
    async submit(user: string): Promise<Submitted> {
      const answer = await contender.acquire(user);
      return answer.outcome === "acquired" ? answer.hold : "refused";
    },
    close: () => contender.close(),
  };
}

function isAcquire([name, body]: string[]): boolean {
  if (name === "set") return true;
  return name === "eval" && body?.includes("'SET'") === true;
}
