import type { SimulatedRedis } from "../server/simulated-redis.ts";
import { recordValue } from "../server/values.ts";
import type { EventLoop } from "../time/event-loop.ts";
import type { Executions } from "./executions.ts";
import type { Owner, Owners } from "./owners.ts";
import type { Verdict } from "./verdict.ts";

/** A record that was written. */
export interface Kept {
  readonly owner: Owner;
  readonly text: string;
  readonly fingerprint: string;
  /** By the right clock. */
  readonly from: number;
  /** By the server's. */
  readonly expiresAt: number;
  readonly serverLife: number;
  /** It has run out; a clock that is set back does not bring it back. */
  isOver: boolean;
  /** A replica has taken over that did not have it. */
  isLost: boolean;
}

/** Watches every record: written once, by its first writer, and then left alone until it expires. */
export class RecordWatch {
  readonly #kept = new Map<string, Kept[]>();
  readonly #loop: EventLoop;
  readonly #owners: Owners;
  readonly #verdict: Verdict;
  readonly #executions: Executions;
  readonly #server: () => SimulatedRedis;

  constructor(
    loop: EventLoop,
    owners: Owners,
    verdict: Verdict,
    executions: Executions,
    server: () => SimulatedRedis,
  ) {
    this.#loop = loop;
    this.#owners = owners;
    this.#verdict = verdict;
    this.#executions = executions;
    this.#server = server;
  }

  /** Everything that was ever recorded of a submission. */
  history(key: string): readonly Kept[] {
    return this.#kept.get(key) ?? [];
  }

  /** What has to be there now, whether it is or not. */
  standing(key: string): Kept | undefined {
    const { life, nowMs } = this.#server();
    const last = this.history(key).at(-1);
    if (last?.serverLife !== life || last.isOver) return undefined;
    return nowMs <= last.expiresAt ? last : undefined;
  }

  /** What stood at some time since, the server's losses apart. */
  since(key: string, from: number): readonly Kept[] {
    const { machine } = this.#server();
    return this.history(key).filter(
      ({ expiresAt }) => machine.whenWallShows(expiresAt + 1) >= from,
    );
  }

  set(key: string, value: string, expiresAt: number | undefined): void {
    const { life, setBackMs } = this.#server();
    const record = recordValue(value);
    const owner = record && this.#owners.of(record.ownerId, key);
    const entry = this.#executions.current?.entries.find(
      (each) => each.record === key && each.ownerId === record?.ownerId,
    );
    if (record === undefined || owner === undefined || entry === undefined) {
      this.#verdict.broken("grammar", `${key} = ${value}`);
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
      if (!isLost && !isLimit) this.#broken(key, owner, "is written once more");
      if (earlier.text !== value || earlier.expiresAt !== expiresAt) {
        this.#broken(key, owner, "differs from an earlier copy");
      }
    }
    const kept = this.#kept.get(key) ?? [];
    this.#kept.set(key, kept);
    const { fingerprint } = record;
    const from = this.#loop.now;
    kept.push({
      owner,
      text: value,
      fingerprint,
      from,
      expiresAt,
      serverLife: life,
      isOver: false,
      isLost: false,
    });
  }

  lengthened(key: string, expiresAt: number): void {
    const unchanged = Math.max(this.standing(key)?.expiresAt ?? 0, this.#server().nowMs + 1);
    if (this.#executions.current?.name === "touch" && expiresAt === unchanged) return;
    this.#verdict.broken("record", `${key} was lengthened`);
  }

  deleted(key: string): void {
    this.#verdict.broken("record", `${key} was deleted`);
  }

  expired(key: string): void {
    const last = this.#kept.get(key)?.at(-1);
    if (last !== undefined) last.isOver = true;
  }

  /** A replica has taken over. */
  failedOver(): void {
    for (const key of this.#kept.keys()) {
      const standing = this.standing(key);
      if (standing === undefined || this.#server().look(key)?.value === standing.text) continue;
      standing.isLost = true;
      standing.isOver = true;
      const { owner } = standing;
      if (!owner.wasRecorded) continue;
      this.#verdict.broken("acknowledged", `${key}, which ${owner.name} has recorded, is gone`);
    }
  }

  #broken(key: string, owner: Owner, what: string): void {
    this.#verdict.broken("record", `the record of ${owner.name} at ${key} ${what}`);
  }
}
