import type {
  AcquireReply,
  CompleteReply,
  FreeReply,
  FreeRequest,
  InspectReply,
  LockCommand,
  LockRequest,
  LockStore,
  OwnedReply,
} from "../../src/index.ts";

/** A copy that was handed to a store, with a promise of its answer. */
export class AskedRequest<Reply> implements LockRequest<Reply> {
  readonly command: LockCommand;
  readonly reply: Promise<Reply>;
  deadlineMs: number | undefined;
  answer!: (reply: Reply) => void;

  constructor(command: LockCommand) {
    this.command = command;
    this.reply = new Promise((resolve) => {
      this.answer = resolve;
    });
  }
}

/** What a complete says besides its command. */
export interface Completed {
  readonly record: string;
  readonly expiresAtMs: number;
  readonly cooldownUntilMs?: number;
}

/** What a free says besides its command. */
export type Freed = Pick<FreeRequest, "id" | "by" | "reason" | "now">;

/** A store as a test asks it: a command in, a promise of what became of its one copy out. */
export interface Asking {
  acquire(command: LockCommand): AskedRequest<AcquireReply>;
  look(command: LockCommand): AskedRequest<AcquireReply>;
  extend(command: LockCommand): AskedRequest<OwnedReply>;
  release(command: LockCommand, cooldownUntilMs?: number): AskedRequest<OwnedReply>;
  complete(command: LockCommand, given: Completed): AskedRequest<CompleteReply>;
  inspect(command: LockCommand): AskedRequest<InspectReply>;
  free(command: LockCommand, given: Freed): AskedRequest<FreeReply>;
}

export function asking(store: LockStore): Asking {
  return {
    acquire: (command) =>
      asked(command, (copy) => store.acquire(Object.assign(copy, { onlyLooks: false }))),
    look: (command) =>
      asked(command, (copy) => store.acquire(Object.assign(copy, { onlyLooks: true }))),
    extend: (command) => asked(command, (copy) => store.extend(copy)),
    release: (command, cooldownUntilMs = 0) =>
      asked(command, (copy) => store.release(Object.assign(copy, { cooldownUntilMs }))),
    complete: (command, given) =>
      asked(command, (copy) =>
        store.complete?.(Object.assign(copy, { cooldownUntilMs: 0, ...given })),
      ),
    inspect: (command) => asked(command, (copy) => store.inspect?.(copy)),
    free: (command, given) => asked(command, (copy) => store.free?.(Object.assign(copy, given))),
  };
}

function asked<Reply>(
  command: LockCommand,
  write: (copy: AskedRequest<Reply>) => void,
): AskedRequest<Reply> {
  const copy = new AskedRequest<Reply>(command);
  write(copy);
  return copy;
}
