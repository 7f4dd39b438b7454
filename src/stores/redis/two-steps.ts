import {
  type AcquireReply,
  type AcquireRequest,
  type CompleteReply,
  type CompleteRequest,
  isNoAnswer,
  type LockCommand,
  type LockRequest,
  type OwnedReply,
  type ReleaseRequest,
} from "../../lock/store.ts";
import { AcquirePart } from "./acquire-part.ts";

/** The four halves, each with one key. */
export interface SingleSteps {
  acquire(request: LockRequest<AcquireReply>): void;
  /** Leaves a free lock free. */
  lookUp(request: LockRequest<AcquireReply>): void;
  look(request: LockRequest<LookReply>): void;
  record(request: RecordRequest): void;
  release(request: ReleaseRequest): void;
}

/** What a look at a record comes to. */
export type LookReply = AcquireReply | { readonly kind: "none" };

/** Half a complete: `late` where it has recorded, whether or not the lock is still held. */
export interface RecordRequest extends LockRequest<CompleteReply> {
  readonly record: string;
  readonly expiresAtMs: number;
}

/** For how long a slot goes in two steps after a command of it had to be written again. */
const movingMs = 10_000;

/**
 * While a Cluster moves a slot, two keys of it cannot be reached at once (TRYAGAIN), and each alone
 * can. Rule 16: lock, then look; record, then release. The lock is held over the look, and the record
 * stands before the lock goes, so that neither order leaves a gap.
 *
 * Nobody is told of the TRYAGAIN: ioredis tries again for longer than an attempt may take. So a
 * command that has to be written a second time goes in two steps, whatever became of the first, and
 * for a while so do all others of its slot. Each costs one round trip more.
 */
export class TwoSteps {
  readonly #steps: SingleSteps;
  readonly #slotOf: (key: string) => number;
  readonly #movingUntil = new Map<number, number>();
  readonly #acquired = new WeakSet<LockCommand>();
  readonly #completed = new WeakSet<LockCommand>();

  constructor(steps: SingleSteps, slotOf: (key: string) => number) {
    this.#steps = steps;
    this.#slotOf = slotOf;
  }

  /** @returns false where the request is to go in one. */
  acquire(request: AcquireRequest): boolean {
    if (!this.#splits(request.command, this.#acquired)) return false;
    const step = new AcquirePart(request, (locked) => this.#look(request, locked));
    if (request.onlyLooks) this.#steps.lookUp(step);
    else this.#steps.acquire(step);
    return true;
  }

  /** @returns false where the request is to go in one. */
  complete(request: CompleteRequest): boolean {
    const { command, expiresAtMs, record } = request;
    if (!this.#splits(command, this.#completed)) return false;
    const answer = (recorded: CompleteReply) => this.#release(request, recorded);
    this.#steps.record({ command, deadlineMs: undefined, record, expiresAtMs, answer });
    return true;
  }

  #splits(command: LockCommand, written: WeakSet<LockCommand>): boolean {
    const isAgain = written.has(command);
    written.add(command);
    if (!isAgain && this.#movingUntil.size === 0) return false;
    const now = performance.now();
    const slot = this.#slotOf(command.key);
    if (isAgain) this.#movingUntil.set(slot, now + movingMs);
    const isMoving = now < (this.#movingUntil.get(slot) ?? now);
    if (!isMoving) this.#movingUntil.delete(slot);
    return isMoving;
  }

  #look(whole: AcquireRequest, locked: AcquireReply): void {
    const isTaken = locked.kind === "taken" || locked.kind === "mine";
    const hasLookedOnly = whole.onlyLooks && locked.kind === "outOfWindow";
    // The others are no answer, or the last word as they are.
    if (!isTaken && !hasLookedOnly && locked.kind !== "contended") {
      whole.answer(locked);
      return;
    }
    this.#steps.look({
      command: whole.command,
      deadlineMs: undefined,
      answer: (found) =>
        whole.answer(isTaken ? ifTaken(locked, found) : ifNot(whole, locked, found)),
    });
  }

  #release(whole: CompleteRequest, recorded: CompleteReply): void {
    if (isNoAnswer(recorded)) {
      whole.answer(recorded);
      return;
    }
    const { command, cooldownUntilMs } = whole;
    this.#steps.release({
      command,
      deadlineMs: undefined,
      cooldownUntilMs,
      answer: (released) => whole.answer(both(recorded, released)),
    });
  }
}

function ifTaken(locked: AcquireReply, found: LookReply): AcquireReply {
  switch (found.kind) {
    case "none":
      return locked;
    case "completed":
    case "mismatched":
      return { ...found, isHeld: true };
    default:
      // The lock is ours, and nothing is known of the record: this has to be asked again or retired.
      return { kind: "unknown", cause: causeOf(found) };
  }
}

function ifNot(
  { onlyLooks }: AcquireRequest,
  locked: AcquireReply,
  found: LookReply,
): AcquireReply {
  switch (found.kind) {
    case "completed":
    case "mismatched":
      return found;
    case "none":
      return locked;
    default:
      // Nothing is known of the record: whoever only looks must not be told that there is none. For
      // the others it is true all the same that somebody else holds the lock.
      return onlyLooks ? found : locked;
  }
}

function causeOf(found: LookReply): Error {
  if ("cause" in found && found.cause !== undefined) return found.cause;
  return new Error("reason" in found ? found.reason : "the record could not be read");
}

function both(recorded: CompleteReply, released: OwnedReply): CompleteReply {
  if (isNoAnswer(released)) return released;
  if (recorded.kind !== "late" || released.kind !== "done") return recorded;
  return { kind: "recorded", storeTimeMs: released.storeTimeMs };
}
