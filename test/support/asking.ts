import type {
  AcquireReply,
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

/** A store as a test asks it: a command in, a promise of what became of its one copy out. */
export interface Asking {
  acquire(command: LockCommand): AskedRequest<AcquireReply>;
  extend(command: LockCommand): AskedRequest<OwnedReply>;
  release(command: LockCommand): AskedRequest<OwnedReply>;
}

export function asking(store: LockStore): Asking {
  return {
    acquire: (command) => asked(command, (copy) => store.acquire(copy)),
    extend: (command) => asked(command, (copy) => store.extend(copy)),
    release: (command) => asked(command, (copy) => store.release(copy)),
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
