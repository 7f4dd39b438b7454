import type {
  AcquireReply,
  CompleteReply,
  CompleteRequest,
  LockCommand,
  LockRequest,
  NoAnswer,
  OwnedReply,
  ReleaseRequest,
} from "../../lock/store.ts";

/**
 * While a Cluster moves a slot, two keys of it cannot be reached at once (TRYAGAIN), and each alone
 * can. Rule 16: lock, then look; record, then release. The lock is held over the look, and the record
 * stands before the lock goes, so that neither order leaves a gap.
 */
export interface SingleSteps {
  acquire(request: LockRequest<AcquireReply>): void;
  look(request: LockRequest<LookReply>): void;
  record(request: RecordRequest): void;
  release(request: ReleaseRequest): void;
}

/** What a look at a record comes to. */
export type LookReply = AcquireReply | { readonly kind: "none" };

/** Half a complete. */
export interface RecordRequest extends LockRequest<CompleteReply> {
  readonly record: string;
  readonly expiresAtMs: number;
}

/** An acquire that is split in two where it has to be. */
export class SplittableAcquire implements LockRequest<AcquireReply> {
  readonly #whole: LockRequest<AcquireReply>;
  readonly #steps: SingleSteps;

  constructor(whole: LockRequest<AcquireReply>, steps: SingleSteps) {
    this.#whole = whole;
    this.#steps = steps;
  }

  get command(): LockCommand {
    return this.#whole.command;
  }

  get deadlineMs(): number | undefined {
    return this.#whole.deadlineMs;
  }

  set deadlineMs(deadlineMs: number | undefined) {
    this.#whole.deadlineMs = deadlineMs;
  }

  answer(reply: AcquireReply): void {
    if (!isMoving(reply)) {
      this.#whole.answer(reply);
      return;
    }
    const whole = this.#whole;
    this.#steps.acquire({
      command: this.command,
      get deadlineMs() {
        return whole.deadlineMs;
      },
      set deadlineMs(deadlineMs) {
        whole.deadlineMs = deadlineMs;
      },
      answer: (locked) => this.#look(locked),
    });
  }

  #look(locked: AcquireReply): void {
    const isTaken = locked.kind === "taken" || locked.kind === "mine";
    if (!isTaken && locked.kind !== "contended") {
      this.#whole.answer(locked);
      return;
    }
    const { command } = this;
    this.#steps.look({
      command,
      deadlineMs: undefined,
      answer: (found) => this.#whole.answer(isTaken ? seen(found, locked) : or(found, locked)),
    });
  }
}

/** What was found counts, and the lock that was taken before has to be given back. */
function seen(found: LookReply, locked: AcquireReply): AcquireReply {
  switch (found.kind) {
    case "none":
      return locked;
    case "completed":
    case "mismatched":
      return { ...found, isHeld: true };
    default:
      // The lock may be ours, and nothing is known of the record: the lock asks again.
      return { kind: "unknown", cause: new Error("a slot of the Cluster is being moved") };
  }
}

function or(found: LookReply, locked: AcquireReply): AcquireReply {
  return found.kind === "completed" || found.kind === "mismatched" ? found : locked;
}

/** A complete that is split in two where it has to be. */
export class SplittableComplete implements CompleteRequest {
  readonly #whole: CompleteRequest;
  readonly #steps: SingleSteps;
  deadlineMs: number | undefined;

  constructor(whole: CompleteRequest, steps: SingleSteps) {
    this.#whole = whole;
    this.#steps = steps;
  }

  get command(): LockCommand {
    return this.#whole.command;
  }

  get record(): string {
    return this.#whole.record;
  }

  get expiresAtMs(): number {
    return this.#whole.expiresAtMs;
  }

  get cooldownUntilMs(): number {
    return this.#whole.cooldownUntilMs;
  }

  answer(reply: CompleteReply): void {
    if (!isMoving(reply)) {
      this.#whole.answer(reply);
      return;
    }
    const { command, expiresAtMs, record } = this;
    this.#steps.record({
      command,
      deadlineMs: undefined,
      record,
      expiresAtMs,
      answer: (recorded) => this.#release(recorded),
    });
  }

  #release(recorded: CompleteReply): void {
    if (isNoAnswer(recorded)) {
      this.#whole.answer(recorded);
      return;
    }
    const { command, cooldownUntilMs } = this;
    this.#steps.release({
      command,
      deadlineMs: undefined,
      cooldownUntilMs,
      answer: (released) => this.#whole.answer(both(recorded, released)),
    });
  }
}

function both(recorded: CompleteReply, released: OwnedReply): CompleteReply {
  if (isNoAnswer(released)) return released;
  if (recorded.kind !== "recorded" || released.kind === "done") return recorded;
  return { kind: "late", storeTimeMs: released.storeTimeMs };
}

function isNoAnswer(reply: CompleteReply | OwnedReply): reply is NoAnswer {
  return reply.kind === "unsent" || reply.kind === "rejected" || reply.kind === "unknown";
}

function isMoving(reply: AcquireReply | CompleteReply): boolean {
  return reply.kind === "unsent" && reply.reason.startsWith("TRYAGAIN");
}
