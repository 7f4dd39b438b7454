import { setTimeout as sleep } from "node:timers/promises";
import { freshUser } from "../../support/ids.ts";
import { until } from "../../support/until.ts";
import {
  type ClientName,
  labClients,
  Misses,
  rowOf,
  runLaboratory,
  seedOf,
  setting,
} from "../laboratory.ts";
import { Random } from "../simulation/time/random.ts";
import { type Click, click, crowd, longestStranded } from "./clicks.ts";
import { overlapping } from "./ledger.ts";
import { megabytes, now, type Vitals } from "./protocol.ts";
import { type Service, startService } from "./service.ts";
import { type Site, startCluster, startSingle, Trouble } from "./site.ts";

const times = { ttlMs: 2_000, acquireTimeoutMs: 500 };

interface SoakOptions {
  readonly binary: string;
  /** Three masters instead of one server. */
  readonly onCluster: boolean;
  readonly seed: number;
  /** Each ends with a look at everything. */
  readonly rounds: number;
  readonly roundMs: number;
  readonly customers: number;
  /** @defaultValue those of the lab */
  readonly clients?: readonly [ClientName, ClientName];
  /** Whether to wait at the end until the second connections are closed. */
  readonly untilIdle: boolean;
  readonly tell?: (round: object) => void;
}

type SoakResult = Awaited<ReturnType<typeof observe>>;
type Round = SoakResult["rounds"][number];

/** Two services under mixed traffic and random faults. */
export async function soak(options: SoakOptions): Promise<SoakResult> {
  const site = await (options.onCluster ? startCluster : startSingle)(options.binary);
  const services: Service[] = [];
  try {
    const common = { target: site.target, times };
    const [redisClient, other] = options.clients ?? labClients();
    const framework = "Express 5, guard.protect(handler)";
    services.push(await startService({ ...common, framework, redisClient }));
    services.push(await startService({ ...common, framework: "Koa 3", redisClient: other }));
    return await observe(options, site, services);
  } finally {
    await Promise.all(services.map((service) => service.kill()));
    await site.stop();
  }
}

/** What a customer does next; orders are the most of it. */
const habits = ["order", "order", "order", "double", "double", "leave", "slow"] as const;

async function observe(
  { seed, rounds, roundMs, customers, untilIdle, tell = () => {} }: SoakOptions,
  site: Site,
  services: readonly Service[],
) {
  const random = new Random(seed);
  const trouble = new Trouble(site, random);
  // node-redis has one for its next ping on each connection.
  const timersAtRest = new Map<Service, number>();
  for (const service of services) timersAtRest.set(service, timersOf(await service.vitals()));

  async function round(play: () => Promise<void>) {
    for (const service of services) service.forget();
    const clicks: Click[] = [];
    let isOpen = true;
    /** Orders, clicks twice, leaves in the middle, and now and then orders something slow. */
    const crowded = crowd(customers, async () => {
      const user = freshUser();
      for (;;) {
        await sleep(random.between(0, 150));
        if (!isOpen) return;
        const [one, other] = random.pick([services, [...services].reverse()]) as [Service, Service];
        const habit = random.pick(habits);
        // Longer than a lease lives unless it is extended.
        const isSlow = habit === "slow" && random.next() < 0.1;
        const workMs = isSlow ? random.between(1, 1.5) * times.ttlMs : random.between(0, 60);
        const leavesAfterMs = habit === "leave" ? random.between(0, 80) : undefined;
        const asked = [click(one, { user, workMs, leavesAfterMs })];
        if (habit === "double" || isSlow) asked.push(click(other, { user, workMs }));
        for (const each of asked) void each.then((answered) => clicks.push(answered));
        await Promise.all(asked);
      }
    });
    await play();
    const healedAt = now();
    await Promise.all(services.map(placesAnOrder));
    const recoveryMs = now() - healedAt;
    isOpen = false;
    const late = sleep(30_000, undefined, { ref: false }).then(() => {
      throw new Error("a click has not settled within 30 s");
    });
    await Promise.race([crowded, late]);
    const stoppedAt = now();
    // Handlers of customers who have left may still be at work.
    const isEmpty = async () => (await site.keys()) === 0;
    await until(isEmpty, { what: "no key to be left", boundMs: 30_000 });
    const keysGoneMs = now() - stoppedAt;
    const looks = services.map((each) => look(each, timersAtRest.get(each) ?? 0));
    const vitals = await Promise.all(looks);
    const count = (status: number) => clicks.filter((each) => each.status === status).length;
    const holdings = services.flatMap((service) => service.holdings);
    // A proxy keeps everything that it has seen.
    site.forget();
    const seen = {
      placed: count(201),
      contended: count(409),
      unavailable: count(503),
      left: count(0),
      lost: holdings.filter((holding) => holding.lost).length,
      /** Two at once, although the server had kept its data. */
      overlaps: overlapping(holdings).filter(
        ([one, two]) => !trouble.restarts.some((r) => one.from <= r.until && two.from >= r.from),
      ).length,
      strandedMs: longestStranded(clicks, holdings),
      /** From the end of the faults until every service placed an order again. */
      recoveryMs,
      /** From then on until no key was left. */
      keysGoneMs,
      /** To Redis, of all the services. */
      connections: await site.connections(),
      vitals,
    };
    tell(row(seen));
    return seen;
  }

  // Code that runs often is compiled first, and what it allocates once is no leak.
  const seen = [await round(() => sleep(Math.min(10_000, roundMs / 2)))];
  for (let i = 0; i < rounds; i++) {
    seen.push(await round(() => trouble.goOnUntil(now() + roundMs)));
  }
  let idleConnections: number | undefined;
  if (untilIdle) {
    const atRest = services.length * site.connectionsOfClient.atRest;
    const isIdle = async () => (await site.connections()) <= atRest;
    const what = "the second connections to be closed";
    await until(isIdle, { what, boundMs: 60_000, everyMs: 500 }).catch(() => {});
    idleConnections = await site.connections();
  }
  for (const service of services) {
    service.client.close();
    service.terminate();
  }
  const exits = Promise.all(services.map(({ exit }) => exit));
  const ends = await Promise.race([exits, sleep(20_000).then(() => [])]);
  return {
    /** The first is before any fault. */
    rounds: seen,
    faults: trouble.counts,
    /** After the second connections were closed, if that was awaited. */
    idleConnections,
    /** How each service ended when it was asked to. */
    exitCodes: ends.map(({ code }) => code),
    uncaught: services.flatMap((service) => service.uncaught),
    connectionsOfClient: site.connectionsOfClient,
  };
}

async function placesAnOrder(service: Service): Promise<void> {
  const placed = async () => (await click(service, { user: freshUser() })).status === 201;
  await until(placed, { what: `an order on ${service.name}`, boundMs: 30_000, everyMs: 20 });
}

/** What a service holds on to when it has had the time to let go. */
async function look(service: Service, timersAtRest: number): Promise<Vitals> {
  // With the connections of the customers still open: they have served many requests.
  const { socketListeners } = await service.vitals();
  service.client.close();
  let vitals = await service.vitals();
  // An owner id is retired for some seconds when Redis was away; what stays longer is a leak.
  for (let left = 20; left > 0 && timersOf(vitals) > timersAtRest; left--) {
    await sleep(500);
    vitals = await service.vitals();
  }
  return { ...vitals, socketListeners };
}

function timersOf({ resources }: Vitals): number {
  return resources["Timeout"] ?? 0;
}

/** What was to be seen and was not. Empty when all is well. */
export function misses({ rounds: [first, ...rounds], ...result }: SoakResult): string[] {
  const misses = new Misses();
  const { idleConnections, exitCodes, uncaught, connectionsOfClient } = result;
  rounds.forEach((round, i) => {
    const expect = (isMet: boolean, what: string) =>
      misses.expect(isMet, `round ${i + 1}: ${what}`);
    expect(round.placed > 0, "no order was placed");
    expect(round.overlaps === 0, `${round.overlaps} overlaps`);
    expect(round.strandedMs < 15_000, `a user was kept out for ${round.strandedMs} ms`);
    expect(round.keysGoneMs < 10_000, `a key was left for ${round.keysGoneMs} ms`);
    const most = 2 * round.vitals.length * connectionsOfClient.most;
    expect(round.connections <= most, `${round.connections} connections`);
    round.vitals.forEach((vitals, at) => {
      const before = first?.vitals[at] as Vitals;
      const grown = megabytes(vitals) - megabytes(before);
      expect(grown < 15, `the heap has grown by ${grown.toFixed(1)} MB`);
      expect(vitals.requestsUnderWay === 0, "handlers that never ended");
      for (const [kind, count] of Object.entries(vitals.resources)) {
        const atFirst = before.resources[kind] ?? 0;
        // A second client, its connections and its timers come and go.
        const most = atFirst + 2 + connectionsOfClient.most;
        expect(count <= most, `${count} × ${kind}, at first ${atFirst}`);
      }
      for (const listeners of ["clientListeners", "socketListeners"] as const) {
        const most = before[listeners] + 4;
        expect(vitals[listeners] <= most, `${vitals[listeners]} ${listeners}`);
      }
    });
  });
  const services = first?.vitals.length ?? 0;
  const atRest = services * connectionsOfClient.atRest;
  misses.expect((idleConnections ?? atRest) <= atRest, `${idleConnections} connections at rest`);
  misses.expect(exitCodes.length === services, "a service did not end when it was asked to");
  const areGood = exitCodes.every((code) => code === 0);
  misses.expect(areGood, `exit codes ${exitCodes.join(", ")}`);
  misses.expectNone(uncaught, "nobody caught: ");
  return misses.found;
}

/**
 * `npm run lab -- soak`: ten minutes of mixed traffic with random faults, and a look at everything
 * each minute. `SOAK_MINUTES` and `SOAK_SEED` say otherwise; `--cluster`: on three masters.
 */
export async function run(): Promise<void> {
  const onCluster = process.argv.includes("--cluster");
  const rounds = setting("SOAK_MINUTES", 10);
  const seed = seedOf("SOAK_SEED");
  await runLaboratory(`${rounds} minutes with SOAK_SEED=${seed}`, async (binary) => {
    const tell = (round: object) => console.log(JSON.stringify(round));
    const common = { binary, onCluster, seed, rounds, tell };
    const result = await soak({ ...common, roundMs: 55_000, customers: 30, untilIdle: true });
    console.log("\nThe first line is before any fault. Times in ms, memory in MB, Express + Koa:");
    console.table(result.rounds.map(row));
    const { exitCodes, faults, idleConnections } = result;
    console.log("Faults:", faults);
    console.log(`Connections at rest: ${idleConnections}. Exit codes: ${exitCodes.join(", ")}.`);
    return misses(result);
  });
}

/** With memory in MB, and the numbers of each service. */
function row({ vitals, ...round }: Round) {
  const both = (value: (vitals: Vitals) => number | string) => vitals.map(value).join(" + ");
  return {
    ...rowOf(round),
    memory: both((each) => megabytes(each).toFixed(1)),
    timers: both(({ resources }) => resources["Timeout"] ?? 0),
    sockets: both(({ resources }) => resources["TCPSocketWrap"] ?? 0),
    clientListeners: both(({ clientListeners }) => clientListeners),
    socketListeners: both(({ socketListeners }) => socketListeners),
  };
}
