import type { AcquireReply, AcquireRequest, LockCommand } from "../../lock/store.ts";

/** A part of an acquire: stamped with the deadline of the whole, and answered to somebody else. */
export class AcquirePart implements AcquireRequest {
  readonly #whole: AcquireRequest;
  readonly answer: (reply: AcquireReply) => void;

  constructor(whole: AcquireRequest, answer: (reply: AcquireReply) => void) {
    this.#whole = whole;
    this.answer = answer;
  }

  get command(): LockCommand {
    return this.#whole.command;
  }

  get onlyLooks(): boolean {
    return this.#whole.onlyLooks;
  }

  get deadlineMs(): number | undefined {
    return this.#whole.deadlineMs;
  }

  set deadlineMs(deadlineMs: number | undefined) {
    this.#whole.deadlineMs = deadlineMs;
  }
}
