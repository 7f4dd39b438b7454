import type { WrittenCopy } from "../network/surroundings.ts";
import {
  type CallEntry,
  codesOf,
  entriesOf,
  isAcquire,
  isGathered,
  isGrant,
  nameOf,
  type ScriptName,
} from "../scripts.ts";
import type { World } from "../world.ts";
import { lockValue } from "./owners.ts";

/** What the server executes at the moment. */
export interface Execution {
  readonly copy: WrittenCopy;
  readonly name: ScriptName;
  readonly entries: readonly CallEntry[];
  /** The keys that it has set or deleted, and the owner id that was there last. */
  readonly touched: Map<string, string>;
}

/** Watches every script that the server executes: what it is about, and what it says in the end. */
export class Executions {
  current: Execution | undefined;
  readonly #world: World;

  constructor(world: World) {
    this.#world = world;
  }

  /** The server executes a copy: `run` does it. */
  watch(copy: WrittenCopy, run: () => unknown): unknown {
    const name = nameOf(copy.script);
    const entries = entriesOf(name, copy.keys, copy.args);
    const execution = { copy, name, entries, touched: new Map<string, string>() };
    // Whatever stands now stood before this script began.
    const stood = entries.map(({ record }) => record && this.#world.recordWatch.standing(record));
    const held = entries.map(({ lock = "" }) => this.#world.server.look(lock)?.value);
    this.current = execution;
    let reply: unknown;
    try {
      reply = run();
    } catch (error) {
      this.#failed(execution, String(error));
      if (isGathered(copy.script) && String(error).includes("non local key")) {
        this.#world.broken("refused", `one entry has failed a whole ${name}`);
      }
      throw error;
    } finally {
      this.current = undefined;
    }
    for (const [at, code] of codesOf(name, reply).entries()) {
      const entry = entries[at] as CallEntry;
      if (code instanceof Error) this.#failed(execution, String(code));
      const record = stood[at];
      if (record && isGrant(code)) {
        this.#world.broken(
          "once",
          `${this.#nameOf(entry)} was granted ${entry.lock}, and ${record.owner.name} had recorded its answer`,
        );
      }
      this.#checkUntouched(execution, entry, code);
      this.#checkRefused(execution, entry, code);
      this.#checkCooldown(execution, entry, code);
      this.#checkFreed(execution, entry, held[at], code);
    }
    return reply;
  }

  #failed({ name, entries }: Execution, error: string): void {
    const { owners, server } = this.#world;
    if (error.includes("user_script")) this.#world.broken("script", error);
    const isEnding = ["release", "complete", "record", "free"].includes(name);
    // An engine that looks at every write may refuse a record; a deletion it may not.
    const isRefusable = server.memory === "strictly full" && name !== "release";
    if (isEnding && !isRefusable && error.includes("OOM")) {
      this.#world.broken("full", `a ${name} was refused: ${error}`);
    }
    if (isEnding && error.includes("NOPERM")) {
      for (const { ownerId = "" } of entries) {
        const owner = owners.get(ownerId);
        if (owner !== undefined) owner.wasForbidden = true;
      }
    }
  }

  /** Rule 18: where an acquire was not granted, its owner id is nowhere, and no record was touched. */
  #checkUntouched({ name, touched, copy }: Execution, entry: CallEntry, code: unknown): void {
    if (!isAcquire(name)) return;
    const isOnlyLook = Number(copy.args[0]) === 0;
    const { lock = "", record = "", ownerId } = entry;
    const isTaken = touched.get(lock) === ownerId && (isOnlyLook || !isGrant(code));
    if (!isTaken && !touched.has(record)) return;
    this.#world.broken(
      "untouched",
      `${this.#nameOf(entry)} was told ${String(code)}, and ${isTaken ? lock : record} was changed`,
    );
  }

  /** Rule 23: where a node has refused an entry, it has executed nothing of it. */
  #checkRefused({ entries, name, touched }: Execution, entry: CallEntry, code: unknown): void {
    const { lock = "", record = "" } = entry;
    if (!(code instanceof Error) || !(touched.has(lock) || touched.has(record))) return;
    // Another entry may have written: one that deletes the key, which then is elsewhere for this one.
    if (entries.some((other) => other !== entry && other.lock === lock)) return;
    this.#world.broken("refused", `a ${name} was told ${code}, and has written`);
  }

  /** Rule 19: who has let go of the lock has left the cooldown that was asked for, and no retire does. */
  #checkCooldown({ name, copy }: Execution, entry: CallEntry, code: unknown): void {
    const { owners, server } = this.#world;
    const { toldAt = Number.POSITIVE_INFINITY, recordUntil } =
      owners.get(entry.ownerId ?? "") ?? {};
    // Whether or not there is a lock that it could replace. (A complete in two steps has late copies.)
    const { lock = "", ownerId, cooldownUntilMs = 0 } = entry;
    // Rule 23: what a node has refused is written again, also where another request was answered before.
    const isNew = copy.sentAt > toldAt && !server.hasMoved;
    if (name === "release" && cooldownUntilMs > 0 && !recordUntil && isNew) {
      this.#world.broken("cooldown", `a retire of ${this.#nameOf(entry)} asks for a cooldown`);
    }
    if ((name !== "release" && name !== "complete") || code !== 1) return;
    const { isMoving, memory, nowMs } = server;
    // A full server refuses to write over the lock, and one that moves the slot to write behind it.
    const isRefused = memory === "strictly full" || (memory === "full" && isMoving);
    if (cooldownUntilMs <= nowMs || isRefused) return;
    if (server.look(lock)?.value === `cooldown:${ownerId}`) return;
    this.#world.broken("cooldown", `${this.#nameOf(entry)} has let go and left no cooldown`);
  }

  /** Rule 19: its own tombstone is called freed, and no other. */
  #checkFreed({ name }: Execution, entry: CallEntry, value: unknown, code: unknown): void {
    if (!["extend", "release"].includes(name) || typeof code !== "number") return;
    const parsed = lockValue(value);
    const isOwn = parsed.kind === "freed" && parsed.ownerId === entry.ownerId;
    if (isOwn === (code === -2)) return;
    this.#world.broken(
      "freed",
      `the ${name} of ${this.#nameOf(entry)} was told ${code} by ${value}`,
    );
  }

  #nameOf({ ownerId = "" }: CallEntry): string {
    return this.#world.owners.get(ownerId)?.name ?? ownerId;
  }
}
