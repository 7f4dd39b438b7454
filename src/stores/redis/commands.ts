import type { AcquireReply, LockTimes, NoAnswer, OwnedReply } from "../../lock/store.ts";
import type { CallResult } from "./connection.ts";
import { isServerError, plainError } from "./ioredis.ts";
import { acquireScript, extendScript, releaseScript } from "./scripts.ts";

/** How one of the three commands is written for many keys, and how one entry of its reply is read. */
export interface Command<Reply> {
  readonly script: string;
  /** ARGV, with an owner id for each key. All are of one lock, and so share their times. */
  args(ownerIds: readonly string[], times: LockTimes, deadlineMs: number): (string | number)[];
  reply(code: number, storeTimeMs: number): Reply | NoAnswer;
}

export const acquireCommand: Command<AcquireReply> = {
  script: acquireScript,
  args: (ownerIds, { ttlMs, maxHoldMs, acquireTimeoutMs }, deadlineMs) => [
    deadlineMs,
    // Rule 2: the window.
    2 * acquireTimeoutMs,
    maxHoldMs,
    ttlMs,
    ...ownerIds,
  ],
  reply: acquireReply,
};

export const extendCommand: Command<OwnedReply> = {
  script: extendScript,
  args: (ownerIds, { ttlMs }) => [ttlMs, ...ownerIds],
  reply: ownedReply,
};

export const releaseCommand: Command<OwnedReply> = {
  script: releaseScript,
  args: (ownerIds) => [...ownerIds],
  reply: ownedReply,
};

/** A script's reply: Redis' clock, and a code or an error for each entry. */
export interface ScriptReply {
  readonly redisTimeMs: number;
  readonly codes: readonly (number | Error)[];
}

/** `undefined` for anything that none of the scripts can have said. */
export function scriptReply(value: unknown, entries: number): ScriptReply | undefined {
  if (!Array.isArray(value) || value.length !== entries + 1) return undefined;
  // ioredis with `stringNumbers` turns numbers into strings.
  const numbers = typeof value[0] === "string" ? value.map(asNumber) : value;
  const redisTimeMs = numbers[0];
  if (!Number.isSafeInteger(redisTimeMs)) return undefined;
  const codes = numbers.slice(1);
  const sane = codes.every((code) => Number.isSafeInteger(code) || code instanceof Error);
  return sane ? { redisTimeMs, codes } : undefined;
}

function asNumber(value: unknown): unknown {
  return typeof value === "string" ? Number(value) : value;
}

/** A grant is exactly −1 or −2: nothing that a proxy, a test double or `null` could yield by accident. */
export function acquireReply(code: number, storeTimeMs: number): AcquireReply {
  switch (code) {
    case -1:
      return { kind: "taken", storeTimeMs };
    case -2:
      return { kind: "mine", storeTimeMs };
    case -3:
      return { kind: "outOfWindow", storeTimeMs };
    case -4:
      return { kind: "contended", expiresInMs: Number.POSITIVE_INFINITY, storeTimeMs };
    default:
      if (code < 0) return unexpectedReply(code);
      return { kind: "contended", expiresInMs: code, storeTimeMs };
  }
}

export function ownedReply(code: number, storeTimeMs: number): OwnedReply {
  switch (code) {
    case 1:
      return { kind: "done", storeTimeMs };
    case 0:
      return { kind: "gone", storeTimeMs };
    case -1:
      return { kind: "foreign", storeTimeMs };
    default:
      return unexpectedReply(code);
  }
}

export function unexpectedReply(value: unknown): NoAnswer {
  const text = value === null ? "null" : Array.isArray(value) ? "an array" : typeof value;
  return {
    kind: "unknown",
    cause: new Error(
      `Redis gave an unexpected reply (${typeof value === "number" ? value : text}) to a script of submit-lock`,
    ),
  };
}

/**
 * Said before anything is executed. Believed only of the server itself, and only because the
 * connection was not lost since: after a reconnect or a redirection the same text may be about a
 * second write. A wrong "not executed" would cost an orphan of one TTL at most.
 */
const notExecuted = /^(READONLY|MASTERDOWN|LOADING|OOM|MISCONF|NOREPLICAS|BUSY|CROSSSLOT)\b/;

/** Said before anything is executed, while a Cluster moves a slot or elects a master: over in a moment. */
const elsewhere = /^(MOVED|ASK|TRYAGAIN|CLUSTERDOWN)\b/;

/** Errors that waiting does not mend, said before anything is executed; and what each means. */
const misconfigurations: readonly (readonly [RegExp, advice: string])[] = [
  [/^(NOAUTH|WRONGPASS)\b/, "Redis did not accept the client's password"],
  [/^DENIED\b/, "Redis accepts no client from this host"],
  [
    // The last two are NOPERM within a script: of Redis up to 7, and of later ones.
    /^NOPERM\b|^ERR unknown command|can't run this command or subcommand|ACL failure in script/,
    "Redis does not permit what a lock needs (EVAL, and GET, SET, PTTL, PEXPIRE, DEL and TIME within it)",
  ],
];

export function toNoAnswer(result: Exclude<CallResult, { kind: "value" }>): NoAnswer {
  if (result.kind === "closed") {
    return {
      kind: "unknown",
      cause: new Error("the connection to Redis closed before it answered"),
    };
  }
  const cause = plainError(result.error);
  if (isServerError(cause)) {
    if (elsewhere.test(cause.message)) return { kind: "unsent", reason: cause.message };
    if (notExecuted.test(cause.message)) {
      return { kind: "rejected", cause, misconfigured: false };
    }
    const misconfigured = misconfiguration(cause);
    if (misconfigured !== undefined) return misconfigured;
  }
  return { kind: "unknown", cause };
}

/** What to say of an error that waiting does not mend; `undefined` for any other. */
export function misconfiguration(cause: Error): NoAnswer | undefined {
  const found = misconfigurations.find(([pattern]) => pattern.test(cause.message));
  return found && { kind: "rejected", cause, misconfigured: true, advice: found[1] };
}
