import type { SubmissionHashes } from "../../../../src/lock/store.ts";
import type { Participant } from "../participant.ts";
import { type LockValue, lockValue } from "../server/values.ts";
import type { AttemptId } from "../witnessed-store.ts";

/** One owner id, and what became of it. */
export interface Owner {
  readonly id: string;
  /** Short, for a timeline. */
  readonly name: string;
  readonly key: string;
  readonly participant: Participant | undefined;
  /** The attempt that it belongs to, if it is known. */
  readonly attempt: AttemptId | undefined;
  readonly submission: SubmissionHashes | undefined;
  /** The life of the server in which it was first at its key. */
  serverLife: number | undefined;
  /** The attempt ended without a lease, or its lease was released, closed or lost. */
  overAt: number | undefined;
  /** Its lease was lost: its retire begins then, or at the end of its time, and not with `overAt`. */
  lostAt: number | undefined;
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
  securedUntil: number | undefined;
  /** When it was first asked for. */
  readonly askedAt: number;
  /** The latest that its cooldown may end, by the server's clock; 0 where none was asked for. */
  cooldownAtMost: number;
  /** When its cooldown ends, by the server's clock. */
  cooldownUntil: number | undefined;
  /** When its record expires, by the server's clock. */
  recordUntil: number | undefined;
  /** When its caller heard what became of its release. */
  toldAt: number | undefined;
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
  /** Its copy was stamped by a clock that was as wrong as the copy was late: nobody waits that long. */
  isByWrongClock: boolean;
  /** A replica has taken over that had missed its end: nobody asks for that again. */
  readonly isRisen?: boolean;
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
    participant?: Participant,
    attempt?: AttemptId,
    submission?: SubmissionHashes,
    askedAt = 0,
  ): Owner {
    const number = this.#byId.size + 1;
    const name = this.#nameOf(id, participant, number);
    const owner: Owner = {
      id,
      name,
      key,
      participant,
      attempt,
      submission,
      serverLife: undefined,
      overAt: undefined,
      lostAt: undefined,
      wasForbidden: false,
      wasFreed: false,
      wasRecorded: false,
      securedUntil: undefined,
      tokens: [],
      askedAt,
      cooldownAtMost: 0,
      cooldownUntil: undefined,
      recordUntil: undefined,
      toldAt: undefined,
      deletedAt: [],
    };
    this.#byId.set(id, owner);
    return owner;
  }

  #nameOf(id: string, participant: Participant | undefined, number: number): string {
    if (participant !== undefined) return `owner ${number}`;
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
