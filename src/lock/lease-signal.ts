import { AsyncResource } from "node:async_hooks";

/** The signal of a lease. Made on demand: most handlers never look at it. */
export class LeaseSignal {
  #aborter: AbortController | undefined;
  /** Of whoever asked for the signal first: its listeners are to run in their own context. */
  #context: AsyncResource | undefined;
  #reason: Error | undefined;

  get signal(): AbortSignal {
    if (this.#aborter === undefined) {
      this.#aborter = new AbortController();
      this.#context = new AsyncResource("submit-lock");
      if (this.#reason !== undefined) this.#aborter.abort(this.#reason);
    }
    return this.#aborter.signal;
  }

  abort(reason: Error): void {
    this.#reason = reason;
    this.#context?.runInAsyncScope(() => this.#aborter?.abort(reason));
  }
}
