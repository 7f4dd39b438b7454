import type { AcquireReply, NoAnswer, OwnedReply } from "../../lock/store.ts";

/**
 * What came back from one call on one connection. A call whose connection was lost is `closed`,
 * whatever its client makes of it later: so every value and every error is the only answer to the
 * only write of its call, as the port demands.
 */
export type CallResult =
  | { readonly kind: "value"; readonly value: unknown }
  | { readonly kind: "error"; readonly error: unknown }
  | { readonly kind: "closed" };

/** A script's reply: Redis' clock, and a code or an error for each entry. */
export interface ScriptReply {
  readonly redisTimeMs: number;
  readonly codes: readonly (number | Error)[];
}

/** `undefined` for anything that none of the scripts can have said. */
export function scriptReply(value: unknown, entries: number): ScriptReply | undefined {
  if (!Array.isArray(value) || value.length !== entries + 1) return undefined;
  // `stringNumbers` of ioredis makes strings of numbers.
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
      return code >= 0 ? { kind: "contended", expiresInMs: code, storeTimeMs } : odd(code);
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
      return odd(code);
  }
}

export function odd(value: unknown): NoAnswer {
  const text = value === null ? "null" : Array.isArray(value) ? "an array" : typeof value;
  return {
    kind: "unknown",
    cause: new Error(
      `Redis gave an odd reply (${typeof value === "number" ? value : text}) to a script of submit-lock`,
    ),
  };
}

/**
 * Said before anything is executed. Believed only as the clean answer of a server: through a
 * Cluster's redirections or after a reconnect the same text may be about a second copy. A wrong
 * "not executed" would cost an orphan of one TTL at most.
 */
const notExecuted = /^(READONLY|MASTERDOWN|LOADING|OOM|MISCONF|NOREPLICAS|BUSY|CROSSSLOT)\b/;

/** Said before anything is executed, while a Cluster moves a slot or elects a master: gone in a moment. */
const elsewhere = /^(MOVED|ASK|TRYAGAIN|CLUSTERDOWN)\b/;

/** "You may not" instead of "not now". The last two are NOPERM within a script: Redis up to 7, and later ones. */
const notPermitted =
  /^(NOPERM|NOAUTH|WRONGPASS|DENIED)\b|^ERR unknown command|can't run this command or subcommand|ACL failure in script/;

export function toNoAnswer(result: Exclude<CallResult, { kind: "value" }>): NoAnswer {
  if (result.kind === "closed") {
    return {
      kind: "unknown",
      cause: new Error("the connection to Redis closed before it answered"),
    };
  }
  const { error } = result;
  const cause = withoutCommand(error);
  if (isServerError(error)) {
    const misconfigured = isPermissionError(cause);
    if (elsewhere.test(cause.message)) return { kind: "unsent", reason: cause.message };
    if (misconfigured || notExecuted.test(cause.message)) {
      return { kind: "rejected", cause, misconfigured };
    }
  }
  return { kind: "unknown", cause };
}

/** The errors of ioredis carry the arguments of their command, and so owner ids into whatever logs them. */
export function withoutCommand(error: unknown): Error {
  if (!(error instanceof Error)) return new Error(String(error));
  const copy = new Error(error.message);
  copy.name = error.name;
  return copy;
}

/** Whether the server said "you may not". */
export function isPermissionError(error: Error): boolean {
  return notPermitted.test(error.message);
}

/** Whether the server itself said it, and not the client: a sign of life, in any case. */
export function isServerError(error: unknown): boolean {
  return error instanceof Error && error.name === "ReplyError";
}
