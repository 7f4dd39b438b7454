import { AsyncResource } from "node:async_hooks";

/** The signal of a lease, made when somebody asks for it: most handlers never look at it. */
export class LeaseSignal {
  readonly #aborter = new AbortController();
  /** Of whoever asked for it first: its listeners are to run in their own context. */
  readonly #context = new AsyncResource("submit-lock");

  /** @param lost of a lease that is lost already. */
  constructor(lost: Error | undefined) {
    if (lost !== undefined) this.#aborter.abort(lost);
  }

  get signal(): AbortSignal {
    return this.#aborter.signal;
  }

  abort(lost: Error): void {
    this.#context.runInAsyncScope(() => this.#aborter.abort(lost));
  }
}
