import { setTimeout as sleep } from "node:timers/promises";
import { RedisStore, SubmitLock } from "../../../src/index.ts";
import { ioredis6, untilReady } from "../../support/clients.ts";
import { observer } from "../../support/observer.ts";
import { startProxy } from "../../support/proxy.ts";
import { startServer } from "../../support/server-process.ts";
import { until } from "../../support/until.ts";
import { labClients, Misses, runLaboratory, seedOf, setting } from "../laboratory.ts";
import { Random } from "../simulation/time/random.ts";
import { click } from "./clicks.ts";
import { type Holding, overlapping } from "./ledger.ts";
import { now } from "./protocol.ts";
import { type Service, startService } from "./service.ts";

interface FreedOptions {
  /** The Redis server. */
  readonly binary: string;
  readonly seed: number;
  /** How many locks each of the four processes holds. */
  readonly locksEach: number;
  /** Deletes instead, to see that the laboratory sees what that does. */
  readonly now?: boolean;
}

/** What became of the locks of one process. */
type WayResult = Awaited<ReturnType<typeof resultOf>>;

/** A process at work and three that cannot hear, each held in a way of its own. */
const ways = ["at work", "frozen", "killed", "cut off"] as const;
type Way = (typeof ways)[number];

const times = { ttlMs: 9_000, maxHoldMs: 60_000, acquireTimeoutMs: 4_000 } as const;

/** At the earliest and at the latest so long after the trouble each lock is freed. */
const freedAfterMs = [0, 1_000] as const;

/** Every lock of four processes is freed at a moment of its own, while others wait for each user. */
export async function playFreed(options: FreedOptions): Promise<WayResult[]> {
  const server = await startServer(options.binary);
  const proxy = await startProxy(server.port);
  const client = ioredis6.connect(server.port);
  await untilReady(client);
  const lock = new SubmitLock({ store: new RedisStore(client), ...times });
  const holders = {} as Record<Way, Service>;
  try {
    const start = async (way: Way) => {
      const port = way === "cut off" ? proxy.port : server.port;
      holders[way] = await startHolder(way, port, options.locksEach);
    };
    await Promise.all(ways.map(start));
    const random = new Random(options.seed);
    // Wherever in its renewals each lease is by now.
    await sleep(random.between(0, times.ttlMs));
    holders.frozen.pause();
    await holders.killed.kill();
    proxy.swallowRequests(true);

    const free = (way: Way) =>
      holders[way].holdings.map(async (old) => {
        await sleep(random.between(...freedAfterMs));
        return await freed(lock, old, way, options.now ?? false);
      });
    const played = await Promise.all(
      ways.map(async (way) => ({ way, users: await Promise.all(free(way)) })),
    );

    // What slept wakes, and what was cut off has Redis again: each sends what it still has to send.
    holders.frozen.resume();
    proxy.swallowRequests(false);
    proxy.resetAll();
    for (const way of ["at work", "frozen", "cut off"] as const) {
      const told = () => holders[way].holdings.every(({ lost }) => lost);
      await until(told, { what: `what was ${way} to hear of it` });
    }
    // A renewal or a deletion that came now would do harm.
    await sleep(500);
    const redis = observer(server.port);
    return await Promise.all(played.map(({ way, users }) => resultOf(way, users, redis)));
  } finally {
    for (const holder of Object.values(holders)) await holder.kill();
    await lock.close({ timeoutMs: 0 });
    client.disconnect();
    await proxy.stop();
    await server.stop();
  }
}

/** A process that places an order for each of its users, and never comes to an end with it. */
async function startHolder(way: Way, port: number, locks: number): Promise<Service> {
  const service = await startService({
    framework: "Express 5, guard.protect(handler)",
    redisClient: labClients()[0],
    target: { kind: "single", port },
    times,
    tellsBelief: true,
  });
  for (let i = 0; i < locks; i++) void click(service, { user: `${way}-${i}`, workMs: 1e8 });
  const holdsAll = () =>
    service.holdings.filter(({ believedUntil }) => believedUntil).length === locks;
  await until(holdsAll, { what: `the ${way} holder`, boundMs: 60_000 });
  return service;
}

type FreedUser = Awaited<ReturnType<typeof freed>>;

async function freed(lock: SubmitLock, old: Holding, way: Way, deletes: boolean) {
  const { user } = old;
  const found = await lock.inspect(user);
  if (found.state !== "held") throw new Error(`${user} is ${found.state}`);
  const why = { by: "the laboratory", reason: way, now: deletes };
  const result = await lock.free(user, { id: found.id, ...why });
  if (result.outcome !== "freed") throw new Error(`${user} was ${result.outcome}`);
  const freedAt = now();
  // Somebody who presses the button again and again.
  while (now() < freedAt + 20_000) {
    const askedAt = now();
    const attempt = await lock.acquire(user);
    if (attempt.outcome !== "acquired") {
      await sleep(10);
      continue;
    }
    const { lease: next } = attempt;
    const { fencingToken = Number.NaN, ownerId } = next;
    // The token is Redis' wall clock in µs; here it is that of all processes' monotonic clock.
    const from = fencingToken / 1_000 - (Date.now() - now());
    const about = { holder: "the next", user, ownerId, fencingToken, askedAt, from };
    const holding: Holding = { ...about, until: Number.POSITIVE_INFINITY, lost: false };
    return { old, freedAt, freeInMs: result.freeInMs, next, holding };
  }
  throw new Error(`${user} was not free 20 s after free`);
}

async function resultOf(way: Way, users: readonly FreedUser[], redis: ReturnType<typeof observer>) {
  // Each until its holder was told, or until it believed to hold when it was heard of last.
  const old = users.map(({ old: { believedUntil = Number.POSITIVE_INFINITY, ...each } }) => {
    const toldAt = each.lost ? each.until : Number.POSITIVE_INFINITY;
    return { ...each, until: Math.min(toldAt, believedUntil) };
  });
  const holdings = [...old, ...users.map(({ holding }) => holding)];
  const reasons: Record<string, number> = {};
  for (const { reason } of old) {
    if (reason !== undefined) reasons[reason] = (reasons[reason] ?? 0) + 1;
  }
  const owners = await Promise.all(users.map(({ next }) => redis.ownerOf(next.key)));
  const waits = users.map(({ freedAt, holding }) => holding.from - freedAt);
  const overruns = users.map(({ freeInMs }, i) => (waits[i] as number) - freeInMs);
  const hasHeard = ({ old: { lost, until }, holding }: FreedUser) => lost && until < holding.from;
  return {
    way,
    freed: users.length,
    /** Users whose next lease began while the one before still believed in its own. */
    overlaps: overlapping(holdings).length,
    /** How long a user waited at most for the next lease, and how much longer than `free` had said. */
    longestWaitMs: Math.round(Math.max(...waits)),
    longestOverrunMs: Math.round(Math.max(...overruns)),
    /** Holders that were told before the next lease began; the others' leases had run out by then. */
    toldBefore: users.filter(hasHeard).length,
    /** What the holders were told, once they could hear it. */
    reasons,
    /** Next leases that did not outlive what the old holder still sent. */
    broken: users.filter(({ next }, i) => owners[i] !== next.ownerId || next.signal.aborted).length,
    holdings,
  };
}

/** What was not as it should be. */
export function misses(results: readonly WayResult[]): string[] {
  const misses = new Misses();
  for (const { way, freed, overlaps, longestWaitMs, toldBefore, broken } of results) {
    const expect = (isMet: boolean, what: string) => misses.expect(isMet, `${way}: ${what}`);
    expect(overlaps === 0, `${overlaps} users had two holders at once`);
    // The machine may be late with the click that takes it.
    expect(longestWaitMs <= times.ttlMs + 1_000, `a user waited ${longestWaitMs} ms`);
    expect(broken === 0, `${broken} next leases were broken by the one before`);
    const deaf = freed - toldBefore;
    const late = `${deaf} holders were not told before the next lease began`;
    if (way === "at work") expect(deaf === 0, late);
  }
  return misses.found;
}

/**
 * `npm run lab -- freed`: a person frees 200 locks, 50 each of a process that is at work, frozen,
 * killed and cut off from Redis. `FREED` and `FREED_SEED` say otherwise; `--history FILE` keeps who
 * held what.
 */
export async function run(): Promise<void> {
  const locksEach = setting("FREED", 50);
  const seed = seedOf("FREED_SEED");
  await runLaboratory(`${4 * locksEach} locks with FREED_SEED=${seed}`, async (binary) => {
    const results = await playFreed({ binary, seed, locksEach });
    console.table(
      results.map(({ holdings: _, reasons, ...each }) => {
        return { ...each, reasons: JSON.stringify(reasons) };
      }),
    );
    return misses(results);
  });
}
