import { setTimeout as sleep } from "node:timers/promises";
import { freshUser } from "../../support/ids.ts";
import { until } from "../../support/until.ts";
import { Misses } from "../laboratory.ts";
import { Anonymous, type Click, click, longestStranded } from "../shop/clicks.ts";
import { overlapping } from "../shop/ledger.ts";
import { now } from "../shop/protocol.ts";
import type { Service } from "../shop/service.ts";
import type { Fault, Topology } from "./topology.ts";
import { WriteObserver, WriteProbe } from "./writes.ts";

/** The life of a key in these tests. */
export const ttlMs = 3_000;
export const acquireTimeoutMs = 1_000;

/** How soon orders flow when some master takes writes, although nobody but Redis knows of it yet. */
export const resumeBoundMs = 2_500;

/** What customers and observers saw of one fault. Times are milliseconds. */
export type Outcome = Awaited<ReturnType<typeof observe>>;

export async function underFault(
  topology: Topology,
  services: readonly Service[],
  fault: Fault,
  users = 24,
): Promise<Outcome> {
  const observer = new WriteObserver();
  try {
    return await observe(topology, services, fault, users, observer);
  } finally {
    observer.stop();
  }
}

async function observe(
  topology: Topology,
  services: readonly Service[],
  fault: Fault,
  users: number,
  observer: WriteObserver,
) {
  await topology.whole();
  await Promise.all(topology.nodes.map((node) => observer.listen(node)));
  for (const service of services) service.forget();
  const traffic = new Traffic(services, users);
  const anonymous = new Anonymous(services);
  const holdings = () => services.flatMap((service) => service.holdings);
  const affected = new Set<string>();
  const victim = await topology.masterOf(`lock:submit:${traffic.users[0]}`);
  for (const user of traffic.users) {
    if ((await topology.masterOf(`lock:submit:${user}`)) === victim) affected.add(user);
  }
  await until(() => holdings().length > 4 * users, { what: "orders to flow" });

  const faultAt = now();
  const probe = new WriteProbe(topology.nodes, victim, `lock:submit:${traffic.users[0]}`);
  /** When each service acquired again after it first could not; the fault itself where it always could. */
  const recoveries = () => services.map(({ name }) => recoveredAt(name));
  const recoveredAt = (service: string): number | undefined => {
    const first503 = traffic.clicks.find(
      (click) => click.service === service && click.status === 503 && affected.has(click.user),
    );
    const from = first503?.answeredAt ?? faultAt;
    return holdings().find(
      (one) => one.holder === service && affected.has(one.user) && one.from > from,
    )?.from;
  };
  await fault.run({
    topology,
    victim,
    async ordersFlow() {
      // The failover has been noticed only when somebody has been refused.
      const noticed = () => traffic.clicks.some(({ status }) => status === 503);
      const looking = until(noticed, { what: "a 503 while the master is away", boundMs: 10_000 });
      // A failover that is quicker than any attempt gives up is noticed by nobody.
      await looking.catch(() => {});
      await until(() => recoveries().every((at) => at !== undefined), {
        what: "orders to flow after the fault",
        boundMs: 30_000,
      });
    },
    listenAgain: (node) => observer.listen(node),
  });
  probe.stop();
  await sleep(1_000);
  await traffic.stop(15_000);
  const httpMs = anonymous.stop();
  const stoppedAt = now();
  await until(async () => (await keys(topology)) === 0, {
    what: "no key to be left",
    boundMs: 20_000,
    everyMs: 20,
  });
  const keysGoneMs = now() - stoppedAt;

  const { clicks } = traffic;
  const of = (status: number) => clicks.filter((click) => click.status === status);
  const refused = of(503).map(({ answeredAt }) => answeredAt);
  const pairs = overlapping(holdings());
  const lost = holdings().filter((holding) => holding.lost).length;
  const known = of(201).length + of(409).length + of(503).length;
  const writableMs = (probe.acceptedAt ?? faultAt) - faultAt;
  const times = recoveries().map((at) => (at ?? Number.POSITIVE_INFINITY) - faultAt);
  const recoveryMs = refused.length === 0 ? 0 : Math.max(...times);
  const lastRefusedMs = Math.max(faultAt, ...refused) - faultAt;
  return {
    fault: fault.name,
    placed: of(201).length,
    contended: of(409).length,
    unavailable: refused.length,
    /** From the first 503 to the last. */
    unavailableForMs: refused.length === 0 ? 0 : Math.max(...refused) - Math.min(...refused),
    slowest503Ms: Math.max(0, ...of(503).map((click) => click.answeredAt - click.askedAt)),
    /** Neither 201, 409 nor 503; an order that lost its lease is not among them. */
    odd: Math.max(0, clicks.length - known - lost),
    unanswered: traffic.unanswered,
    /** From the fault to the first order that was acquired after a 503, on the slower service. */
    recoveryMs,
    /** From the fault to the first write that another server took; 0 if none did. */
    writableMs,
    /** From then to the order that recovery counts to. */
    resumeMs: writableMs === 0 ? 0 : Math.max(0, recoveryMs - writableMs),
    /** From then to the last 503: orders may flow before, on a master that is replaced later. */
    refusedMs: writableMs === 0 ? 0 : Math.max(0, lastRefusedMs - writableMs),
    /** Leases that were lost under their handlers. */
    lost,
    overlaps: pairs.length,
    /** Those of the overlaps in which a failover had lost the write of one. */
    excused: pairs.filter(([one, two]) => observer.wereApart(one.ownerId, two.ownerId)).length,
    /** The longest that one user was told 409 while nobody held. */
    strandedMs: longestStranded(clicks, holdings()),
    /** From the last answer until no key was left. */
    keysGoneMs,
    uncaught: services.flatMap((service) => service.uncaught),
    /** The slowest answer that had nothing to do with Redis. */
    httpMs,
  };
}

/** How many keys there are on all masters. The services are the only ones who write. */
async function keys(topology: Topology): Promise<number> {
  const masters = await topology.masters();
  const sizes = await Promise.all(masters.map((master) => master.ask("DBSIZE")));
  return sizes.reduce<number>((sum, size) => sum + Number(size), 0);
}

/** What was to be seen and was not. Empty when all is well. */
export function misses(fault: Fault, outcome: Outcome): string[] {
  const misses = new Misses();
  const expect = misses.expect.bind(misses);
  const real = outcome.overlaps - outcome.excused;
  expect(real === 0, `${real} overlaps that no lost write explains`);
  expect(outcome.odd === 0, `${outcome.odd} answers that are neither 201, 409 nor 503`);
  expect(outcome.unanswered === 0, `${outcome.unanswered} clicks without an answer`);
  const slowest = Math.round(outcome.slowest503Ms);
  // The coarse timers of a lock, and the turns of a busy loop before the time-out, at it and after.
  const most = acquireTimeoutMs + 50 + 3 * outcome.httpMs;
  expect(slowest <= most, `a 503 took ${slowest} ms`);
  expect(outcome.recoveryMs <= 15_000, `orders flow again only after ${outcome.recoveryMs} ms`);
  const resume = Math.round(outcome.resumeMs);
  const bound = resumeBoundMs + 3 * outcome.httpMs;
  expect(resume <= bound, `orders flow ${resume} ms after a master takes writes`);
  const refused = Math.round(outcome.refusedMs);
  expect(refused <= bound, `an order is 503 still ${refused} ms after a master takes writes`);
  expect(outcome.placed > 0, "no order was placed");
  expect(fault.isOutage || outcome.unavailable < outcome.placed / 2, "more 503 than it takes");
  // A deletion that a failover lost, or that could not be sent for as long as Redis was away.
  const leftMs = ttlMs + 2_000;
  expect(
    outcome.strandedMs <= leftMs,
    `a user was kept out for ${outcome.strandedMs} ms by nobody`,
  );
  expect(outcome.keysGoneMs <= leftMs, `a key was left for ${outcome.keysGoneMs} ms`);
  misses.expectNone(outcome.uncaught, "nobody caught: ");
  return misses.found;
}

const workMs = 40;
const pauseMs = 60;

/**
 * Customers who order again and again, half of the time with a double click that reaches both
 * services.
 */
class Traffic {
  readonly users: readonly string[];
  readonly clicks: Click[] = [];
  readonly #services: readonly Service[];
  #underWay = 0;
  #going = true;
  readonly #done: Promise<unknown>;

  constructor(services: readonly Service[], users: number) {
    this.#services = services;
    this.users = Array.from({ length: users }, freshUser);
    this.#done = Promise.all(this.users.map((user) => this.#customer(user)));
  }

  /** How many clicks have no answer yet. */
  get unanswered(): number {
    return this.#underWay;
  }

  /** No further clicks. Those under way are answered within `boundMs`, or stay unanswered. */
  async stop(boundMs: number): Promise<void> {
    this.#going = false;
    const timer = new AbortController();
    const timeUp = sleep(boundMs, undefined, { signal: timer.signal }).catch(() => {});
    await Promise.race([this.#done, timeUp]);
    timer.abort();
  }

  async #customer(user: string): Promise<void> {
    await sleep(pauseMs * Math.random());
    while (this.#going) {
      const [one, other] = this.#inAnyOrder();
      const both = Math.random() < 0.5;
      await Promise.all([this.#click(user, one), both ? this.#click(user, other) : undefined]);
      await sleep(pauseMs * 2 * Math.random());
    }
  }

  #inAnyOrder(): readonly [Service, Service] {
    const [one, other] = this.#services as readonly [Service, Service];
    return Math.random() < 0.5 ? [one, other] : [other, one];
  }

  async #click(user: string, service: Service): Promise<void> {
    this.#underWay++;
    this.clicks.push(await click(service, { user, workMs: workMs * 2 * Math.random() }));
    this.#underWay--;
  }
}
