import { setTimeout as sleep } from "node:timers/promises";
import type { RedisStoreOptions } from "../../../src/index.ts";
import { freshUser } from "../../support/ids.ts";
import { until } from "../../support/until.ts";
import { type ClientName, labClients } from "../laboratory.ts";
import { click } from "../shop/clicks.ts";
import { overlapping } from "../shop/ledger.ts";
import { now, type Settings } from "../shop/protocol.ts";
import { type Service, startService } from "../shop/service.ts";
import type { Topology } from "./topology.ts";
import { acquireTimeoutMs, ttlMs } from "./under-fault.ts";
import { WriteObserver } from "./writes.ts";

const names = ["Express 5, guard.protect(handler)", "Koa 3"] as const;

/** A service on Express and one on Koa. */
export async function startServices(
  { target }: Topology,
  times: Settings["times"] = { ttlMs, acquireTimeoutMs },
  store: RedisStoreOptions = {},
  clients: readonly [ClientName, ClientName] = labClients(),
): Promise<[Service, Service]> {
  const common = { target, times, store };
  const [one, other] = clients;
  return await Promise.all([
    startService({ ...common, framework: names[0], redisClient: one }),
    startService({ ...common, framework: names[1], redisClient: other }),
  ]);
}

async function started(service: Service, user: string): Promise<false> {
  await until(() => service.holdings.some((one) => one.user === user), {
    what: "an order to begin",
  });
  return false;
}

/** Another click of the user on this service, until it goes through. Gives how long that took. */
async function freeAfter(service: Service, user: string): Promise<number> {
  const from = now();
  const placed = async () => (await click(service, { user })).status === 201;
  await until(placed, { what: "the user to be free", boundMs: 30_000, everyMs: 10 });
  return now() - from;
}

/** A service is killed in the middle of an order. Gives how long its user waits, in milliseconds. */
export async function killService(victim: Service, other: Service): Promise<number> {
  const user = freshUser();
  void click(victim, { user, workMs: 60_000 });
  await started(victim, user);
  await victim.kill();
  return await freeAfter(other, user);
}

/** A service is asked to end in the middle of an order. */
export async function terminateService(victim: Service, other: Service) {
  const user = freshUser();
  const order = click(victim, { user, workMs: 800 });
  await started(victim, user);
  victim.terminate();
  const { status } = await order;
  const answeredAt = now();
  const freeAfterMs = await freeAfter(other, user);
  const { code } = await victim.exit;
  return {
    status,
    /** How long after the order's answer the user's next one was placed elsewhere. */
    freeAfterMs,
    /** From the answer to the end of the process. */
    endedAfterMs: now() - answeredAt,
    exitCode: code,
  };
}

/** A lease that is not extended: a failover that lost it would go unnoticed by its holder. */
const longHold = { ttlMs: 40_000, maxHoldMs: 40_000 } as const;

const nothingLost = {
  /** Whether two orders of one user ran at the same time. */
  overlapped: false,
  /** Whether the server that took the second lock never had the first. */
  wereApart: false,
  /** The first order was answered 503: it did not run on a key that no replica would hear of. */
  refused: false,
  /** The fencing tokens of the two orders rose. */
  tokenRose: false,
  /** An INCR beside the lock, as many libraries make their token, gave both the same number. */
  counterRepeated: false,
};

/**
 * The one overlap that a lock on one Redis does not prevent by itself, on purpose: the master takes a key that its
 * replicas do not hear of, and dies. The lease of the first order is never extended, or else its
 * service would learn of the loss as soon as it is connected to the new master.
 */
export async function loseWrite(
  topology: Topology,
  store: RedisStoreOptions = {},
  clients?: readonly [ClientName, ClientName],
): Promise<typeof nothingLost> {
  await topology.whole();
  const [one, other] = await startServices(topology, longHold, store, clients);
  const observer = new WriteObserver();
  try {
    await Promise.all(topology.nodes.map((node) => observer.listen(node)));
    const user = freshUser();
    const key = `lock:submit:${user}`;
    const counter = `{${key}}:counter`;
    const victim = await topology.masterOf(key);
    const replicas = await topology.replicasOf(victim);
    for (const replica of replicas) replica.pause();
    // Otherwise a replica still finds the write in its socket when it wakes.
    await victim.ask("CLIENT", "KILL", "TYPE", "replica");
    const first = click(one, { user, workMs: longHold.ttlMs - 2_000 });
    const refused = first.then(({ status }) => status === 503);
    if (await Promise.race([started(one, user), refused])) {
      for (const replica of replicas) replica.resume();
      return { ...nothingLost, refused: true };
    }
    const counted = await victim.ask("INCR", counter);
    await victim.kill();
    for (const replica of replicas) replica.resume();
    await freeAfter(other, user);
    // The one that is asked here may learn of the failover behind the one that the service asks.
    const named = async () => {
      const master = await topology.masterOf(key);
      return master !== victim && master;
    };
    const heir = await until(named, { what: "the heir to be named", boundMs: 40_000 });
    const countedAgain = await heir.ask("INCR", counter);
    const [pair] = overlapping([...one.holdings, ...other.holdings]);
    const [before = Number.NaN, after = Number.NaN] = pair?.map((each) => each.fencingToken) ?? [];
    await victim.restart();
    await topology.whole();
    return {
      overlapped: pair !== undefined,
      wereApart: pair !== undefined && observer.wereApart(pair[0].ownerId, pair[1].ownerId),
      refused: false,
      tokenRose: after > before,
      counterRepeated: counted === countedAgain,
    };
  } finally {
    observer.stop();
    await Promise.all([one.kill(), other.kill()]);
  }
}

/**
 * The master dies as soon as the first order has begun, which its replicas have acknowledged: one of
 * them takes its place. The user clicks on the other service all the while.
 */
export async function keepLock(
  topology: Topology,
  store: RedisStoreOptions,
  clients?: readonly [ClientName, ClientName],
) {
  await topology.whole();
  const [one, other] = await startServices(topology, longHold, store, clients);
  try {
    const user = freshUser();
    const victim = await topology.masterOf(`lock:submit:${user}`);
    const first = click(one, { user, workMs: 12_000 });
    await started(one, user);
    await victim.kill();
    let isOver = false;
    void first.finally(() => {
      isOver = true;
    });
    const meanwhile: number[] = [];
    while (!isOver) {
      const { status } = await click(other, { user });
      if (!isOver && status !== 503) meanwhile.push(status);
      await sleep(20);
    }
    const { status } = await first;
    const overlapped = overlapping([...one.holdings, ...other.holdings]).length > 0;
    await victim.restart();
    await topology.whole();
    return {
      /** What the user's other clicks were answered while the first order ran, on the new master. */
      meanwhile: [...new Set(meanwhile)],
      overlapped,
      /** The first order. */
      status,
    };
  } finally {
    await Promise.all([one.kill(), other.kill()]);
  }
}
