import type {
  AcquireRequest,
  CompleteRequest,
  FreeRequest,
  InspectRequest,
  LockCommand,
  LockRequest,
  LockStore,
  OwnedReply,
  ReleaseRequest,
} from "../../../src/lock/store.ts";

/** One attempt of one call: the same for every copy that follows another. */
export interface AttemptId {
  readonly call: number;
}

/** What every answer may have. */
interface Told {
  readonly cause?: unknown;
  readonly kind: string;
  readonly storeTimeMs?: number;
  readonly fencingToken?: number | undefined;
}

export interface StoreWitness {
  now(): number;
  /** It is a timer that runs the code of the moment, and no answer. */
  isAwoken(): boolean;
  seen(command: LockCommand, attempt: AttemptId): void;
  /** An answer has brought a clock or a token, in microseconds. */
  heard(microseconds: number): void;
  extended(ownerId: string, kind: string): void;
  /** A complete is written, whose record is to last until then by the server's clock. */
  completes(ownerId: string, expiresAtMs: number): void;
  /** A copy was followed by another in the very turn in which its answer was read. */
  overlooked(kind: string): void;
  /** An answer is the refusal of a node that does not have the key. */
  unreached(): void;
}

/** What the lock is told: the shortest that it takes is far longer than a run. */
export const nominalRetainMs = 86_400_000;

/**
 * The store itself, unchanged, with a witness in front of it who learns which owner id belongs to
 * which attempt of which call. A copy that follows another belongs to the same attempt, whatever
 * owner id it carries. Answers are kept for as long as the schedule says.
 */
export class WitnessedStore implements LockStore {
  /** The call whose own code runs at the moment. */
  call: number | undefined;
  /** The `withLock` that waits for a key: its later attempts come out of the blue. */
  readonly waiting = new Map<string, number>();
  readonly #store: LockStore;
  readonly #witness: StoreWitness;
  readonly #retainMs: number;
  /** When a copy was followed by another because a timer found it without an answer. */
  readonly #followedAt = new WeakMap<LockRequest<unknown>, number>();
  /** The copies of each command that have no answer yet. */
  readonly #unanswered = new Map<string, Set<LockRequest<unknown>>>();
  readonly #attemptOfOwner = new Map<string, AttemptId>();
  #isAnswering = false;

  constructor(store: LockStore, retainMs: number, witness: StoreWitness) {
    this.#store = store;
    this.#retainMs = retainMs;
    this.#witness = witness;
  }

  acquire(copy: AcquireRequest): void {
    const { key, ownerId } = copy.command;
    const attempt = this.#attemptOf(ownerId) ?? {
      call: this.call ?? this.waiting.get(key) ?? 0,
    };
    this.#attemptOfOwner.set(withoutCopy(ownerId), attempt);
    this.#witness.seen(copy.command, attempt);
    this.#store.acquire(
      Object.assign(this.#watched(copy, `acquire ${withoutCopy(ownerId)}`), {
        onlyLooks: copy.onlyLooks,
      }),
    );
  }

  extend(copy: LockRequest<OwnedReply>): void {
    const { ownerId } = copy.command;
    const heard = (kind: string) => this.#witness.extended(ownerId, kind);
    this.#store.extend(this.#watched(copy, `extend ${ownerId}`, heard));
  }

  release(copy: ReleaseRequest): void {
    const { cooldownUntilMs, command } = copy;
    const watched = this.#watched(copy, `release ${command.ownerId}`);
    this.#store.release(Object.assign(watched, { cooldownUntilMs }));
  }

  complete(copy: CompleteRequest): void {
    const { command, cooldownUntilMs, record } = copy;
    // The same for every copy, as it was.
    const expiresAtMs = copy.expiresAtMs - nominalRetainMs + this.#retainMs;
    this.#witness.completes(command.ownerId, expiresAtMs);
    const watched = this.#watched(copy, `complete ${command.ownerId}`);
    this.#store.complete?.(Object.assign(watched, { cooldownUntilMs, expiresAtMs, record }));
  }

  inspect(request: InspectRequest): void {
    this.#store.inspect?.(request);
  }

  free(request: FreeRequest): void {
    this.#store.free?.(request);
  }

  attach(onReady: () => void): () => Promise<void> {
    return this.#store.attach(onReady);
  }

  #attemptOf(ownerId: string): AttemptId | undefined {
    return this.#attemptOfOwner.get(withoutCopy(ownerId));
  }

  #hear({ storeTimeMs, fencingToken }: Told): void {
    if (storeTimeMs === undefined) return;
    this.#witness.heard(Math.max(storeTimeMs * 1_000, fencingToken ?? 0));
  }

  #watched<Reply extends Told>(
    copy: LockRequest<Reply>,
    command: string,
    heard: (kind: string) => void = () => {},
  ): LockRequest<Reply> {
    const unanswered = this.#unanswered.get(command) ?? new Set();
    // What follows an answer follows no timer of the lock's: ioredis's own `commandTimeout` gives one
    // up before it reads.
    if (this.#witness.isAwoken() && !this.#isAnswering) {
      for (const earlier of unanswered) this.#followedAt.set(earlier, this.#witness.now());
    }
    this.#unanswered.set(command, unanswered.add(copy));
    return {
      get command() {
        return copy.command;
      },
      get deadlineMs() {
        return copy.deadlineMs;
      },
      set deadlineMs(at: number | undefined) {
        copy.deadlineMs = at;
      },
      answer: (reply) => {
        const { kind } = reply;
        heard(kind);
        this.#hear(reply);
        if (String(reply.cause).includes("non local key")) this.#witness.unreached();
        unanswered.delete(copy);
        if (unanswered.size === 0) this.#unanswered.delete(command);
        if (kind !== "unknown" && this.#followedAt.get(copy) === this.#witness.now()) {
          this.#witness.overlooked(kind);
        }
        this.#isAnswering = true;
        copy.answer(reply);
        this.#isAnswering = false;
      },
    };
  }
}

/** A mutant gives each copy an owner id of its own, by its last digits. */
function withoutCopy(ownerId: string): string {
  return ownerId.slice(0, 32);
}
