import type { IncomingMessage, ServerResponse } from "node:http";
import { UserLease } from "../lock/lease.ts";
import type { AnswerToStore } from "../lock/record.ts";
import { warnOnce } from "../validation.ts";
import type { Capture, WantedAnswer } from "./capture.ts";
import type { LeaseLike, ResolvedIdempotency } from "./options.ts";
import { ResponseEnd } from "./response-end.ts";
import { isStored } from "./stored-answer.ts";
import { IdentifiedSubmission } from "./submission.ts";

/** A cooldown depends on the status and on nothing else. */
const statusAlone: WantedAnswer = { storedHeaders: new Set(), maxBodyBytes: 0 };

/** For how long outer middleware may be at work on Koa after its client has left. */
const outerWorkMs = 1_000;

/**
 * The lease of one request. It ends exactly once, when the work is done and the response has ended or
 * lost its connection. While work may go on unseen only the end of the response counts, because a
 * client that leaves does not stop the handler.
 */
export class RequestLease {
  readonly req: IncomingMessage;
  /** How the guard that acquired recognises submissions. */
  readonly idempotency: ResolvedIdempotency<never> | undefined;
  /** For how long the user's next submission is contended after a success, in milliseconds. */
  readonly cooldownMs: number;
  /** Set by `hold`, as is `submission`. */
  lease!: LeaseLike;
  submission: IdentifiedSubmission | undefined;
  readonly #response: ResponseEnd;
  #capture: Capture | undefined;
  #isHeld = false;
  /** How many pieces of work have not returned. */
  #running = 0;
  /** A piece of work has finished for certain. */
  #isFinished = false;
  #onAbandoned: ((held: RequestLease) => void) | undefined;

  /** Starts watching the response at once: it may end while the user is still being looked up. */
  constructor(
    req: IncomingMessage,
    res: ServerResponse,
    { cooldownMs, idempotency }: Pick<RequestLease, "cooldownMs" | "idempotency">,
  ) {
    this.req = req;
    this.cooldownMs = cooldownMs;
    this.idempotency = idempotency;
    this.#response = new ResponseEnd(req, res, () => this.#check());
  }

  /** The client has left, or the request was answered already. */
  get isTooLate(): boolean {
    return this.#response.ended || this.#response.closed;
  }

  /** Stops watching: this response ends no lease. */
  drop(): void {
    this.#response.stop();
  }

  /** Holds the lease until work and response are over; ends it at once if they are. */
  hold(lease: LeaseLike, submission: IdentifiedSubmission | undefined): void {
    this.lease = lease;
    this.submission = submission;
    this.#isHeld = true;
    const others = leases.get(this.req);
    if (others === undefined) leases.set(this.req, [this]);
    else others.push(this);
    this.#check();
  }

  /** The part of the answer that must be captured; `undefined` for a lock alone. */
  get wanted(): WantedAnswer | undefined {
    if (this.submission !== undefined && this.idempotency !== undefined) return this.idempotency;
    return this.cooldownMs > 0 ? statusAlone : undefined;
  }

  /** Call it before the request can end. */
  capturedBy(capture: Capture): void {
    this.#capture = capture;
  }

  /**
   * Reports a piece of work, which keeps the lock held while it runs. Call exactly one of `finished`
   * and `detached` when it returns.
   */
  begin(): void {
    this.#running++;
  }

  /** A piece of work has returned, and no part of it goes on. */
  finished(): void {
    this.#running--;
    this.#isFinished = true;
    this.#check();
  }

  /**
   * A piece of work has returned, but may go on unseen: only the end of the response counts.
   *
   * @param onAbandoned called if the client leaves before the response has ended. From then on the
   * response may never end, and so the lease.
   */
  detached(onAbandoned?: (held: RequestLease) => void): void {
    this.#running--;
    this.#onAbandoned = onAbandoned ?? this.#onAbandoned;
    this.#check();
  }

  /** The response has failed and will not be ended: it counts as over. */
  responseFailed(): void {
    this.#response.fail();
  }

  /** The handler has failed: an answer that others give in its place is not kept. */
  handlerFailed(): void {
    this.#capture?.failed();
  }

  #check(): void {
    if (!this.#isHeld || this.#running > 0) return;
    if (this.#response.ended || (this.#isFinished && this.#response.isOver)) {
      this.#end();
    } else if (this.#response.closed && !this.#isFinished) {
      const onAbandoned = this.#onAbandoned;
      this.#onAbandoned = undefined;
      onAbandoned?.(this);
    }
  }

  /**
   * Ends the lease of an order whose client has left, while middleware around the guard may still be
   * saving a session. A repeat gets its answer at once, and a cooldown lets the user's next order wait
   * for that middleware. A lock without cooldowns is held for that time instead.
   */
  endBeforeOuterWork(): void {
    this.#end(outerWorkMs);
  }

  #end(leastCooldownMs = 0): void {
    this.#isHeld = false;
    this.drop();
    const { lease, req } = this;
    const others = leases.get(req)?.filter((each) => each !== this) ?? [];
    if (others.length === 0) leases.delete(req);
    else leases.set(req, others);
    const answer = this.#capture?.answer();
    const hasSucceeded = answer !== undefined && answer.status >= 200 && answer.status < 400;
    const cooldownMs = hasSucceeded ? this.cooldownMs : 0;
    const kept = answer !== undefined && this.#isKept(answer) ? answer : undefined;
    if (leastCooldownMs <= cooldownMs) {
      endLease(lease, kept, cooldownMs);
      return;
    }
    if (isOurs(lease)) {
      try {
        endLease(lease, kept, leastCooldownMs);
        return;
      } catch {
        // Its store has no cooldowns, and nothing was begun.
      }
    }
    setTimeout(() => endLease(lease, kept, cooldownMs), leastCooldownMs);
  }

  #isKept(answer: AnswerToStore): boolean {
    const { idempotency, submission } = this;
    if (idempotency === undefined || submission === undefined) return false;
    if (!IdentifiedSubmission.isStored(submission)) return false;
    const { body, headers = {}, status } = answer;
    try {
      const bytes = typeof body === "string" ? Buffer.from(body) : body;
      return isStored(idempotency.store, { status, headers, body: bytes });
    } catch (error) {
      // The application's own function; after the response there is only a warning left.
      warnOnce(
        "SUBMIT_LOCK_STORE_FAILED",
        `idempotency.store failed, so the answer is not kept and a retry runs again: ${String(error)}`,
      );
      return false;
    }
  }
}

/**
 * A map and not a property of the request: Express replaces each request's prototype, which gives it
 * a hidden class of its own, and one more property on it would cost about 2 µs.
 */
const leases = new WeakMap<IncomingMessage, RequestLease[]>();

/** Rule 13: a lease on this key that the request has already, from an outer guard. */
export function findLease(req: IncomingMessage, key: string): RequestLease | undefined {
  // A lease that was lost protects nothing: then the next guard makes an attempt of its own.
  return leases.get(req)?.find(({ lease }) => lease.key === key && lease.remainingMs() > 0);
}

/** Keeps the answer, or gives the lock back without one. Rule 8: neither is awaited. */
export function endLease(
  lease: LeaseLike,
  answer: AnswerToStore | undefined,
  cooldownMs: number,
): void {
  const options = cooldownMs > 0 ? { cooldownMs } : undefined;
  const end = () =>
    answer === undefined || lease.complete === undefined
      ? lease.release(options)
      : lease.complete(answer, options);
  if (isOurs(lease)) {
    // It never rejects.
    void end();
    return;
  }
  // Another lock must not end the process, nor make the handler's `res.end()` throw.
  const failed = (error: unknown) =>
    warnOnce("SUBMIT_LOCK_RELEASE_FAILED", `the given lock failed to end a lease: ${error}`);
  try {
    end()?.catch(failed);
  } catch (error) {
    failed(error);
  }
}

function isOurs(lease: LeaseLike): boolean {
  return lease instanceof UserLease;
}
