import { AsyncLocalStorage } from "node:async_hooks";
import type { CallerCommand } from "../../../src/lock/runtime.ts";
import type {
  AcquireRequest,
  CompleteRequest,
  ForgetRequest,
  FreeRequest,
  InspectRequest,
  LockRequest,
  LockStore,
  OwnedReply,
  ReleaseRequest,
} from "../../../src/lock/store.ts";
import { phase } from "./time/event-loop.ts";
import type { SimulatedProcess, World } from "./world.ts";

/** One attempt of one call: the same for every copy that follows another. */
export interface AttemptId {
  readonly call: number;
}

/**
 * The call that waits for another's attempt, and asks for itself behind that. One for all stores: each
 * more would slow down all that follow.
 */
export const calls: AsyncLocalStorage<number> = new AsyncLocalStorage();

/** What every answer may have. */
interface Told {
  readonly cause?: unknown;
  readonly kind: string;
  readonly storeTimeMs?: number;
  readonly fencingToken?: number | undefined;
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
  readonly #world: World;
  readonly #process: SimulatedProcess;
  /** When a copy was followed by another because a timer found it without an answer. */
  readonly #followedAt = new WeakMap<LockRequest<unknown>, number>();
  /** The copies of each command that have no answer yet. */
  readonly #unanswered = new Map<string, Set<LockRequest<unknown>>>();
  readonly #attemptOfOwner = new Map<string, AttemptId>();
  #isAnswering = false;

  constructor(store: LockStore, world: World, process: SimulatedProcess) {
    this.#store = store;
    this.#world = world;
    this.#process = process;
  }

  acquire(copy: AcquireRequest): void {
    const { key, ownerId } = copy.command;
    if (copy.onlyLooks && (copy.command as CallerCommand).retainMs === 0) {
      // The look of a forget, whose answer is checked by what it deletes.
      this.#store.acquire(copy);
      return;
    }
    const attempt = this.#attemptOf(ownerId) ?? {
      call: this.call ?? calls.getStore() ?? this.waiting.get(key) ?? 0,
    };
    this.#attemptOfOwner.set(withoutCopy(ownerId), attempt);
    this.#world.saw(copy.command, attempt, this.#process);
    this.#store.acquire(
      Object.assign(this.#watched(copy, `acquire ${withoutCopy(ownerId)}`), {
        onlyLooks: copy.onlyLooks,
        waitsFor: copy.waitsFor,
      }),
    );
  }

  extend(copy: LockRequest<OwnedReply>): void {
    const { ownerId } = copy.command;
    const heard = (kind: string) => this.#world.leaseWatch.extended(ownerId, kind);
    this.#store.extend(this.#watched(copy, `extend ${ownerId}`, heard));
  }

  release(copy: ReleaseRequest): void {
    const { cooldownUntilMs, command, told } = copy;
    const watched = this.#watched(copy, `release ${command.ownerId}`);
    this.#store.release(Object.assign(watched, { cooldownUntilMs, told }));
  }

  complete(copy: CompleteRequest): void {
    const { command, cooldownUntilMs, record } = copy;
    // The same for every copy, as it was.
    const expiresAtMs = copy.expiresAtMs - nominalRetainMs + this.#world.schedule.retainMs;
    const owner = this.#world.owners.get(command.ownerId);
    if (owner !== undefined) owner.recordUntil ??= expiresAtMs;
    const watched = this.#watched(copy, `complete ${command.ownerId}`);
    this.#store.complete?.(Object.assign(watched, { cooldownUntilMs, expiresAtMs, record }));
  }

  inspect(request: InspectRequest): void {
    this.#store.inspect?.(request);
  }

  free(request: FreeRequest): void {
    this.#store.free?.(request);
  }

  forget(request: ForgetRequest): void {
    this.#store.forget?.(request);
  }

  attach(onReady: () => void): () => Promise<void> {
    return this.#store.attach(onReady);
  }

  #attemptOf(ownerId: string): AttemptId | undefined {
    return this.#attemptOfOwner.get(withoutCopy(ownerId));
  }

  #hear({ storeTimeMs, fencingToken }: Told): void {
    if (storeTimeMs === undefined) return;
    const microseconds = Math.max(storeTimeMs * 1_000, fencingToken ?? 0);
    this.#world.fenceWatch.heard(this.#process, microseconds);
  }

  #watched<Reply extends Told>(
    copy: LockRequest<Reply>,
    command: string,
    heard: (kind: string) => void = () => {},
  ): LockRequest<Reply> {
    const unanswered = this.#unanswered.get(command) ?? new Set();
    const world = this.#world;
    const { loop } = world;
    // A timer runs the code of the moment. What follows an answer follows no timer of the lock's:
    // ioredis's own `commandTimeout` gives one up before it reads.
    const isAwoken = loop.phase !== phase.poll;
    if (isAwoken && !this.#isAnswering) {
      for (const earlier of unanswered) this.#followedAt.set(earlier, loop.now);
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
        if (String(reply.cause).includes("non local key")) {
          world.broken("refused", "what a node had refused was not written to the other");
        }
        unanswered.delete(copy);
        if (unanswered.size === 0) this.#unanswered.delete(command);
        // In two steps the first half is told when the second cannot be written, or its connection is
        // lost: that had not lain ready, for then an answer is read at this very step.
        const layReady = this.#followedAt.get(copy) === loop.now && loop.steps === world.readAtStep;
        if (kind !== "unknown" && layReady) {
          world.broken("atHand", `a command was written again, and "${kind}" lay ready`);
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
