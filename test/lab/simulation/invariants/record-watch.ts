import { toldKey } from "../../../../src/stores/redis/commands/values.ts";
import { Watch } from "./invariants.ts";
import { type Owner, recordValue } from "./owners.ts";

/** A record that was written. */
export interface Kept {
  readonly owner: Owner;
  readonly text: string;
  readonly fingerprint: string;
  /** By the right clock. */
  readonly from: number;
  readonly expiresAt: number;
  readonly serverLife: number;
  /** It has run out; a clock that is set back does not bring it back. */
  isOver: boolean;
  /** A replica has taken over that did not have it. */
  isLost: boolean;
  /** A person has deleted it. A copy of its complete that is late may write it again. */
  isForgotten: boolean;
}

/** An answer that a run has told as it let go of its lock. */
export interface Told {
  readonly owner: Owner;
  /** By the right clock. */
  readonly at: number;
}

const isTold = (key: string) => key === toldKey(key.replace(/:told$/, ""));

/** Watches every record: written once, by its first writer, and then left alone until it expires. */
export class RecordWatch extends Watch {
  readonly #kept = new Map<string, Kept[]>();
  readonly #told = new Map<string, readonly Told[]>();

  /** Everything that was ever recorded of a submission. */
  history(key: string): readonly Kept[] {
    return this.#kept.get(key) ?? [];
  }

  /** What has to be there now, whether it is or not. */
  standing(key: string): Kept | undefined {
    const { life, nowMs } = this.world.server;
    const last = this.history(key).at(-1);
    if (last?.serverLife !== life || last.isOver) return undefined;
    return nowMs <= last.expiresAt ? last : undefined;
  }

  /** What stood at some time since, the server's losses apart. */
  since(key: string, from: number): readonly Kept[] {
    const { machine } = this.world.server;
    return this.history(key).filter(
      ({ expiresAt }) => machine.whenWallShows(expiresAt + 1) >= from,
    );
  }

  /** Rule 25: what runs have told the waiting ones of a submission, and when. */
  told(key: string): readonly Told[] {
    return this.#told.get(toldKey(key)) ?? [];
  }

  #setTold(key: string, value: string, expiresAt: number | undefined): void {
    const { executions, loop, owners, schedule, server } = this.world;
    const record = recordValue(value);
    const owner = record && owners.of(record.ownerId, key);
    const entry = executions.current?.entries.find((each) => each.told === key);
    const touched = executions.current?.touched.get(entry?.lock ?? "");
    const isLetGo = touched !== undefined && [owner?.id, `cooldown:${owner?.id}`].includes(touched);
    if (owner === undefined || entry?.ownerId !== owner.id || !isLetGo) {
      this.world.broken("waited", `${key} = ${value}, and its lock was not let go`);
      return;
    }
    if (Number(expiresAt) - server.nowMs !== 1_000 + schedule.times.commandTimeoutMs) {
      this.world.broken("waited", `${key} expires at ${expiresAt}`);
    }
    this.#told.set(key, [...(this.#told.get(key) ?? []), { owner, at: loop.now }]);
  }

  set(key: string, value: string, expiresAt: number | undefined): void {
    if (isTold(key)) {
      this.#setTold(key, value, expiresAt);
      return;
    }
    const { life, setBackMs } = this.world.server;
    const record = recordValue(value);
    const owner = record && this.world.owners.of(record.ownerId, key);
    const entry = this.world.executions.current?.entries.find(
      (each) => each.record === key && each.ownerId === record?.ownerId,
    );
    if (record === undefined || owner === undefined || entry === undefined) {
      this.world.broken("grammar", `${key} = ${value}`);
      return;
    }
    if (expiresAt !== entry.expiresAtMs || expiresAt === undefined) {
      this.#broken(key, owner, `expires at ${expiresAt} and not at ${entry.expiresAtMs}`);
      return;
    }
    const standing = this.standing(key);
    if (standing !== undefined) this.#broken(key, owner, `overwrites ${standing.owner.name}'s`);
    for (const earlier of this.history(key)) {
      if (earlier.owner !== owner) continue;
      // The limit: a copy that comes when its own time is over, and to a clock that was set back.
      const isLimit = earlier.isOver && setBackMs > 0;
      const isLost = earlier.serverLife !== life || earlier.isLost;
      if (!isLost && !isLimit && !earlier.isForgotten)
        this.#broken(key, owner, "is written once more");
      if (earlier.text !== value || earlier.expiresAt !== expiresAt) {
        this.#broken(key, owner, "differs from an earlier copy");
      }
    }
    const kept = this.#kept.get(key) ?? [];
    this.#kept.set(key, kept);
    const { fingerprint } = record;
    const from = this.world.loop.now;
    kept.push({
      owner,
      text: value,
      fingerprint,
      from,
      expiresAt,
      serverLife: life,
      isOver: false,
      isLost: false,
      isForgotten: false,
    });
  }

  lengthened(key: string, expiresAt: number): void {
    const unchanged = Math.max(this.standing(key)?.expiresAt ?? 0, this.world.server.nowMs + 1);
    if (this.world.executions.current?.name === "touch" && expiresAt === unchanged) return;
    this.world.broken("record", `${key} was lengthened`);
  }

  /** Rule 26: by a forget that has looked at it, while no run of its submission has the lock. */
  deleted(key: string): void {
    const { executions, server } = this.world;
    const { entries = [], name } = executions.current ?? {};
    const standing = this.history(key).at(-1);
    const entry = entries.find((each) => each.record === key);
    const held = server.look(entry?.lock ?? "")?.value ?? "";
    const isUnderWay = held.slice(-46, -23) === `:${key.slice(-22)}`;
    if (name !== "forget" || standing?.owner.id !== entry?.ownerId || isUnderWay) {
      this.world.broken("record", `${key} was deleted`);
    } else if (standing !== undefined) {
      standing.isOver = true;
      standing.isForgotten = true;
    }
  }

  expired(key: string): void {
    const last = this.#kept.get(key)?.at(-1);
    if (last !== undefined) last.isOver = true;
  }

  /** A replica has taken over. */
  failedOver(): void {
    for (const key of this.#kept.keys()) {
      const last = this.history(key).at(-1);
      if (last?.isForgotten && this.world.server.look(key)?.value === last.text) {
        // The deletion is lost, and the record is back.
        last.isForgotten = false;
        last.isOver = false;
      }
      const standing = this.standing(key);
      if (standing === undefined || this.world.server.look(key)?.value === standing.text) continue;
      standing.isLost = true;
      standing.isOver = true;
      const { owner } = standing;
      if (!owner.wasRecorded) continue;
      this.world.broken("acknowledged", `${key}, which ${owner.name} has recorded, is gone`);
    }
  }

  #broken(key: string, owner: Owner, what: string): void {
    this.world.broken("record", `the record of ${owner.name} at ${key} ${what}`);
  }
}
