import type { LockTimes, SubmissionHashes } from "../../../../src/lock/store.ts";
import type { AttemptId } from "../witnessed-store.ts";
import type { SimulatedProcess } from "../world.ts";

/** What the value of a lock's key says. */
export type LockValue =
  | {
      readonly kind: "lock";
      readonly ownerId: string;
      readonly fencingToken: number;
      readonly submission: string;
      readonly fingerprint: string;
    }
  | { readonly kind: "cooldown"; readonly ownerId: string }
  | { readonly kind: "freed"; readonly ownerId: string }
  /** Somebody else's. */
  | { readonly kind: "other" };

const lock =
  /^([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):(\d{16}):\d+:\d+:[^:]*:([\w-]{22}|):([\w-]{22}|)$/;
const cooldown = /^cooldown:([0-9a-f-]{36})$/;
const freed = /^freed:([0-9a-f-]{36}):[^:]+:\d{16}:[^:]+(:foreign)?$/;

export function lockValue(value: unknown): LockValue {
  const [, ownerId, token, submission = "", fingerprint = ""] = lock.exec(String(value)) ?? [];
  if (ownerId !== undefined) {
    return { kind: "lock", ownerId, fencingToken: Number(token), submission, fingerprint };
  }
  const [, cooled] = cooldown.exec(String(value)) ?? [];
  if (cooled !== undefined) return { kind: "cooldown", ownerId: cooled };
  const [, taken] = freed.exec(String(value)) ?? [];
  return taken === undefined ? { kind: "other" } : { kind: "freed", ownerId: taken };
}

/** How long a key may live whose value says this, by the server's clock: another lock's, as it likes. */
export function longestLifeMs({ kind }: LockValue, { ttlMs }: LockTimes): number {
  return { lock: ttlMs, cooldown: 60_000, freed: 300_000, other: Number.POSITIVE_INFINITY }[kind];
}

/** Whose key it is, as `Owners` knows everybody. */
export function ownerIdOf(value: unknown): string {
  const parsed = lockValue(value);
  return parsed.kind === "lock" ? parsed.ownerId : String(value);
}

const record = /^1([\w-]{22})([0-9a-f-]{36})=/;

/** Whose answer a record is, and of what. */
export function recordValue(
  value: string,
): { readonly fingerprint: string; readonly ownerId: string } | undefined {
  const [, fingerprint, ownerId] = record.exec(value) ?? [];
  return fingerprint === undefined || ownerId === undefined ? undefined : { fingerprint, ownerId };
}

/** A record lies beside its lock, in the slot of the Cluster that the braces name. */
export function isRecordKey(key: string): boolean {
  return key.startsWith("{");
}

/** One owner id, and what became of it. */
export interface Owner {
  readonly id: string;
  /** Short, for a timeline. */
  readonly name: string;
  readonly key: string;
  readonly process: SimulatedProcess | undefined;
  /** The attempt that it belongs to, if it is known. */
  readonly attempt: AttemptId | undefined;
  readonly submission: SubmissionHashes | undefined;
  /** The life of the server in which it was first at its key. */
  serverLife?: number | undefined;
  /** The attempt ended without a lease, or its lease was released, closed or lost. */
  overAt?: number | undefined;
  /** Its lease was lost: its retire begins then, or at the end of its time, and not with `overAt`. */
  lostAt?: number | undefined;
  /** Redis has answered its release "you may not": it is not asked again, and the key runs out. */
  wasForbidden: boolean;
  /** A person has taken its lock away. */
  wasFreed: boolean;
  /** The fencing tokens with which it was at its key. */
  readonly tokens: number[];
  /** Its complete was answered: its record is there. */
  wasRecorded: boolean;
  /**
   * Where a replica took over that had missed an extend: when it expires there. No extend waits for
   * a replica, so the holder may go on until then and is not told.
   */
  securedUntil?: number | undefined;
  /** When it was first asked for. */
  readonly askedAt: number;
  /** The latest that its cooldown may end, by the server's clock; 0 where none was asked for. */
  cooldownAtMost: number;
  cooldownUntil?: number | undefined;
  /** When its record expires, by the server's clock. */
  recordUntil?: number | undefined;
  /** When its caller heard what became of its release. */
  toldAt?: number | undefined;
  /** Times at which its own release deleted its key. */
  readonly deletedAt: number[];
}

/** Who was at a key, and from when to when. */
export interface Tenure {
  readonly owner: Owner;
  readonly value: LockValue;
  readonly from: number;
  to: number | undefined;
  /** When the TTL that it was given by its acquire, or by its last extend, ends. */
  livesUntil: number | undefined;
  /**
   * Nobody can be asked for its end: its copy was stamped by a clock that was as wrong as the copy was
   * late, or a replica has taken over that had missed the end.
   */
  readonly isExcused: boolean;
}

/** Every owner id that was seen, and the history of every key. */
export class Owners {
  readonly #byId = new Map<string, Owner>();
  readonly #tenures = new Map<string, Tenure[]>();

  get(id: string): Owner | undefined {
    return this.#byId.get(id);
  }

  add(
    id: string,
    key: string,
    process?: SimulatedProcess,
    attempt?: AttemptId,
    submission?: SubmissionHashes,
    askedAt = 0,
  ): Owner {
    const number = this.#byId.size + 1;
    const name = this.#nameOf(id, process, number);
    const owner: Owner = {
      id,
      name,
      key,
      process,
      attempt,
      submission,
      wasForbidden: false,
      wasFreed: false,
      wasRecorded: false,
      tokens: [],
      askedAt,
      cooldownAtMost: 0,
      deletedAt: [],
    };
    this.#byId.set(id, owner);
    return owner;
  }

  #nameOf(id: string, process: SimulatedProcess | undefined, number: number): string {
    if (process !== undefined) return `owner ${number}`;
    const value = lockValue(id);
    if (value.kind === "freed") return `the tombstone of ${this.get(value.ownerId)?.name}`;
    if (value.kind !== "cooldown") return `old lock ${number}`;
    return `the cooldown of ${this.get(value.ownerId)?.name}`;
  }

  /** Whatever is found at a key has an owner. */
  of(id: string, key: string): Owner {
    return this.get(id) ?? this.add(id, key);
  }

  tenures(key: string): Tenure[] {
    let tenures = this.#tenures.get(key);
    if (tenures === undefined) {
      tenures = [];
      this.#tenures.set(key, tenures);
    }
    return tenures;
  }

  current(key: string): Tenure | undefined {
    const last = this.#tenures.get(key)?.at(-1);
    return last?.to === undefined ? last : undefined;
  }

  /** Whether an owner was at its key at any time since. */
  wasAtKey(owner: Owner, since: number): boolean {
    return this.tenures(owner.key).some(
      (tenure) => tenure.owner === owner && (tenure.to === undefined || tenure.to >= since),
    );
  }

  keys(): IterableIterator<string> {
    return this.#tenures.keys();
  }
}
