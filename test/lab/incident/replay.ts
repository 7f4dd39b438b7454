import { setTimeout as sleep } from "node:timers/promises";
import { type RedisProxy, startProxy } from "../../support/proxy.ts";
import { now } from "../service/protocol.ts";
import { Server } from "./server.ts";
import type { Placed } from "./server-process.ts";
import { type Fault, type StreamOptions, streamOf, type Wish } from "./stream.ts";

export interface ReplayOptions extends StreamOptions {
  /** One of `shopLocks`. */
  readonly lock: string;
  readonly redisPort: number;
  /** How long after the stream blocked customers go on trying. */
  readonly tailSeconds: number;
  readonly servers: number;
}

/** A time in which a customer wanted to order, had no order under way, and was refused. */
export interface Block {
  readonly user: string;
  readonly fault: Fault | undefined;
  readonly fromMs: number;
  readonly untilMs: number;
}

/** One order too many. */
export interface SurplusOrder {
  readonly fault: Fault | undefined;
  /** While another order of the same wish was under way; otherwise after it. */
  readonly isAtOnce: boolean;
  /** It or the other one was placed on a server whose clock is ahead. */
  readonly isByClock: boolean;
}

export interface Replay {
  readonly wishes: number;
  readonly orders: number;
  readonly surplus: readonly SurplusOrder[];
  /** Wishes that had not become an order at the end of the run. */
  readonly ordersLost: number;
  readonly faults: Readonly<Record<Fault, number>>;
  readonly blocks: readonly Block[];
  readonly lengthMs: number;
}

interface Order extends Placed {
  readonly isByClock: boolean;
}

/** A click that became no order. */
interface Refused {
  readonly atMs: number;
  /** It was an order until its server was killed. */
  readonly hasDied: boolean;
}

const workMs = 120;
/** Longer than the life of every lock of the table but that of two hours. */
const slowWorkMs = 7_000;
/** A refused customer tries again. */
const retryMs = 1_000;
/** A connection that lost a reply is noticed dead after so long. */
const resetAfterMs = 300;
/** More than the life of a lock. */
const clockAheadMs = 8_000;

/** One shop, one stream of customers, one kind of lock. */
export async function replay(options: ReplayOptions): Promise<Replay> {
  const proxy = await startProxy(options.redisPort);
  const servers = await Promise.all(
    Array.from({ length: options.servers }, (_, index) =>
      Server.start({
        lock: options.lock,
        redisPort: proxy.port,
        clockAheadMs: index === 0 ? clockAheadMs : 0,
      }),
    ),
  );
  const startedMs = now();
  const endMs = (options.seconds + options.tailSeconds) * 1_000;
  const blocks: Block[] = [];
  const surplus: SurplusOrder[] = [];
  const faults = { "lost reply": 0, "killed process": 0, "slow holder": 0 };
  const busy = new Set<string>();
  let [clicks, wishes, orders, ordersLost] = [0, 0, 0, 0];
  const sinceStart = (): number => now() - startedMs;

  async function click(wish: Wish, name: string): Promise<Order | Refused | "done"> {
    const number = clicks++;
    const server = servers[number % servers.length] as Server;
    const { user, fault } = wish;
    const work = fault === "slow holder" ? slowWorkMs : workMs;
    const answer = await server.order({ number, user, wish: name, workMs: work });
    if (answer.kind === "placed") return { ...answer, isByClock: server.isClockAhead };
    if (answer.kind === "repeated") return "done";
    return { atMs: sinceStart(), hasDied: answer.kind === "died" };
  }

  async function come(wish: Wish): Promise<void> {
    const { user, fault } = wish;
    const name = `${user}-${wishes++}`;
    if (fault !== undefined) faults[fault]++;
    if (fault === "lost reply") loseReplyOf(proxy, user);
    if (fault === "killed process") {
      // The next click is that of this wish.
      killAt(proxy, user, servers[clicks % servers.length] as Server);
    }
    const placed: Order[] = [];
    let refusedMs: number | undefined;
    for (let tries = 0; ; tries++) {
      const askedMs = sinceStart();
      const later = tries === 0 ? wish.laterClicksMs : [];
      const asking = [0, ...later].map((ms) =>
        ms === 0 ? click(wish, name) : sleep(ms).then(() => click(wish, name)),
      );
      const answers = await Promise.all(asking);
      const refused: Refused[] = [];
      for (const answer of answers) {
        if (answer === "done") continue;
        if ("kind" in answer) placed.push(answer);
        else refused.push(answer);
      }
      refusedMs ??= outSince(refused);
      const isServed = placed.length > 0 || answers.includes("done");
      if (isServed || sinceStart() + retryMs >= endMs) {
        if (tries > 0 || !isServed) {
          const untilMs = isServed ? askedMs : endMs;
          blocks.push({ user, fault, fromMs: refusedMs ?? untilMs, untilMs });
        }
        if (!isServed) ordersLost++;
        break;
      }
      await sleep(retryMs);
    }
    orders += placed.length;
    surplus.push(...surplusOf(placed, fault));
  }

  const coming: Promise<void>[] = [];
  for (const wish of streamOf(options)) {
    await sleep(Math.max(0, wish.atMs - sinceStart()));
    // Somebody who still waits for one order does not want the next.
    if (busy.has(wish.user)) continue;
    busy.add(wish.user);
    coming.push(come(wish).finally(() => busy.delete(wish.user)));
  }
  await Promise.all(coming);
  const lengthMs = sinceStart();
  await Promise.all(servers.map((server) => server.stop()));
  await proxy.stop();
  return { wishes, orders, surplus, ordersLost, faults, blocks, lengthMs };
}

/** Since when a customer without an order has none under way. */
function outSince(refused: readonly Refused[]): number | undefined {
  const died = refused.filter(({ hasDied }) => hasDied);
  if (died.length > 0) return Math.max(...died.map(({ atMs }) => atMs));
  return refused.length === 0 ? undefined : Math.min(...refused.map(({ atMs }) => atMs));
}

/** Every order of a wish but the first. */
function surplusOf(placed: readonly Order[], fault: Fault | undefined): SurplusOrder[] {
  const inOrder = [...placed].sort((one, other) => one.fromMs - other.fromMs);
  return inOrder.slice(1).map((order, index) => {
    const earlier = inOrder.slice(0, index + 1);
    const beside = earlier.filter(({ untilMs }) => untilMs > order.fromMs);
    const isByClock = [order, ...beside].some((one) => one.isByClock);
    return { fault, isAtOnce: beside.length > 0, isByClock };
  });
}

function loseReplyOf(proxy: RedisProxy, user: string): void {
  void proxy.loseReplyOnce((argv) => isAcquireOf(argv, user), { resetAfterMs });
}

/** Redis has executed the command, and its process never hears of it. */
function killAt(proxy: RedisProxy, user: string, server: Server): void {
  void proxy
    .holdReplyOnce((argv) => isAcquireOf(argv, user), { releaseAfterMs: 60_000 })
    .then(() => server.kill());
}

function isAcquireOf([name = "", body = "", ...others]: string[], user: string): boolean {
  if (![body, ...others].some((argument) => argument.endsWith(user))) return false;
  if (name.toLowerCase() === "eval") return body.includes("'SET'") || body.includes('"set"');
  return ["set", "setnx", "evalsha"].includes(name.toLowerCase());
}
