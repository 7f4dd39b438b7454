import { setTimeout as sleep } from "node:timers/promises";
import { type Lease, RedisStore, SubmitLock } from "../../../src/index.ts";
import { slotOf } from "../../../src/stores/redis/clients/slots.ts";
import { closeClients, everyClusterClient, untilReady } from "../../support/clients.ts";
import { until } from "../../support/until.ts";
import { type ClientName, labClients, runLaboratory, seedOf, setting } from "../laboratory.ts";
import { now } from "../shop/protocol.ts";
import { Random } from "../simulation/time/random.ts";
import { startReplicatedCluster } from "./cluster.ts";
import { keyIn, keyPrefix, lastOf, Moves, slotCount, users } from "./moves.ts";
import { isInStep, type Node, type Topology } from "./topology.ts";
import { resumeBoundMs } from "./under-fault.ts";
import { WriteProbe } from "./writes.ts";

interface ReshardingOptions {
  readonly durationMs: number;
  readonly seed: number;
  readonly callers: number;
  /** Of every other caller each; those of the lab unless said otherwise. */
  readonly clients?: readonly [ClientName, ClientName];
  readonly ttlMs: number;
  readonly commandTimeoutMs: number;
  /** How much time an attempt has; also how long a move may be felt after it has ended. */
  readonly acquireTimeoutMs: number;
  /** How many slots move, a third of them from each master; half of all unless said otherwise. */
  readonly slots?: number;
  /** Whether one master is failed over and one is killed. */
  readonly failOvers: boolean;
}

/** What a master took so shortly before it was killed may be lost with it. */
const lossMs = 1_000;

/** Where no failover is played, a master that a busy machine stops for a while keeps its slots. */
const steadfast = ["--cluster-node-timeout", "20000"];

/** What two callers want done: each has a client of its own, with its own table of slots. */
interface Order {
  readonly slot: number;
  readonly id: string;
  recordedAt?: number;
}

interface Failover {
  readonly isKill: boolean;
  readonly from: number;
  /** When another master took writes. */
  writableAt: number;
}

/** Many callers on a Cluster of three masters and three replicas while slots move. */
export class Resharding {
  readonly counts = {
    acquired: 0,
    completed: 0,
    contended: 0,
    "503 in a failover": 0,
    "503 as slots moved by key": 0,
    "503 as slots moved atomically": 0,
    "leases lost": 0,
    "excused by the kill": 0,
  };
  readonly findings = {
    "two holders": 0,
    "ran twice": 0,
    "one key on two masters": 0,
    refused: 0,
    "kept out by nobody": 0,
    "locks left": 0,
  };
  /**
   * Locks without a record, by whether their slot was on its way. A lock whose request was dropped
   * is late, and counted like any other in `counts`: it is acquired when the request is sent again.
   */
  readonly lone = { moving: { acquired: 0, late: 0 }, still: { acquired: 0, late: 0 } };
  readonly failovers: Failover[] = [];
  readonly moves: Moves;
  seconds = 0;
  readonly #topology: Topology;
  readonly #options: ReshardingOptions;
  readonly #random: Random;
  readonly #locks: SubmitLock[] = [];
  /** By couple. */
  readonly #orders: Order[] = [];
  #orderCount = 0;
  /** By slot, until it is released. */
  readonly #held = new Map<number, { readonly lease: Lease; readonly since: number }>();
  /** By slot: from when to when its user was contended while nobody held. */
  readonly #nobody = new Map<number, { readonly since: number; readonly until: number }>();
  #isOver = false;

  private constructor(topology: Topology, options: ReshardingOptions) {
    this.#topology = topology;
    this.#options = options;
    this.#random = new Random(options.seed);
    this.moves = new Moves(topology, this.#random, options.slots);
    this.moves.onTwoMasters = (slot) => this.#find("one key on two masters", slot);
  }

  static async play(binary: string, options: ReshardingOptions): Promise<Resharding> {
    const topology = await startReplicatedCluster(binary, options.failOvers ? [] : steadfast);
    const resharding = new Resharding(topology, options);
    const from = now();
    try {
      await resharding.#run();
    } finally {
      resharding.moves.stop();
      closeClients();
      await topology.stop();
    }
    resharding.seconds = (now() - from) / 1_000;
    return resharding;
  }

  async #run(): Promise<void> {
    const { callers, durationMs, failOvers } = this.#options;
    const { acquireTimeoutMs, commandTimeoutMs, ttlMs } = this.#options;
    const ports = this.#topology.nodes.map(({ port }) => port);
    for (const name of this.#options.clients ?? labClients()) {
      const client = everyClusterClient.find((each) => each.name === `${name} Cluster`);
      if (client === undefined) throw new Error(`There is no Cluster client of ${name}.`);
      const store = new RedisStore(await untilReady(client.connect(ports)));
      this.#locks.push(
        new SubmitLock({ store, keyPrefix, commandTimeoutMs, ttlMs, acquireTimeoutMs }),
      );
    }
    for (let couple = 0; couple < callers / 2; couple++) this.#orders.push(this.#newOrder());
    const calls = Array.from({ length: callers }, (_, caller) => this.#call(caller));
    try {
      const moved = this.moves.run(0.9 * durationMs);
      const failedOver = failOvers ? this.#failOverTwice(durationMs) : undefined;
      await Promise.all([sleep(durationMs), failedOver, moved]);
    } finally {
      this.#isOver = true;
      await Promise.all(calls);
    }
    // Less than the life of a key: it is retired, and does not only run out.
    await until(async () => (await this.#keysLeft()).length === 0, {
      what: "no lock to be left",
      boundMs: 2 * acquireTimeoutMs,
    }).catch(() => {});
    for (const key of await this.#keysLeft()) this.#find("locks left", slotOf(key), `: ${key}`);
    await Promise.all(this.#locks.map((lock) => lock.close({ timeoutMs: 0 })));
  }

  #find(what: keyof Resharding["findings"], slot: number, more = ""): void {
    const count = ++this.findings[what];
    if (count <= 5) console.log(`  FOUND: ${what} in ${this.moves.describe(slot)}${more}`);
  }

  /** Every other one is in a slot that moves or has just moved. */
  #newOrder(): Order {
    const { recent } = this.moves;
    const isNear = recent.length > 0 && this.#random.next() < 0.5;
    const slot = isNear
      ? this.#random.pick(recent)
      : Math.floor(this.#random.between(0, slotCount));
    return { slot, id: `order ${this.#orderCount++}` };
  }

  /** Every other couple orders once; the rest only lock. */
  async #call(caller: number): Promise<void> {
    const couple = caller >> 1;
    while (!this.#isOver) {
      await sleep(this.#random.between(0, 150));
      const order = this.#orders[couple] as Order;
      const outcome = await this.#attempt(caller, order, couple % 2 === 0);
      const isDone = outcome === "acquired" || outcome === "completed";
      // Otherwise it is sent again: a record has to be found.
      if (isDone && this.#orders[couple] === order && this.#random.next() < 0.5) {
        this.#orders[couple] = this.#newOrder();
      }
    }
  }

  async #attempt(caller: number, order: Order, isOnce: boolean): Promise<string> {
    const lock = this.#locks[caller % 2] as SubmitLock;
    const { slot, id } = order;
    const user = users[slot] as string;
    const from = now();
    const submission = { id, retainMs: 20_000 };
    const attempt = await (isOnce ? lock.acquire(user, { submission }) : lock.acquire(user));
    if (attempt.outcome === "acquired") {
      if (!isOnce) this.#countLone(slot, from);
      await this.#work(attempt.lease, order, isOnce);
    } else if (attempt.outcome === "unavailable") this.#refused(slot, from, attempt.cause.message);
    else if (attempt.outcome === "contended") this.#contended(slot, from);
    else this.counts.completed++;
    return attempt.outcome;
  }

  #countLone(slot: number, from: number): void {
    const { commandTimeoutMs } = this.#options;
    const isStill = this.moves.kindOf(slot, from, commandTimeoutMs) === undefined;
    const lone = this.lone[isStill ? "still" : "moving"];
    lone.acquired++;
    if (now() - from >= commandTimeoutMs) lone.late++;
  }

  async #work(lease: Lease, order: Order, isOnce: boolean): Promise<void> {
    const { slot } = order;
    const held = { lease, since: now() };
    const other = this.#held.get(slot);
    if (other !== undefined && other.lease.remainingMs() > 0 && !other.lease.signal.aborted) {
      this.#findUnlessLost(other.since, "two holders", slot);
    }
    if (order.recordedAt !== undefined) {
      this.#findUnlessLost(order.recordedAt, "ran twice", slot);
    }
    this.#held.set(slot, held);
    this.#nobody.delete(slot);
    // A few are long enough to be extended, on whichever master they are by then.
    await sleep(this.#random.between(0, this.#random.next() < 0.03 ? 5_000 : 10));
    this.counts.acquired++;
    if (lease.signal.aborted) this.counts["leases lost"]++;
    const ending = isOnce ? lease.complete({ status: 201, body: order.id }) : lease.release();
    if (this.#held.get(slot) === held) this.#held.delete(slot);
    if ((await ending) === "recorded") order.recordedAt = now();
  }

  #findUnlessLost(writtenAt: number, what: "two holders" | "ran twice", slot: number): void {
    const hasLost = ({ isKill, from }: Failover) =>
      isKill && writtenAt > from - lossMs && writtenAt < from;
    if (this.failovers.some(hasLost)) this.counts["excused by the kill"]++;
    else this.#find(what, slot);
  }

  /** Whether at that time a failover was ahead, under way, or not over for long enough. */
  #isDisturbed(from: number): boolean {
    return this.failovers.some(({ writableAt }) => from <= writableAt + resumeBoundMs);
  }

  /** How the slot was on its way, if an attempt that began then may have met it so. */
  #kindOf(slot: number, from: number): ReturnType<Moves["kindOf"]> {
    return this.moves.kindOf(slot, from, this.#options.acquireTimeoutMs);
  }

  #refused(slot: number, from: number, cause: string): void {
    const kind = this.#kindOf(slot, from);
    if (this.#isDisturbed(from)) this.counts["503 in a failover"]++;
    else if (kind === undefined) this.#find("refused", slot, `: ${cause}`);
    else this.counts[`503 as slots moved ${kind}`]++;
  }

  #contended(slot: number, from: number): void {
    this.counts.contended++;
    const isMoving = this.#kindOf(slot, from) !== undefined;
    // A release that a failover has lost: the key runs out by itself.
    const isExcused = isMoving || this.#isDisturbed(from - this.#options.ttlMs);
    const before = this.#nobody.get(slot);
    this.#nobody.delete(slot);
    if (this.#held.has(slot) || isExcused) return;
    // Its callers go on asking, so after a pause this is another one.
    const isSame = before !== undefined && from < before.until + this.#options.acquireTimeoutMs;
    const nobody = { since: isSame ? before.since : from, until: now() };
    this.#nobody.set(slot, nobody);
    const keptOutMs = Math.round(nobody.until - nobody.since);
    if (keptOutMs < 2 * this.#options.acquireTimeoutMs) return;
    this.#find("kept out by nobody", slot, `: for ${keptOutMs} ms`);
    this.#nobody.delete(slot);
  }

  async #failOverTwice(durationMs: number): Promise<void> {
    const from = now();
    for (const [shard, isKill] of [false, true].entries()) {
      await sleep(from + durationMs * (isKill ? 0.6 : 0.3) - now());
      // A replica of Redis does not know which slots are on their way, so none is.
      await this.moves.pause();
      // What was moved last has reached the replica, too.
      await sleep(lossMs);
      await this.#failOver(keyIn(lastOf(shard)), isKill);
      await sleep(lossMs);
      this.moves.resume();
    }
  }

  async #failOver(key: string, isKill: boolean): Promise<void> {
    const { nodes } = this.#topology;
    const victim = await this.#topology.masterOf(key);
    const probe = new WriteProbe(nodes, victim, key);
    const failover = { isKill, from: now(), writableAt: Number.POSITIVE_INFINITY };
    this.failovers.push(failover);
    try {
      await (isKill ? victim.kill() : this.#topology.failOver(victim));
      const accepted = () => probe.acceptedAt;
      failover.writableAt = await until(accepted, { what: "a new master", boundMs: 30_000 });
    } finally {
      probe.stop();
    }
    if (isKill) await victim.restart();
    const isSettled = async (node: Node) => {
      const [role] = (await node.ask("ROLE")) as [string];
      if (!String(await node.ask("CLUSTER", "INFO")).includes("cluster_state:ok")) return false;
      return role === "master" ? node !== victim : await isInStep(node);
    };
    await until(async () => (await Promise.all(nodes.map(isSettled))).every(Boolean), {
      what: "the replicas to be in step",
      boundMs: 40_000,
      everyMs: 100,
    });
  }

  async #keysLeft(): Promise<string[]> {
    const masters = await this.#topology.masters();
    const keys = masters.map(({ port }) => this.moves.send(port, "KEYS", `${keyPrefix}*`));
    return (await Promise.all(keys)).flat() as string[];
  }
}

/**
 * `npm run lab -- resharding`: 200 callers on a Cluster of three masters and three replicas, while half of
 * all slots move and two masters are replaced, on each server that `REDIS_SERVER_BINS` names. Takes
 * `RESHARDING_SECONDS` and `RESHARDING_SEED`.
 */
export async function run(): Promise<void> {
  const durationMs = 1_000 * setting("RESHARDING_SECONDS", 300);
  const seed = seedOf("RESHARDING_SEED");
  const what = `RESHARDING_SECONDS=${durationMs / 1_000} RESHARDING_SEED=${seed}`;
  await runLaboratory(what, async (binary) => {
    // The times are the lock's defaults.
    const times = { ttlMs: 10_000, commandTimeoutMs: 200, acquireTimeoutMs: 1_000 };
    const options = { ...times, callers: 200, failOvers: true, durationMs, seed };
    const played = await Resharding.play(binary, options);
    const { counts, failovers, findings, lone, moves, seconds } = played;
    if (moves.counts.atomically === 0) console.log("  No slot was moved atomically.");
    for (const { isKill, from, writableAt } of failovers) {
      const ms = Math.round(writableAt - from);
      console.log(`  A master was ${isKill ? "killed" : "failed over"}: no writes for ${ms} ms.`);
    }
    for (const [slots, { acquired, late }] of Object.entries(lone)) {
      console.log(`  Locks without a record, slot ${slots}: ${acquired}, ${late} of them late.`);
    }
    console.table({
      seconds: Math.round(seconds),
      "orders per second": Math.round(counts.acquired / seconds),
      "slots moved by key": moves.counts.byKey,
      "slots moved atomically": moves.counts.atomically,
      ...counts,
      ...findings,
    });
    return Object.entries(findings).flatMap(([what, count]) =>
      count > 0 ? `${count} ${what}` : [],
    );
  });
}
