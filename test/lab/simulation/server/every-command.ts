import type { LockCommand } from "../../../../src/lock/store.ts";
import {
  acquireCommand,
  acquireOnceCommand,
} from "../../../../src/stores/redis/commands/acquire.ts";
import type { Command } from "../../../../src/stores/redis/commands/command.ts";
import { completeCommand, recordCommand } from "../../../../src/stores/redis/commands/complete.ts";
import { freeCommand, inspectCommand } from "../../../../src/stores/redis/commands/on-call.ts";
import { extendCommand, releaseCommand } from "../../../../src/stores/redis/commands/release.ts";
import { touchScript } from "../../../../src/stores/redis/commands/touch.ts";

/** What the commands are told of an entry: more than any of them asks for. */
export interface Request {
  readonly command: LockCommand;
  readonly record: string;
  readonly expiresAtMs: number;
  readonly cooldownUntilMs: number;
  readonly onlyLooks: boolean;
  /** Of a free. */
  readonly id: string;
  readonly by: string;
  readonly reason: string;
  readonly now: boolean;
  deadlineMs: number | undefined;
  answer(): void;
}

/** Every script that the store sends, by a name that a step can choose. */
export const everyCommand: Record<string, Command<Request, unknown>> = {
  acquire: acquireCommand,
  acquireOnce: acquireOnceCommand,
  extend: extendCommand,
  release: releaseCommand,
  complete: completeCommand,
  record: recordCommand,
  inspect: inspectCommand,
  free: freeCommand,
  touch: touchOf(({ command }) => command.key),
  touchRecord: touchOf(({ command }, recordKey) => recordKey(command)),
};

/** As a wait for replicas writes it, of a lock or of a record. */
function touchOf(
  keyOf: (request: Request, recordKey: (of: LockCommand) => string) => string,
): Command<Request, unknown> {
  return {
    script: touchScript,
    headLength: 1,
    maxEntries: 100,
    head: () => [],
    add: (request, keys, args, recordKey) => {
      keys.push(keyOf(request, recordKey));
      args.push(request.command.ownerId);
    },
    read: () => undefined,
  };
}
