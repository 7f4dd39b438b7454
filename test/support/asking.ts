import type {
  AcquireReply,
  CompleteReply,
  ForgetReply,
  FreeReply,
  FreeRequest,
  InspectReply,
  LockCommand,
  LockRequest,
  LockStore,
  OwnedReply,
  ReleaseRequest,
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
  look(command: LockCommand, waitsFor?: string): AskedRequest<AcquireReply>;
  extend(command: LockCommand): AskedRequest<OwnedReply>;
  release(
    command: LockCommand,
    cooldownUntilMs?: number,
    told?: ReleaseRequest["told"],
  ): AskedRequest<OwnedReply>;
  complete(command: LockCommand, given: Completed): AskedRequest<CompleteReply>;
  inspect(command: LockCommand): AskedRequest<InspectReply>;
  free(command: LockCommand, given: Freed): AskedRequest<FreeReply>;
  /** @param run the owner id of the run whose record was looked at. */
  forget(command: LockCommand, run: string): AskedRequest<ForgetReply>;
}

export function asking(store: LockStore): Asking {
  return {
    acquire: (command) =>
      asked(command, (copy) => store.acquire(asText(Object.assign(copy, { onlyLooks: false })))),
    look: (command, waitsFor) =>
      asked(command, (copy) =>
        store.acquire(asText(Object.assign(copy, { onlyLooks: true, waitsFor }))),
      ),
    extend: (command) => asked(command, (copy) => store.extend(copy)),
    release: (command, cooldownUntilMs = 0, told = undefined) =>
      asked(command, (copy) => store.release(Object.assign(copy, { cooldownUntilMs, told }))),
    complete: (command, given) =>
      asked(command, (copy) =>
        store.complete?.(Object.assign(copy, { cooldownUntilMs: 0, ...given })),
      ),
    inspect: (command) => asked(command, (copy) => store.inspect?.(copy)),
    free: (command, given) => asked(command, (copy) => store.free?.(Object.assign(copy, given))),
    forget: (command, run) =>
      asked(command, (copy) => store.forget?.(Object.assign(copy, { run }))),
  };
}

/** A store may give bytes for the text that it was given. */
function asText<Copy extends AskedRequest<AcquireReply>>(copy: Copy): Copy {
  const { answer } = copy;
  copy.answer = (reply) =>
    answer("record" in reply ? { ...reply, record: `${reply.record}` } : reply);
  return copy;
}

function asked<Reply>(
  command: LockCommand,
  write: (copy: AskedRequest<Reply>) => void,
): AskedRequest<Reply> {
  const copy = new AskedRequest<Reply>(command);
  write(copy);
  return copy;
}
