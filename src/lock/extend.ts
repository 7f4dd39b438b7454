import type { LockCommand, LockRequest, OwnedReply } from "./store.ts";

/** What an extend is for. */
interface Extended {
  readonly command: LockCommand;
  extended(reply: OwnedReply, sentAt: number): void;
}

/** One write of an extend. */
export class ExtendRequest implements LockRequest<OwnedReply> {
  readonly #lease: Extended;
  readonly #sentAt: number;
  deadlineMs: number | undefined;

  constructor(lease: Extended, sentAt: number) {
    this.#lease = lease;
    this.#sentAt = sentAt;
  }

  get command(): LockCommand {
    return this.#lease.command;
  }

  answer(reply: OwnedReply): void {
    this.#lease.extended(reply, this.#sentAt);
  }
}
