import { setTimeout as sleep } from "node:timers/promises";
import { startProxy } from "../../support/proxy.ts";
import { ttlMs } from "../faults/libraries.ts";
import { type Click, click } from "../service/clicks.ts";
import { oldLocks } from "../service/old-locks.ts";
import { now, type Settings } from "../service/protocol.ts";
import { type Service, startService } from "../service/service.ts";
import { Random } from "../simulation/time/random.ts";

const alone = "submit-lock";
const once = "submit-lock with an id for each wish";

/** The rows of the table, in its order. */
export const shopLocks: readonly string[] = [...Object.keys(oldLocks), alone, once];

/**
 * What befalls one wish:
 *
 * - `lost reply`: its acquire is applied by Redis, and the reply is lost;
 * - `killed process`: its server is killed when Redis has executed its first command;
 * - `slow holder`: the order takes longer than the life of a lock, and the customer clicks on.
 */
export type Fault = "lost reply" | "killed process" | "slow holder";

/** One customer's wish to order, at a time of the run. */
interface Wish {
  readonly user: string;
  readonly atMs: number;
  /** When its clicks come, after the first; whatever becomes of that one. */
  readonly laterClicksMs: readonly number[];
  readonly fault: Fault | undefined;
}

export interface ReplayOptions {
  /** One of `shopLocks`. */
  readonly lock: string;
  readonly redisPort: number;
  readonly servers: number;
  readonly seconds: number;
  /** How long after the stream blocked customers go on trying. */
  readonly tailSeconds: number;
  readonly wishesPerSecond: number;
  readonly users: number;
  readonly doubleClicks: number;
  /** How many are clicked again after the answer. */
  readonly lateClicks: number;
  /** Every so many wishes meet the fault. */
  readonly every: Readonly<Record<Fault, number>>;
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

export type Replay = Awaited<ReturnType<typeof replay>>;

/** An order that was worked on, under the lock, from here to there. */
interface Order {
  readonly receipt: string;
  readonly from: number;
  readonly until: number;
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
export async function replay(options: ReplayOptions) {
  const proxy = await startProxy(options.redisPort);
  const common = {
    framework: "Express 5, guard.protect(handler)",
    redisClient: "ioredis 6",
    target: { kind: "single", port: proxy.port },
    times: { ttlMs },
    commandTimeoutMs: 200,
    idempotency: options.lock === once,
    ...(![alone, once].includes(options.lock) && { oldLock: options.lock }),
  } as const;
  const servers = await Promise.all(
    Array.from({ length: options.servers }, (_, index) =>
      startServer({ ...common, clockAheadMs: index === 0 ? clockAheadMs : 0 }),
    ),
  );
  const startedMs = now();
  const endMs = (options.seconds + options.tailSeconds) * 1_000;
  const blocks: Block[] = [];
  const surplus: SurplusOrder[] = [];
  const faults: Record<Fault, number> = { "lost reply": 0, "killed process": 0, "slow holder": 0 };
  const busy = new Set<string>();
  // Lost: wishes that had not become an order at the end of the run.
  let [clicks, wishes, orders, ordersLost] = [0, 0, 0, 0];
  const sinceStart = (): number => now() - startedMs;
  const nextServer = () => servers[clicks % servers.length] as (typeof servers)[number];

  async function order({ user, fault }: Wish, name: string): Promise<Order | Refused> {
    const server = nextServer();
    clicks++;
    const work = fault === "slow holder" ? slowWorkMs : workMs;
    const { reply, status = 0 } = (await server.click(user, name, work)) ?? { status: 409 };
    if (status !== 201) return { atMs: sinceStart(), hasDied: status === 0 };
    return { ...JSON.parse(reply?.body ?? ""), isByClock: server.isClockAhead };
  }

  /** The next click is that of this wish. */
  function strike({ fault, user }: Wish): void {
    if (fault === undefined) return;
    faults[fault]++;
    const isIts = (argv: string[]) => isAcquireOf(argv, user);
    if (fault === "lost reply") void proxy.loseReplyOnce(isIts, { resetAfterMs });
    if (fault !== "killed process") return;
    const server = nextServer();
    // Redis has executed the command, and its process never hears of it.
    void proxy.holdReplyOnce(isIts, { releaseAfterMs: 60_000 }).then(() => server.kill());
  }

  async function come(wish: Wish): Promise<void> {
    const { user, fault } = wish;
    const name = `${user}-${wishes++}`;
    strike(wish);
    const placed: Order[] = [];
    let refusedMs: number | undefined;
    for (let tries = 0; ; tries++) {
      const askedMs = sinceStart();
      const later = tries === 0 ? wish.laterClicksMs : [];
      const asking = later.map((ms) => sleep(ms).then(() => order(wish, name)));
      const answers = await Promise.all([order(wish, name), ...asking]);
      const refused: Refused[] = [];
      for (const answer of answers) {
        if ("atMs" in answer) refused.push(answer);
        // Not an answer that was repeated, unless the first one was lost with its server.
        else if (placed.every(({ receipt }) => receipt !== answer.receipt)) placed.push(answer);
      }
      refusedMs ??= outSince(refused);
      const isServed = placed.length > 0;
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

/** One server of the shop. One that was killed comes back, as under a supervisor. */
async function startServer(settings: Settings) {
  /** While it is up. */
  let service: Service | undefined;
  let isOver = false;
  let starting: Promise<void>;
  const start = (): Promise<void> => {
    starting = startService(settings).then((started) => {
      service = started;
      void started.exit.then(() => {
        service = undefined;
        if (!isOver) void start();
      });
    });
    return starting;
  };
  await start();
  return {
    isClockAhead: settings.clockAheadMs !== 0,
    /** `undefined` where it is not up. */
    async click(user: string, wish: string, workMs: number): Promise<Click | undefined> {
      return service && (await click(service, { user, key: wish, workMs }));
    },
    kill: () => void service?.kill(),
    async stop() {
      isOver = true;
      await starting;
      await service?.kill();
    },
  };
}

/** Since when a customer without an order has none under way. */
function outSince(refused: readonly Refused[]): number | undefined {
  const died = refused.filter(({ hasDied }) => hasDied);
  if (died.length > 0) return Math.max(...died.map(({ atMs }) => atMs));
  return refused.length === 0 ? undefined : Math.min(...refused.map(({ atMs }) => atMs));
}

/** Every order of a wish but the first. */
function surplusOf(placed: readonly Order[], fault: Fault | undefined): SurplusOrder[] {
  const inOrder = [...placed].sort((one, other) => one.from - other.from);
  return inOrder.slice(1).map((order, index) => {
    const earlier = inOrder.slice(0, index + 1);
    const beside = earlier.filter(({ until }) => until > order.from);
    const isByClock = [order, ...beside].some((one) => one.isByClock);
    return { fault, isAtOnce: beside.length > 0, isByClock };
  });
}

function isAcquireOf([name = "", body = "", ...others]: string[], user: string): boolean {
  if (![body, ...others].some((argument) => argument.endsWith(user))) return false;
  if (name.toLowerCase() === "eval") return body.includes("'SET'") || body.includes('"set"');
  return ["set", "setnx", "evalsha"].includes(name.toLowerCase());
}

/** Each second, for longer than a slow order takes. */
const impatientMs = Array.from({ length: 9 }, (_, index) => (index + 1) * 1_000);

/** The same stream every time, so that every lock faces the same customers and the same faults. */
function streamOf(options: ReplayOptions): Wish[] {
  const { seconds, wishesPerSecond, users, doubleClicks, lateClicks, every } = options;
  const random = new Random(20_261_111);
  // The rarest first, so that a wish that is due for two meets that one.
  const kinds = (Object.keys(every) as Fault[]).sort((one, other) => every[other] - every[one]);
  const wishes: Wish[] = [];
  let atMs = 0;
  while (atMs < seconds * 1_000) {
    // Of one length, so that none is the beginning of another.
    const user = `customer-${10_000 + Math.floor(random.next() * users)}`;
    const kind = random.next();
    const soonMs = random.between(30, 90);
    const lateMs = random.between(200, 500);
    const fault = kinds.find((each) => (wishes.length + 1) % every[each] === 0);
    const late = kind < doubleClicks + lateClicks ? [lateMs] : [];
    const second = kind < doubleClicks ? [soonMs] : late;
    wishes.push({
      user,
      atMs,
      laterClicksMs: fault === "slow holder" ? impatientMs : second,
      fault,
    });
    // Arrivals that know nothing of each other.
    atMs += -Math.log(1 - random.next()) * (1_000 / wishesPerSecond);
  }
  return wishes;
}
