import { setTimeout as sleep } from "node:timers/promises";
import { type Lease, type LostReason, RedisStore, SubmitLock } from "../../../src/index.ts";
import { Child } from "../../support/child.ts";
import { ioredis6, untilReady } from "../../support/clients.ts";
import { observer } from "../../support/observer.ts";
import { type RedisProxy, startProxy } from "../../support/proxy.ts";
import { startServer } from "../../support/server-process.ts";
import { until } from "../../support/until.ts";
import { type Holding, Ledger, overlapping } from "../ledger.ts";
import { now } from "../service/protocol.ts";
import { Random } from "../simulation/time/random.ts";
import type { FromHolder, HolderSettings } from "./holder-process.ts";

export interface FreedOptions {
  /** The Redis server. */
  readonly binary: string;
  readonly seed: number;
  /** How many locks each of the four processes holds. */
  readonly locksEach: number;
  /** Deletes instead, to see that the laboratory sees what that does. */
  readonly now?: boolean;
}

/** What became of the locks of one process. */
export interface WayResult {
  readonly way: string;
  readonly freed: number;
  /** Users whose next lease began while the one before still believed in its own. */
  readonly overlaps: number;
  /** How long a user waited at most for the next lease, and how much longer than `free` had said. */
  readonly longestWaitMs: number;
  readonly longestOverrunMs: number;
  /** Holders that were told before the next lease began; the others' leases had run out by then. */
  readonly toldBefore: number;
  /** What the holders were told, once they could hear it. */
  readonly reasons: Readonly<Record<string, number>>;
  /** Next leases that did not outlive what the old holder still sent. */
  readonly broken: number;
}

/** A process at work and three that cannot hear, each held in a way of its own. */
const ways = ["at work", "frozen", "killed", "cut off"] as const;
type Way = (typeof ways)[number];

const times = { ttlMs: 3_000, maxHoldMs: 60_000, acquireTimeoutMs: 1_000 } as const;

/** At the earliest and at the latest so long after the trouble each lock is freed. */
const freedAfterMs = [0, 1_000] as const;

/** Every lock of four processes is freed at a moment of its own, while others wait for each user. */
export async function playFreed(options: FreedOptions): Promise<WayResult[]> {
  const server = await startServer(options.binary);
  const proxy = await startProxy(server.port);
  const client = ioredis6.connect(server.port);
  await untilReady(client);
  const lock = new SubmitLock({ store: new RedisStore(client), ...times });
  const holders = new Map<Way, Holder>();
  try {
    for (const way of ways) {
      const port = way === "cut off" ? proxy.port : server.port;
      const users = Array.from({ length: options.locksEach }, (_, i) => `${way}-${i}`);
      holders.set(way, await startHolder(way, { port, users, times }));
    }
    const random = new Random(options.seed);
    // Wherever in its renewals each lease is by now.
    await sleep(random.between(0, times.ttlMs));
    await trouble(holders, proxy);
    const plays = [...holders].map(([way, holder]) => {
      return playWay(way, holder, lock, random, options.now ?? false);
    });
    const played = await Promise.all(plays);
    await mend(holders, proxy);
    const redis = observer(server.port);
    return await Promise.all(played.map((each) => resultOf(each, redis)));
  } finally {
    for (const holder of holders.values()) await holder.kill();
    await lock.close({ timeoutMs: 0 });
    client.disconnect();
    await proxy.stop();
    await server.stop();
  }
}

async function trouble(holders: ReadonlyMap<Way, Holder>, proxy: RedisProxy): Promise<void> {
  process.kill(pidOf(holders, "frozen"), "SIGSTOP");
  await holders.get("killed")?.kill();
  proxy.swallowRequests(true);
}

/** What slept wakes, and what was cut off has Redis again: each sends what it still has to send. */
async function mend(holders: ReadonlyMap<Way, Holder>, proxy: RedisProxy): Promise<void> {
  process.kill(pidOf(holders, "frozen"), "SIGCONT");
  proxy.swallowRequests(false);
  proxy.resetAll();
  for (const [way, holder] of holders) {
    if (way === "killed") continue;
    const told = () => holder.holdings().every(({ ownerId }) => holder.told(ownerId));
    await until(told, { what: `what was ${way} to hear of it` });
  }
  // A renewal or a deletion that came now would do harm.
  await sleep(500);
}

function pidOf(holders: ReadonlyMap<Way, Holder>, way: Way): number {
  const pid = holders.get(way)?.pid;
  if (pid === undefined) throw new Error(`nobody is ${way}`);
  return pid;
}

interface Played {
  readonly way: Way;
  readonly holder: Holder;
  readonly users: readonly PlayedUser[];
}

interface PlayedUser {
  readonly user: string;
  readonly freedAt: number;
  readonly freeInMs: number;
  readonly next: Lease;
  /** By Redis' own clock, when the next lease was granted. */
  readonly grantedAt: number;
}

async function playWay(
  way: Way,
  holder: Holder,
  lock: SubmitLock,
  random: Random,
  deletes: boolean,
): Promise<Played> {
  const users = holder.holdings().map(({ user }) => ({
    user,
    pauseMs: random.between(...freedAfterMs),
  }));
  const playUser = async ({ user, pauseMs }: (typeof users)[number]): Promise<PlayedUser> => {
    await sleep(pauseMs);
    const found = await lock.inspect(user);
    if (found.state !== "held") throw new Error(`${user} is ${found.state}`);
    const why = { by: "the laboratory", reason: way };
    const result = await lock.free(user, { id: found.id, ...why, now: deletes });
    if (result.outcome !== "freed") throw new Error(`${user} was ${result.outcome}`);
    const freedAt = now();
    const next = await nextOf(lock, user);
    return { user, freedAt, freeInMs: result.freeInMs, next, grantedAt: grantOf(next) };
  };
  return { way, holder, users: await Promise.all(users.map(playUser)) };
}

/** Somebody who presses the button again and again. */
async function nextOf(lock: SubmitLock, user: string): Promise<Lease> {
  const endsAt = now() + 20_000;
  while (now() < endsAt) {
    const attempt = await lock.acquire(user);
    if (attempt.outcome === "acquired") return attempt.lease;
    await sleep(10);
  }
  throw new Error(`${user} was not free 20 s after free`);
}

/** The token is Redis' wall clock in µs; here it is that of all processes' monotonic clock. */
function grantOf({ fencingToken = Number.NaN }: Lease): number {
  return fencingToken / 1_000 - (Date.now() - now());
}

async function resultOf(
  { way, holder, users }: Played,
  redis: ReturnType<typeof observer>,
): Promise<WayResult> {
  const ledger = new Ledger();
  for (const { user, next, grantedAt } of users) {
    ledger.begin({ holder: "the next", user, ownerId: next.ownerId, from: grantedAt });
  }
  const old = holder.holdings();
  const overlaps = overlapping([...old, ...ledger.holdings]);
  const reasons: Record<string, number> = {};
  let toldBefore = 0;
  for (const { ownerId, user } of old) {
    const told = holder.told(ownerId);
    if (told === undefined) continue;
    reasons[told.reason] = (reasons[told.reason] ?? 0) + 1;
    const { grantedAt = 0 } = users.find((each) => each.user === user) ?? {};
    if (told.at < grantedAt) toldBefore++;
  }
  const owners = await Promise.all(users.map(({ next }) => redis.ownerOf(next.key)));
  const waits = users.map(({ freedAt, grantedAt }) => grantedAt - freedAt);
  return {
    way,
    freed: users.length,
    overlaps: overlaps.length,
    longestWaitMs: Math.round(Math.max(...waits)),
    longestOverrunMs: Math.round(
      Math.max(...users.map(({ freeInMs }, i) => (waits[i] as number) - freeInMs)),
    ),
    toldBefore,
    reasons,
    broken: users.filter(({ next }, i) => owners[i] !== next.ownerId || next.signal.aborted).length,
  };
}

/** What was not as it should be. */
export function misses(results: readonly WayResult[]): string[] {
  return results.flatMap(({ way, freed, overlaps, longestWaitMs, toldBefore, broken }) => {
    const found: string[] = [];
    if (overlaps > 0) found.push(`${way}: ${overlaps} users had two holders at once`);
    // The machine may be late with the click that takes it.
    if (longestWaitMs > times.ttlMs + 1_000)
      found.push(`${way}: a user waited ${longestWaitMs} ms`);
    if (broken > 0) found.push(`${way}: ${broken} next leases were broken by the one before`);
    if (way === "at work" && toldBefore < freed) {
      found.push(`${way}: ${freed - toldBefore} holders were not told before the next lease began`);
    }
    return found;
  });
}

/** A process that holds locks, seen from outside. */
interface Holder {
  readonly pid: number;
  /** Each until its holder was told, or until it believed to hold when it was heard of last. */
  holdings(): readonly Holding[];
  /** What the holder of this owner id was told, and when. */
  told(ownerId: string): { readonly reason: LostReason; readonly at: number } | undefined;
  kill(): Promise<void>;
}

/** Resolves when it holds the locks of all its users. */
async function startHolder(name: string, settings: HolderSettings): Promise<Holder> {
  const script = new URL("./holder-process.ts", import.meta.url);
  const child = new Child<FromHolder>(script, [JSON.stringify(settings)]);
  const ledger = new Ledger();
  const told = new Map<string, { reason: LostReason; at: number }>();
  const believed = new Map<string, number>();
  child.onMessage((message) => {
    if ("begun" in message) {
      const { begun: ownerId, user, at: from } = message;
      ledger.begin({ holder: name, user, ownerId, from });
    } else if ("told" in message) {
      told.set(message.told, { reason: message.reason, at: message.at });
    } else for (const [ownerId, at] of message.believed) believed.set(ownerId, at);
  });
  await child.next();
  const holdsAll = () => believed.size === settings.users.length;
  await until(holdsAll, { what: `the ${name} holder`, boundMs: 60_000 });
  return {
    pid: child.pid,
    holdings: () => {
      for (const holding of ledger.holdings) {
        const { ownerId } = holding;
        const believedUntil = believed.get(ownerId) ?? Number.POSITIVE_INFINITY;
        ledger.end(holding, Math.min(told.get(ownerId)?.at ?? believedUntil, believedUntil));
      }
      return ledger.holdings;
    },
    told: (ownerId) => told.get(ownerId),
    kill: () => child.kill(),
  };
}
