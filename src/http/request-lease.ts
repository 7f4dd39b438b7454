import type { IncomingMessage, ServerResponse } from "node:http";
import type { Capture, WantedAnswer } from "./capture.ts";
import { type Ending, endSubmission } from "./end-submission.ts";
import type { LeaseLike } from "./guard-options.ts";
import type { ResolvedIdempotency } from "./idempotency-options.ts";
import { ResponseEnd } from "./response-end.ts";
import type { IdentifiedSubmission, Submission } from "./submission.ts";

/** A piece of work that keeps the lock held while it runs. Exactly one of the two is called when it returns. */
export interface Work {
  /** Nothing of it goes on. */
  finished(): void;
  /**
   * It has returned, but may go on where nobody sees it: only the end of the response tells.
   *
   * @param onAbandoned called if the client leaves before the response has ended. From then on
   * nothing may end the response, and so the lease.
   */
  detached(onAbandoned?: (lease: LeaseLike) => void): void;
}

/** A cooldown asks for success and for nothing else. */
const statusAlone: WantedAnswer = { storedHeaders: new Set(), maxBodyBytes: 0 };

/** What the guards of one request know of a lease, whichever copy of the package took it. */
export interface SharedLease {
  readonly lease: LeaseLike;
  /** How the guard that acquired recognises submissions. */
  readonly idempotency?: ResolvedIdempotency<never> | undefined;
  /** How long it keeps the user out after a success, in milliseconds. */
  readonly cooldownMs?: number | undefined;
  /** What the request submits, where that is known. */
  readonly submission?: Submission | undefined;
  /** Reports a piece of work that the release has to wait for. */
  begin(): Work;
  /** The response has failed, and nobody will end it: it counts as over. */
  responseFailed(): void;
  /** The handler has failed, so what others answer for it is not kept. */
  handlerFailed?(): void;
}

/** A lease that a request holds until its submission is over. */
export class RequestLease implements SharedLease {
  readonly lease: LeaseLike;
  readonly #req: IncomingMessage;
  readonly #completion: Completion;
  readonly #ending: Ending;

  constructor(
    req: IncomingMessage,
    lease: LeaseLike,
    completion: Completion,
    submission: IdentifiedSubmission | undefined,
    { cooldownMs, idempotency }: Pick<Ending, "cooldownMs" | "idempotency">,
  ) {
    this.#req = req;
    this.lease = lease;
    this.#completion = completion;
    this.#ending = { submission, idempotency, cooldownMs, capture: undefined };
  }

  get idempotency(): ResolvedIdempotency<never> | undefined {
    return this.#ending.idempotency;
  }

  get cooldownMs(): number {
    return this.#ending.cooldownMs;
  }

  get submission(): IdentifiedSubmission | undefined {
    return this.#ending.submission;
  }

  /** What is wanted of the answer; `undefined` where it does not matter, as for a lock alone. */
  get wanted(): WantedAnswer | undefined {
    const { cooldownMs, idempotency, submission } = this.#ending;
    if (submission !== undefined && idempotency !== undefined) return idempotency;
    return cooldownMs > 0 ? statusAlone : undefined;
  }

  /** To be called before the end of the request. */
  capturedBy(capture: Capture): void {
    this.#ending.capture = capture;
  }

  begin(): Work {
    return this.#completion.begin();
  }

  responseFailed(): void {
    this.#completion.responseFailed();
  }

  handlerFailed(): void {
    this.#ending.capture?.failed();
  }

  end(): void {
    remove(this.#req, this);
    endSubmission(this.lease, this.#ending);
  }
}

/**
 * Decides, exactly once, when a submission is over: when its work is done and its response has
 * ended or lost its connection. While work may go on unseen only the end of the response counts,
 * because a client that leaves does not stop the handler.
 */
export class Completion {
  readonly #response: ResponseEnd;
  /** The pieces of work that have not returned. */
  #running = 0;
  /** A piece of work has finished for certain. */
  #isFinished = false;
  #onAbandoned: ((lease: LeaseLike) => void) | undefined;
  #held: RequestLease | undefined;

  /** Starts watching the response at once: it may end while the user is still being looked up. */
  constructor(req: IncomingMessage, res: ServerResponse) {
    this.#response = new ResponseEnd(req, res, () => this.#check());
  }

  /** The client has left, or somebody has answered already. */
  get isTooLate(): boolean {
    return this.#response.ended || this.#response.closed;
  }

  /** Holds the lease until work and response are over; ends it at once if they are. */
  hold(
    req: IncomingMessage,
    lease: LeaseLike,
    submission: IdentifiedSubmission | undefined,
    options: Pick<Ending, "cooldownMs" | "idempotency">,
  ): RequestLease {
    const held = new RequestLease(req, lease, this, submission, options);
    add(req, held);
    this.#held = held;
    this.#check();
    return held;
  }

  /** Stops watching: this response ends no lease. */
  drop(): void {
    this.#response.stop();
  }

  begin(): Work {
    this.#running++;
    return new RunningWork(this);
  }

  returned(isFinished: boolean, onAbandoned: ((lease: LeaseLike) => void) | undefined): void {
    this.#running--;
    this.#isFinished ||= isFinished;
    this.#onAbandoned ??= onAbandoned;
    this.#check();
  }

  responseFailed(): void {
    this.#response.fail();
  }

  #check(): void {
    const held = this.#held;
    if (held === undefined || this.#running > 0) return;
    if (this.#response.ended || (this.#isFinished && this.#response.isOver)) {
      this.#held = undefined;
      this.drop();
      held.end();
    } else if (this.#response.closed && !this.#isFinished) {
      this.#onAbandoned?.(held.lease);
      this.#onAbandoned = undefined;
    }
  }
}

class RunningWork implements Work {
  readonly #completion: Completion;
  #isRunning = true;

  constructor(completion: Completion) {
    this.#completion = completion;
  }

  finished(): void {
    this.#return(true, undefined);
  }

  detached(onAbandoned?: (lease: LeaseLike) => void): void {
    this.#return(false, onAbandoned);
  }

  #return(isFinished: boolean, onAbandoned: ((lease: LeaseLike) => void) | undefined): void {
    if (!this.#isRunning) return;
    this.#isRunning = false;
    this.#completion.returned(isFinished, onAbandoned);
  }
}

/** Registered, so that two copies of the package find each other's leases on one request. */
const registered: unique symbol = Symbol.for("submit-lock.request-leases");
const shared = globalThis as { [registered]?: WeakMap<IncomingMessage, SharedLease[]> };

/**
 * A map and not a property of the request: Express replaces each request's prototype, which gives it
 * a hidden class of its own, and one more property on it would cost about 2 µs.
 */
shared[registered] ??= new WeakMap();
const leases = shared[registered];

/** Rule 13: a lease on this key that the request holds already, whichever guard took it. */
export function findLease(req: IncomingMessage, key: string): SharedLease | undefined {
  // A lease that was lost protects nothing: then the next guard makes an attempt of its own.
  return leases.get(req)?.find(({ lease }) => lease.key === key && lease.remainingMs() > 0);
}

function add(req: IncomingMessage, held: RequestLease): void {
  const others = leases.get(req);
  if (others === undefined) leases.set(req, [held]);
  else others.push(held);
}

function remove(req: IncomingMessage, held: RequestLease): void {
  const others = leases.get(req)?.filter((each) => each !== held) ?? [];
  if (others.length === 0) leases.delete(req);
  else leases.set(req, others);
}
