import type {
  AcquireReply,
  CompleteReply,
  CompleteRequest,
  LockCommand,
  LockRequest,
  NoAnswer,
  OwnedReply,
  ReleaseRequest,
} from "../../lock/store.ts";
import { unexpectedReply } from "./no-answers.ts";
import { acquireOnceScript, acquireScript } from "./scripts/acquire.ts";
import { completeScript } from "./scripts/complete.ts";
import { extendScript } from "./scripts/extend.ts";
import { cooldownScript, releaseScript } from "./scripts/release.ts";

/** At 2 to 3 µs a key, a full call holds Redis, and everybody else on it, for 0.2 to 0.3 ms. */
const maxEntries = 100;

/** A record may have 1 MiB and more: so many of them are one call's at the most. */
export const maxRecords = 16;

/** What is equal for all entries of a call. */
interface CallSettings {
  /** Of its first entry: the times and the holder are those of all. */
  readonly command: LockCommand;
  /** By Redis' clock, in whole milliseconds. */
  readonly deadlineMs: number;
  /** The highest fencing token or clock that was heard from the node, in microseconds. */
  readonly floorUs: number;
}

/** What a script said: of its own, and of one entry. */
export interface EntryReply {
  readonly redisTimeMs: number;
  /** Acquire: the fencing token of whatever was taken. */
  readonly fencingToken: number;
  readonly code: number | string;
}

/** How a command is written for many requests, and how one entry of its reply is read. */
export interface Command<Request, Reply> {
  readonly script: string;
  /** How many numbers the reply begins with: the clock, and for an acquire a token. */
  readonly headLength: 1 | 2;
  readonly maxEntries: number;
  /** The first of ARGV. */
  head(settings: CallSettings): (string | number)[];
  /** Adds the KEYS and ARGV of one entry. */
  add(
    request: Request,
    keys: string[],
    args: (string | number)[],
    recordKey: (command: LockCommand) => string,
  ): void;
  read(reply: EntryReply): Reply | NoAnswer;
}

function acquireHead({ command, deadlineMs, floorUs }: CallSettings): (string | number)[] {
  const { ttlMs, maxHoldMs, acquireTimeoutMs } = command.times;
  // Rule 2: the second is the window.
  return [deadlineMs, 2 * acquireTimeoutMs, maxHoldMs, ttlMs, floorUs];
}

/** The end of a key's value: what an operator wants to know of a lock. */
function valueTail({ holder, times }: LockCommand): string {
  return `${times.ttlMs}:${times.maxHoldMs}:${holder}:`;
}

type Args = (string | number)[];

function addOwner({ command }: LockRequest<never>, keys: string[], args: Args): void {
  keys.push(command.key);
  args.push(command.ownerId);
}

/** Of an acquire for a submission, without the record. */
export function addSubmission(request: LockRequest<never>, keys: string[], args: Args): void {
  const { submission } = request.command;
  addOwner(request, keys, args);
  args.push(submission?.id ?? "", submission?.fingerprint ?? "");
}

export const acquireCommand: Command<LockRequest<AcquireReply>, AcquireReply> = {
  script: acquireScript,
  headLength: 2,
  maxEntries,
  // Without a submission and its fingerprint.
  head: (settings) => [...acquireHead(settings), `${valueTail(settings.command)}:`],
  add: addOwner,
  read: acquireReply,
};

export const acquireOnceCommand: Command<LockRequest<AcquireReply>, AcquireReply> = {
  script: acquireOnceScript,
  headLength: 2,
  maxEntries: maxRecords,
  head: (settings) => [...acquireHead(settings), valueTail(settings.command)],
  add: (request, keys, args, recordKey) => {
    addSubmission(request, keys, args);
    keys.push(recordKey(request.command));
  },
  read: acquireReply,
};

/** Takes nothing, because its deadline has passed long ago. */
export const lookUpCommand: Command<LockRequest<AcquireReply>, AcquireReply> = {
  ...acquireOnceCommand,
  head: (settings) => acquireOnceCommand.head({ ...settings, deadlineMs: 0 }),
};

export const extendCommand: Command<LockRequest<OwnedReply>, OwnedReply> = {
  script: extendScript,
  headLength: 1,
  maxEntries,
  head: ({ command }) => [command.times.ttlMs],
  add: addOwner,
  read: ownedReply,
};

export const releaseCommand: Command<ReleaseRequest, OwnedReply> = {
  script: releaseScript,
  headLength: 1,
  maxEntries,
  head: () => [],
  add: addOwner,
  read: ownedReply,
};

export const cooldownCommand: Command<ReleaseRequest, OwnedReply> = {
  script: cooldownScript,
  headLength: 1,
  maxEntries,
  head: () => [],
  add: ({ command, cooldownUntilMs }, keys, args) => {
    keys.push(command.key);
    args.push(command.ownerId, cooldownUntilMs);
  },
  read: ownedReply,
};

export const completeCommand: Command<CompleteRequest, CompleteReply> = {
  script: completeScript,
  headLength: 1,
  maxEntries: maxRecords,
  head: () => [],
  add: ({ command, record, expiresAtMs, cooldownUntilMs }, keys, args, recordKey) => {
    keys.push(command.key, recordKey(command));
    args.push(command.ownerId, record, expiresAtMs, cooldownUntilMs);
  },
  read: completeReply,
};

/** No token is so small: the clocks of 2001 were beyond it. */
export const leastToken = 1e15;

/** A grant is exactly −1 or a token: nothing that a proxy, a test double or `null` could yield by accident. */
export function acquireReply({ code, fencingToken, redisTimeMs }: EntryReply): AcquireReply {
  const storeTimeMs = redisTimeMs;
  if (typeof code === "string") return { kind: "completed", record: code, storeTimeMs };
  switch (code) {
    case -1:
      return { kind: "taken", storeTimeMs, fencingToken };
    case -3:
      return { kind: "outOfWindow", storeTimeMs };
    case -4:
      return { kind: "contended", expiresInMs: Number.POSITIVE_INFINITY, storeTimeMs };
    case -5:
      return { kind: "mismatched", inFlight: false, storeTimeMs };
    case -6:
      return { kind: "mismatched", inFlight: true, storeTimeMs };
    case -7: {
      const cause = new Error("something that is no record stands where this submission's belongs");
      return { kind: "rejected", cause, misconfigured: false };
    }
  }
  if (code >= 0) return { kind: "contended", expiresInMs: code, storeTimeMs };
  if (code <= -leastToken) return { kind: "mine", storeTimeMs, fencingToken: -code };
  if (code <= -1e9) {
    return { kind: "contended", expiresInMs: -1e9 - code, isCooldown: true, storeTimeMs };
  }
  if (code > -1_000) return unexpectedReply(code);
  return { kind: "contended", expiresInMs: -1_000 - code, sameSubmission: true, storeTimeMs };
}

export function ownedReply({ code, redisTimeMs: storeTimeMs }: EntryReply): OwnedReply {
  switch (code) {
    case 1:
      return { kind: "done", storeTimeMs };
    case 0:
      return { kind: "gone", storeTimeMs };
    case -1:
      return { kind: "foreign", storeTimeMs };
    case -2:
      return { kind: "freed", storeTimeMs };
    default:
      return unexpectedReply(code);
  }
}

export function completeReply({ code, redisTimeMs: storeTimeMs }: EntryReply): CompleteReply {
  switch (code) {
    case 1:
    case 2:
      return { kind: "recorded", storeTimeMs };
    case 3:
      return { kind: "late", storeTimeMs };
    case 0:
      return { kind: "expired", storeTimeMs };
    case -2:
      return { kind: "duplicate", storeTimeMs };
    case -4:
      return { kind: "unrecordable", storeTimeMs };
    default:
      return unexpectedReply(code);
  }
}
