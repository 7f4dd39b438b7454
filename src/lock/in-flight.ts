import type { AcquireReply, LockRequest } from "./store.ts";

/**
 * The requests of one attempt that are in flight: written, and possibly still to take effect. The
 * attempt adds them and resolves them, also after it has ended; its lease and its release read them.
 */
export class InFlight {
  // Almost always exactly one: no list is made for it.
  #first: LockRequest<AcquireReply> | undefined;
  #others: LockRequest<AcquireReply>[] | undefined;

  get isEmpty(): boolean {
    return this.#first === undefined;
  }

  add(request: LockRequest<AcquireReply>): void {
    if (this.#first === undefined) this.#first = request;
    else if (this.#others === undefined) this.#others = [request];
    else this.#others.push(request);
  }

  /** It is certain what became of the request: it can take effect no later than now. */
  resolve(request: LockRequest<AcquireReply>): void {
    if (this.#first === request) {
      this.#first = this.#others?.pop();
      return;
    }
    const at = this.#others?.indexOf(request) ?? -1;
    if (at >= 0) this.#others?.splice(at, 1);
  }

  /**
   * The store's time after which none of them can take effect: −∞ if there is none, ∞ while one is
   * not written yet.
   */
  get latestDeadlineMs(): number {
    if (this.#first === undefined) return Number.NEGATIVE_INFINITY;
    let latest = deadlineOf(this.#first);
    for (const request of this.#others ?? []) latest = Math.max(latest, deadlineOf(request));
    return latest;
  }
}

function deadlineOf({ deadlineMs }: LockRequest<AcquireReply>): number {
  return deadlineMs ?? Number.POSITIVE_INFINITY;
}
