import { setTimeout as sleep } from "node:timers/promises";
import { freshUser } from "../../support/ids.ts";
import { until } from "../../support/until.ts";
import { type ClientName, labClients } from "../client-name.ts";
import { overlapping } from "../ledger.ts";
import { longestStranded } from "../service/clicks.ts";
import { now, type Vitals } from "../service/protocol.ts";
import { type Service, startService } from "../service/service.ts";
import { Random } from "../simulation/time/random.ts";
import { Customers } from "./customers.ts";
import { type ConnectionsOfClient, type Site, startCluster, startSingle } from "./site.ts";
import { Trouble } from "./trouble.ts";

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
  readonly tell?: (round: Round) => void;
}

/** What was seen when all was quiet after a round. */
export interface Round {
  readonly placed: number;
  readonly contended: number;
  readonly unavailable: number;
  readonly left: number;
  readonly lost: number;
  /** Two at once, although the server had kept its data. */
  readonly overlaps: number;
  readonly strandedMs: number;
  /** From the end of the faults until every service placed an order again. */
  readonly recoveryMs: number;
  /** From then on until no key was left. */
  readonly keysGoneMs: number;
  /** To Redis, of all the services. */
  readonly connections: number;
  readonly vitals: readonly Vitals[];
}

export interface SoakResult {
  /** Before the first fault. */
  readonly first: Round;
  readonly rounds: readonly Round[];
  readonly faults: Readonly<Record<string, number>>;
  /** After the second connections were closed, if that was awaited. */
  readonly idleConnections: number | undefined;
  /** How each service ended when it was asked to. */
  readonly exitCodes: readonly (number | null)[];
  readonly uncaught: readonly string[];
  readonly connectionsOfClient: ConnectionsOfClient;
}

/** Two services under mixed traffic and random faults. */
export async function soak(options: SoakOptions): Promise<SoakResult> {
  const site = await (options.onCluster ? startCluster : startSingle)(options.binary);
  const services: Service[] = [];
  try {
    const common = { target: site.target, times };
    const [one, other] = options.clients ?? labClients();
    services.push(
      await startService({
        ...common,
        framework: "Express 5, guard.protect(handler)",
        redisClient: one,
      }),
      await startService({ ...common, framework: "Koa 3", redisClient: other }),
    );
    return await observe(options, site, services);
  } finally {
    await Promise.all(services.map((service) => service.kill()));
    await site.stop();
  }
}

async function observe(
  { seed, rounds, roundMs, customers, untilIdle, tell = () => {} }: SoakOptions,
  site: Site,
  services: readonly Service[],
): Promise<SoakResult> {
  const random = new Random(seed);
  const trouble = new Trouble(site, random);
  // node-redis has one for its next ping on each connection.
  const timersAtRest = new Map<Service, number>();
  for (const service of services) timersAtRest.set(service, timersOf(await service.vitals()));

  async function round(play: () => Promise<void>): Promise<Round> {
    for (const service of services) service.forget();
    const crowd = new Customers(services, random, customers, times.ttlMs);
    await play();
    const healedAt = now();
    await Promise.all(services.map(placesAnOrder));
    const recoveryMs = now() - healedAt;
    await crowd.stop();
    const stoppedAt = now();
    // Handlers of customers who have left may still be at work.
    await until(async () => (await site.keys()) === 0, {
      what: "no key to be left",
      boundMs: 30_000,
    });
    const keysGoneMs = now() - stoppedAt;
    const vitals = await Promise.all(
      services.map((service) => look(service, timersAtRest.get(service) ?? 0)),
    );
    const { clicks } = crowd;
    const count = (status: number) => clicks.filter((click) => click.status === status).length;
    const holdings = services.flatMap((service) => service.holdings);
    // A proxy keeps everything that it has seen.
    site.forget();
    return {
      placed: count(201),
      contended: count(409),
      unavailable: count(503),
      left: count(0),
      lost: holdings.filter((holding) => holding.lost).length,
      overlaps: overlapping(holdings).filter(
        ([one, two]) => !trouble.restarts.some((r) => one.from <= r.until && two.from >= r.from),
      ).length,
      strandedMs: longestStranded(clicks, holdings),
      recoveryMs,
      keysGoneMs,
      connections: await site.connections(),
      vitals,
    };
  }

  // Code that runs often is compiled first, and what it allocates once is no leak.
  const first = await round(() => sleep(Math.min(10_000, roundMs / 2)));
  tell(first);
  const seen: Round[] = [];
  for (let i = 0; i < rounds; i++) {
    const last = await round(() => trouble.goOnUntil(now() + roundMs));
    seen.push(last);
    tell(last);
  }
  let idleConnections: number | undefined;
  if (untilIdle) {
    const atRest = services.length * site.connectionsOfClient.atRest;
    await until(async () => (await site.connections()) <= atRest, {
      what: "the second connections to be closed",
      boundMs: 60_000,
      everyMs: 500,
    }).catch(() => {});
    idleConnections = await site.connections();
  }
  for (const service of services) {
    service.client.close();
    service.terminate();
  }
  const ends = await Promise.race([
    Promise.all(services.map(({ exit }) => exit)),
    sleep(20_000).then(() => []),
  ]);
  return {
    first,
    rounds: seen,
    faults: trouble.counts,
    idleConnections,
    exitCodes: ends.map(({ code }) => code),
    uncaught: services.flatMap((service) => service.uncaught),
    connectionsOfClient: site.connectionsOfClient,
  };
}

async function placesAnOrder(service: Service): Promise<void> {
  const headers = { "x-user": freshUser(), "x-work-ms": "0" };
  const placed = async () => (await service.client.call({ headers }).reply).status === 201;
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
export function misses({ first, rounds, ...result }: SoakResult): string[] {
  const missed: string[] = [];
  const expect = (met: boolean, what: string): void => {
    if (!met) missed.push(what);
  };
  rounds.forEach((round, i) => {
    const name = `round ${i + 1}`;
    expect(round.placed > 0, `${name}: no order was placed`);
    expect(round.overlaps === 0, `${name}: ${round.overlaps} overlaps`);
    expect(round.strandedMs < 15_000, `${name}: a user was kept out for ${round.strandedMs} ms`);
    expect(round.keysGoneMs < 10_000, `${name}: a key was left for ${round.keysGoneMs} ms`);
    expect(
      round.connections <= 2 * round.vitals.length * result.connectionsOfClient.most,
      `${name}: ${round.connections} connections`,
    );
    round.vitals.forEach((vitals, at) => {
      const before = first.vitals[at] as Vitals;
      const grown = (megabytes(vitals) - megabytes(before)).toFixed(1);
      expect(Number(grown) < 15, `${name}: the heap has grown by ${grown} MB`);
      expect(vitals.requestsUnderWay === 0, `${name}: handlers that never ended`);
      for (const [kind, count] of Object.entries(vitals.resources)) {
        const first = before.resources[kind] ?? 0;
        // A second client, its connections and its timers come and go.
        const most = first + 2 + result.connectionsOfClient.most;
        expect(count <= most, `${name}: ${count} × ${kind}, at first ${first}`);
      }
      for (const listeners of ["clientListeners", "socketListeners"] as const) {
        const most = before[listeners] + 4;
        expect(vitals[listeners] <= most, `${name}: ${vitals[listeners]} ${listeners}`);
      }
    });
  });
  const { idleConnections, exitCodes, uncaught, connectionsOfClient } = result;
  const services = first.vitals.length;
  const atRest = services * connectionsOfClient.atRest;
  expect((idleConnections ?? atRest) <= atRest, `${idleConnections} connections at rest`);
  expect(exitCodes.length === services, "a service did not end when it was asked to");
  expect(
    exitCodes.every((code) => code === 0),
    `exit codes ${exitCodes.join(", ")}`,
  );
  for (const rejection of uncaught) missed.push(`nobody caught: ${rejection}`);
  return missed;
}

export function megabytes({ heapBytes, externalBytes }: Vitals): number {
  return (heapBytes + externalBytes) / 1e6;
}
