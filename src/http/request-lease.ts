import { AsyncResource } from "node:async_hooks";
import { isSubmitLockError, type LockLostError } from "../errors.ts";
import { type RefusalMessage, refusalChannel } from "../lock/channels.ts";
import { type Lease, UserLease } from "../lock/lease.ts";
import type { AnswerToStore } from "../lock/record.ts";
import { setTimeout } from "../time.ts";
import { isError, textOfThrown, warnOnce } from "../validation.ts";
import type { ResolvedGuardOptions } from "./options.ts";
import type { Capture, Exchange } from "./port.ts";
import type { StorePolicy } from "./public.ts";
import { hasLongHeaders, isStored } from "./stored-answer.ts";
import { done, IdentifiedSubmission } from "./submission.ts";

export type HoldOptions = Pick<
  ResolvedGuardOptions<never, never>,
  "cooldownMs" | "idempotency" | "lock"
>;

/**
 * The lease of one request. It ends once, when the handler's work is done and the response has
 * ended or its client has left. Where nothing shows the end of the work, the lease ends with the
 * response; after `unseen`, it lasts `maxHoldMs`: a client that leaves does not stop the handler.
 */
export class RequestLease {
  readonly exchange: Exchange;
  readonly lease: Lease;
  readonly options: HoldOptions;
  readonly submission: IdentifiedSubmission | undefined;
  #store: StorePolicy | undefined;
  #capture: Capture | undefined;
  #isHeld = true;
  #running = 0;
  #isFinished = false;
  #isUnseen = false;
  /** The lease's loss was published as a refusal. `failed` may get the error of the loss twice. */
  #hasRefused = false;
  #onAbandoned: ((held: RequestLease) => void) | undefined;

  constructor(
    exchange: Exchange,
    lease: Lease,
    options: HoldOptions,
    submission: IdentifiedSubmission | undefined,
  ) {
    this.exchange = exchange;
    this.lease = lease;
    this.options = options;
    this.submission = submission;
    if (submission !== undefined) {
      const store = options.idempotency?.store;
      // Run `store` in the request's async context: the response or lease may end outside of it.
      this.#store = typeof store === "function" ? AsyncResource.bind(store) : store;
      IdentifiedSubmission.acquired(submission, lease);
      UserLease.onLost(lease, () => this.#recordNow(submission));
    }
    exchange.watcher = this;
    const others = leases.get(exchange.request);
    if (others === undefined) leases.set(exchange.request, [this]);
    else others.push(this);
  }

  /** A piece of work begins. Call exactly one of `finished` and `detached` when it returns. */
  begin(capture?: Capture): void {
    this.#capture ??= capture;
    this.#running++;
  }

  /** Notes an error of the work. @returns the error for the error handler: see {@link errorOf}. */
  failed(thrown?: unknown): unknown {
    this.#capture?.failed();
    const error = this.errorOf(thrown);
    const isLost = isSubmitLockError(error) && error.code === "SUBMIT_LOCK_LOST";
    if (!isLost || this.#hasRefused) return error;
    this.#hasRefused = true;
    const { exchange, lease, options, submission } = this;
    const { keyPrefix } = options.lock;
    publishFailure(error, exchange, { key: lease.key, keyPrefix, submission });
    return error;
  }

  /**
   * Returns the `LockLostError` that has caused an error, such as an `AbortError`: error handlers
   * answer 503 only for a `LockLostError`. Returns any other error as it is. The error with which
   * axios and others end an aborted request has no cause, so after the loss its name decides.
   */
  errorOf(error: unknown): unknown {
    if (!isError(error)) return error;
    const { aborted, reason } = this.lease.signal;
    let cause: unknown = error;
    // A chain of causes may be a circle.
    for (let depth = 0; aborted && depth < 10 && isError(cause); depth++) {
      if (cause === reason || /^(Abort|Cancell?ed)Error$/.test(cause.name)) return reason;
      cause = cause.cause;
    }
    return error;
  }

  /** A piece of work has returned, and no part of it goes on. */
  finished(): void {
    this.#running--;
    this.#isFinished = true;
    this.responseChanged();
  }

  /**
   * A piece of work has returned, but may have started more: only the end of the response counts.
   * @param onAbandoned called if the client leaves first: the response may then never end.
   */
  detached(onAbandoned?: (held: RequestLease) => void): void {
    this.#running--;
    this.#onAbandoned = onAbandoned ?? this.#onAbandoned;
    this.responseChanged();
  }

  /** The client has left, and the handler is done: nothing more is awaited. */
  abandoned(): void {
    this.#isFinished = true;
    this.responseChanged();
  }

  /** The client has left, and nothing shows the end of the work: the lease lasts `maxHoldMs`. */
  unseen(): void {
    this.#isUnseen = true;
  }

  responseChanged(): void {
    if (!this.#isHeld || this.#isUnseen) return;
    const { exchange } = this;
    const isWorking = this.#running > 0;
    if (!isWorking && (exchange.isAnswered || (this.#isFinished && !exchange.mayStillChange))) {
      this.end();
      return;
    }
    if (this.submission !== undefined) this.#recordNow(this.submission);
    if (isWorking) {
      if (exchange.isAnswered) this.#capture?.responseEnded?.();
    } else if (exchange.clientLeft && !this.#isFinished) {
      const onAbandoned = this.#onAbandoned;
      this.#onAbandoned = undefined;
      onAbandoned?.(this);
    }
  }

  /**
   * @param outerWorkMs how long the user's next order must wait, because outer middleware may still
   * save a session. The lease leaves a cooldown, or ends later if the store has no cooldowns.
   */
  end(outerWorkMs = 0): void {
    this.#isHeld = false;
    const { exchange, lease, submission } = this;
    exchange.stop();
    const ofRequest = leases.get(exchange.request) ?? [];
    if (ofRequest.length === 1) leases.delete(exchange.request);
    else ofRequest.splice(ofRequest.indexOf(this), 1);
    const answer = this.#capture?.answer();
    const hasSucceeded = answer !== undefined && answer.status >= 200 && answer.status < 400;
    const cooldownMs = hasSucceeded ? this.options.cooldownMs : 0;
    const kept = submission && this.#kept(submission, answer);
    const told = submission && kept === undefined ? this.#told(answer) : undefined;
    try {
      endLease(lease, kept, Math.max(cooldownMs, outerWorkMs), exchange, told);
    } catch {
      // The store has no cooldowns, or cannot keep this answer, such as one whose status is a text:
      // end the lease without either, but let no repeat of an answer to keep run.
      const otherwise = kept && done;
      setTimeout(() => endLease(lease, otherwise, 0, exchange), outerWorkMs);
    }
  }

  /** Rule 15: once the lease is lost, records an answer to keep, even a part: no repeat must run. */
  #recordNow(submission: IdentifiedSubmission): void {
    const { lease } = this;
    if (!this.#isHeld || lease.remainingMs() > 0) return;
    const kept = this.#kept(submission, this.#capture?.answer());
    if (kept !== undefined) UserLease.record(lease, kept);
  }

  /** Returns the record of this request. `undefined`: none, so a repeat runs. */
  #kept(submission: IdentifiedSubmission, answer: AnswerToStore | undefined) {
    const mayStore = IdentifiedSubmission.isStored(submission);
    // An answer must not be repeated without its headers: if they are too long, record only `done`.
    if (answer && mayStore && this.#isKept(answer)) return hasLongHeaders(answer) ? done : answer;
    if (IdentifiedSubmission.isPlaced(submission)) return done;
    return mayStore && this.#capture?.isDone === true ? done : undefined;
  }

  #isKept(answer: AnswerToStore): boolean {
    try {
      return this.#store !== undefined && isStored(this.#store, answer);
    } catch (error) {
      // The response is over, or the lease was lost: only a warning is possible.
      warnOnce(
        "SUBMIT_LOCK_STORE_FAILED",
        `idempotency.store failed, so this answer is not kept, and a repeat runs unless placed() was called: ${textOfThrown(error)}`,
      );
      return false;
    }
  }

  /** Rule 25: the answer for repeats that wait for it now, the handler's or the error handler's. */
  #told(answer: AnswerToStore | undefined): AnswerToStore | undefined {
    if (!this.options.idempotency?.waitMs) return undefined;
    const told = answer?.body === undefined ? this.#capture?.othersAnswer?.() : answer;
    const isWhole = told?.body !== undefined && told.status >= 200 && !hasLongHeaders(told);
    return isWhole ? told : undefined;
  }
}

/** The leases of each request. A property on Express' requests would cost 2 µs, a map does not. */
const leases = new WeakMap<object, RequestLease[]>();

/** Rule 13: the valid lease on this key that an outer guard has acquired for the request. */
export function findLease(request: object, key: string): RequestLease | undefined {
  // A lost lease protects nothing: `undefined` makes the inner guard try to take the lock itself.
  return leases.get(request)?.find(({ lease }) => lease.key === key && lease.remainingMs() > 0);
}

/** Ends a lease: `complete` with an answer, `release` without one. Does not wait for Redis. */
export function endLease(
  lease: Lease,
  answer: AnswerToStore | undefined,
  cooldownMs: number,
  exchange: Exchange,
  told?: AnswerToStore,
): void {
  const options = cooldownMs > 0 ? { cooldownMs } : undefined;
  const ended =
    answer === undefined
      ? lease.release(told === undefined ? options : { ...options, told })
      : lease.complete(answer, options);
  exchange.leaseEnds?.(ended);
}

/** Warns if the lease of a client that has left lasts for `maxHoldMs`: no end of work was seen. */
export function warnIfHeldToMaxHold({ lease: { signal } }: RequestLease): void {
  const warn = () => {
    if ((signal.reason as LockLostError).reason !== "max-hold") return;
    warnOnce(
      "SUBMIT_LOCK_UNSEEN_HANDLER",
      "a client left, and its user stayed locked out for maxHoldMs, because the handler passed to guard.protect() returned no promise, or one that resolved before anything was answered, so the guard could not tell when it finished. Write the handler async, and await everything that it starts, such as await pipeline(source, res)",
    );
  };
  // Reading `signal` creates it, which takes time: call this only after a client has left.
  signal.addEventListener("abort", warn, { once: true });
}

/** The client has left, or the response is over: an answer would not be read. */
export function isTooLate({ clientLeft, isAnswered }: Exchange): boolean {
  return clientLeft || isAnswered;
}

/** Publishes an error with a `Submit-Lock-Code` as a refusal, as the error handler will send it. */
export function publishFailure(
  error: unknown,
  exchange: Exchange,
  about: Pick<RefusalMessage, "key" | "keyPrefix"> & { submission: { id: string } | undefined },
): void {
  if (!refusalChannel.hasSubscribers || !isSubmitLockError(error) || isTooLate(exchange)) return;
  const code = error.headers?.["Submit-Lock-Code"];
  if (code === undefined || !("status" in error)) return;
  refusalChannel.publish({
    ...about,
    code,
    status: error.status,
    submission: about.submission?.id,
  });
}
