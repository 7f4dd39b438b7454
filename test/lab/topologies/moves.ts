import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { slotOf } from "../../../src/stores/redis/clients/slots.ts";
import { beginMove } from "../../support/slot-move.ts";
import { until } from "../../support/until.ts";
import { now } from "../shop/protocol.ts";
import type { Random } from "../simulation/time/random.ts";
import type { Topology } from "./topology.ts";

export const slotCount = 16_384;
export const keyPrefix = "lock:submit:";
const shardCount = 3;
/** Slots that are moved together. */
const batchSize = { byKey: 32, atomically: 128 };
const never = Number.POSITIVE_INFINITY;

export const users: readonly string[] = usersBySlot();

function usersBySlot(): string[] {
  const found = new Map<number, string>();
  for (let id = 0; found.size < slotCount; id++) {
    const slot = slotOf(keyPrefix + id);
    if (!found.has(slot)) found.set(slot, String(id));
  }
  return Array.from({ length: slotCount }, (_, slot) => found.get(slot) as string);
}

export function keyIn(slot: number): string {
  return keyPrefix + (users[slot] as string);
}

function firstOf(shard: number): number {
  return Math.floor((shard * slotCount) / shardCount);
}

/** The last slot of a shard, which stays there. */
export function lastOf(shard: number): number {
  return firstOf((shard % shardCount) + 1) - 1;
}

type AtomicCommand = "MIGRATESLOTS" | "MIGRATION";

/**
 * The first slots of each shard move to the next shard: half of them by key, the others atomically
 * where the server can.
 */
export class Moves {
  readonly counts = { byKey: 0, atomically: 0 };
  /** Told of a slot with a key that only two holders can leave. */
  onTwoMasters: (slot: number) => void = () => {};
  /** The slots that were moved last. */
  recent: readonly number[] = [];
  readonly #openedAt = new Float64Array(slotCount).fill(never);
  readonly #arrivedAt = new Float64Array(slotCount).fill(never);
  readonly #atomic = new Set<number>();
  readonly #connections = new Map<number, Redis>();
  readonly #topology: Topology;
  readonly #random: Random;
  readonly #slots: number;
  #isPaused = false;
  #underWay = 0;
  #turn: Promise<void> = Promise.resolve();

  /** @param slots how many move. */
  constructor(topology: Topology, random: Random, slots = slotCount / 2) {
    this.#topology = topology;
    this.#random = random;
    this.#slots = slots;
  }

  /** Spread over so long, or longer if the servers need it. */
  async run(durationMs: number): Promise<void> {
    const command = await this.#atomicCommand();
    const shards = Array.from({ length: shardCount }, (_, shard) => shard);
    // A server refuses to move slots atomically while others move by key.
    for (const [half, by] of [undefined, command].entries()) {
      await Promise.all(shards.map((shard) => this.#move(shard, half, by, durationMs / 2)));
    }
  }

  /** Begins no further moves. Resolves when none is under way. */
  async pause(): Promise<void> {
    this.#isPaused = true;
    await until(() => this.#underWay === 0, { what: "the moves to end", boundMs: 60_000 });
  }

  resume(): void {
    this.#isPaused = false;
  }

  /** How a slot is or was moved, if at that time its move was not over for so long. */
  kindOf(slot: number, at: number, settledMs: number): "by key" | "atomically" | undefined {
    if (this.#openedAt[slot] === never) return undefined;
    if (at > (this.#arrivedAt[slot] as number) + settledMs) return undefined;
    return this.#atomic.has(slot) ? "atomically" : "by key";
  }

  /** For a finding. */
  describe(slot: number): string {
    const [opened, arrived] = [this.#openedAt[slot], this.#arrivedAt[slot]] as [number, number];
    if (opened === never) return `slot ${slot}, which has not moved`;
    const since = (at: number) => `${Math.round(now() - at)} ms`;
    if (arrived === never) return `slot ${slot}, ${since(opened)} after its move began`;
    return `slot ${slot}, ${since(arrived)} after its move ended`;
  }

  /** One connection for each server, for as long as the run takes. */
  readonly send = async (port: number, name: string, ...args: (string | number)[]) => {
    let connection = this.#connections.get(port);
    if (connection === undefined) {
      connection = new Redis(port, "127.0.0.1");
      connection.on("error", () => {});
      this.#connections.set(port, connection);
    }
    return await connection.call(name, ...args);
  };

  stop(): void {
    for (const connection of this.#connections.values()) connection.disconnect();
  }

  async #move(
    shard: number,
    half: number,
    atomic: AtomicCommand | undefined,
    durationMs: number,
  ): Promise<void> {
    const share = this.#slots / slotCount;
    const part = Math.round(((lastOf(shard) + 1 - firstOf(shard)) * share) / 2);
    const first = firstOf(shard) + half * part;
    const most = atomic === undefined ? batchSize.byKey : batchSize.atomically;
    const from = now();
    for (let at = 0; at < part; at += most) {
      const length = Math.min(most, part - at);
      const batch = Array.from({ length }, (_, i) => first + at + i);
      await sleep(Math.max(0, from + (durationMs * at) / part - now()));
      await until(() => !this.#isPaused, { what: "the failover to be over", boundMs: 120_000 });
      this.#underWay++;
      await this.#moveBatch(batch, await this.#portsOf(shard), atomic);
      this.counts[atomic === undefined ? "byKey" : "atomically"] += length;
      this.#underWay--;
    }
  }

  /** The source, the target and the third master. */
  async #portsOf(shard: number): Promise<number[]> {
    const source = await this.#topology.masterOf(keyIn(lastOf(shard)));
    const target = await this.#topology.masterOf(keyIn(lastOf(shard + 1)));
    return [...new Set([source, target, ...(await this.#topology.masters())])].map(
      ({ port }) => port,
    );
  }

  async #moveBatch(
    batch: readonly number[],
    ports: readonly number[],
    atomic: AtomicCommand | undefined,
  ): Promise<void> {
    this.recent = [...this.recent, ...batch].slice(-100);
    for (const slot of batch) {
      this.#openedAt[slot] = now();
      if (atomic !== undefined) this.#atomic.add(slot);
    }
    if (atomic === undefined) await this.#moveByKey(batch, ports);
    else await this.#alone(() => this.#moveAtomically(batch, ports, atomic));
  }

  async #moveByKey(batch: readonly number[], ports: readonly number[]): Promise<void> {
    const pause = () => sleep(this.#random.between(0, this.#random.next() < 0.1 ? 1_500 : 60));
    const moves = await Promise.all(
      batch.map((slot) => beginMove({ ports }, keyIn(slot), this.send)),
    );
    await pause();
    // Some locks, without their records.
    const some = moves.filter(({ slot }) => slot % 2 === 0);
    await Promise.all(
      some.map(({ slot, move }) => this.#mended(slot, ports, () => move(keyIn(slot)))),
    );
    await pause();
    await this.#alone(async () => {
      await Promise.all(moves.map(({ slot, finish }) => this.#mended(slot, ports, finish)));
      await this.#arrived(batch, ports);
    });
  }

  /** A key that is on both masters is a finding; the run goes on without the source's. */
  async #mended(
    slot: number,
    [source]: readonly number[],
    move: () => Promise<void>,
  ): Promise<void> {
    const send = (name: string, ...args: (string | number)[]) =>
      this.send(source as number, name, ...args);
    try {
      await move();
    } catch (error) {
      if (!String(error).includes("BUSYKEY")) throw error;
      this.onTwoMasters(slot);
      const keys = (await send("CLUSTER", "GETKEYSINSLOT", slot, 1_000)) as string[];
      for (const key of keys) await send("DEL", key);
      await move();
    }
  }

  async #moveAtomically(
    batch: readonly number[],
    ports: readonly number[],
    command: AtomicCommand,
  ): Promise<void> {
    const [source, target] = ports as [number, number];
    const [first, last] = [batch[0], batch.at(-1)] as [number, number];
    if (command === "MIGRATION") {
      await this.send(target, "CLUSTER", command, "IMPORT", first, last);
    } else {
      const id = String(await this.send(target, "CLUSTER", "MYID"));
      await this.send(source, "CLUSTER", command, "SLOTSRANGE", first, last, "NODE", id);
    }
    await this.#arrived(batch, ports);
  }

  /** The slots have arrived when all masters say so. Resolves when all know of its epoch, too. */
  async #arrived(batch: readonly number[], ports: readonly number[]): Promise<void> {
    const [first, last] = [batch[0], batch.at(-1)] as [number, number];
    const isThere = async (port: number) => {
      const reply = await this.send(port, "CLUSTER", "SLOTS");
      return (reply as [number, number, [string, number]][]).some(
        ([from, to, [, master]]) => from <= first && last <= to && master === ports[1],
      );
    };
    const areThere = async () => (await Promise.all(ports.map(isThere))).every(Boolean);
    await until(areThere, { what: `slots ${first} to ${last} to arrive`, boundMs: 60_000 });
    for (const slot of batch) this.#arrivedAt[slot] = now();
    const epochOf = async (port: number) =>
      /cluster_current_epoch:\d+/.exec(String(await this.send(port, "CLUSTER", "INFO")))?.[0];
    const isAgreed = async () => new Set(await Promise.all(ports.map(epochOf))).size === 1;
    await until(isAgreed, { what: "the masters to agree on the epoch", boundMs: 60_000 });
  }

  /**
   * One target at a time, as `redis-cli` does it: it takes slots under an epoch of its own, and a
   * source with a newer epoch that the target has not heard of would take them back.
   */
  async #alone(finish: () => Promise<void>): Promise<void> {
    const mine = this.#turn.then(finish);
    this.#turn = mine;
    await mine;
  }

  async #atomicCommand(): Promise<AtomicCommand | undefined> {
    const { port } = this.#topology.nodes[0] as { port: number };
    const isKnown = async (name: string) => {
      const [found] = (await this.send(port, "COMMAND", "INFO", `cluster|${name}`)) as unknown[];
      return Boolean(found);
    };
    if (await isKnown("migrateslots")) return "MIGRATESLOTS";
    return (await isKnown("migration")) ? "MIGRATION" : undefined;
  }
}
