import type { IncomingMessage, ServerResponse } from "node:http";
import { ResponseEnd } from "./response-end.ts";

/** A piece of work that keeps the lock held while it runs. */
export interface Work {
  /** It is over for certain: nothing of it goes on. */
  done(): void;
  /** It has returned, but may go on where nobody sees it: only the end of the response tells. */
  unseen(): void;
}

/**
 * Decides, exactly once, when a submission is over: when its work is done and its response has
 * ended or lost its connection. Where the work cannot be seen, only the end of the response counts,
 * because a client that leaves does not stop the handler.
 */
export class Completion {
  readonly #watch: ResponseEnd;
  #running = 0;
  #seen = false;
  #over: (() => void) | undefined;

  /** Starts watching the response at once: it may end while the user is still being looked up. */
  constructor(req: IncomingMessage, res: ServerResponse) {
    this.#watch = new ResponseEnd(req, res, () => this.#check());
  }

  /** There is nobody to answer any more, or somebody has answered already. */
  get isTooLate(): boolean {
    return this.#watch.ended || this.#watch.closed;
  }

  /** @param over called once, when work and response are over; at once if they are. */
  whenOver(over: () => void): void {
    this.#over = over;
    this.#check();
  }

  /** No lock depends on it. */
  drop(): void {
    this.#watch.stop();
  }

  begin(): Work {
    this.#running++;
    let ended = false;
    const end = (seen: boolean) => {
      if (ended) return;
      ended = true;
      this.#running--;
      this.#seen ||= seen;
      this.#check();
    };
    return { done: () => end(true), unseen: () => end(false) };
  }

  #check(): void {
    if (this.#over === undefined || this.#running > 0) return;
    if (!this.#watch.ended && !(this.#seen && this.#watch.isOver)) return;
    const over = this.#over;
    this.#over = undefined;
    this.drop();
    over();
  }
}
