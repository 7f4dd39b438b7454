import type { NoAnswer } from "../../lock/store.ts";
import { isServerError, isUnwritten, plainError } from "./clients/port.ts";
import type { CallResult } from "./connection.ts";

export function unexpectedReply(value: unknown): NoAnswer {
  const text = value === null ? "null" : Array.isArray(value) ? "an array" : typeof value;
  const came = typeof value === "number" ? value : text;
  const why = `Redis gave an unexpected reply (${came}) to a script of submit-lock`;
  const message = `${why}: is there a proxy, or a client option that changes replies?`;
  return { kind: "unknown", cause: new Error(message), isAnswered: true };
}

/**
 * Errors by which Redis says that it has not executed the request. They count only if the server
 * sent them before the connection was lost: later, the error may be about a second write.
 */
const notExecuted = /^(LOADING|OOM|MISCONF|NOREPLICAS|BUSY|CROSSSLOT)\b/;

/** Errors of a node that did not execute the request: the slot is elsewhere, moving or nowhere. */
const elsewhere = /^(MOVED|ASK|TRYAGAIN|CLUSTERDOWN)\b/;

/** Whether Redis did not execute a call because its keys are in more than one slot. */
export function isCrossSlot(reply: unknown): boolean {
  return isServerError(reply) && reply.message.startsWith("CROSSSLOT");
}

export function isOfReplica(reply: unknown): boolean {
  return isServerError(reply) && /^(READONLY|MASTERDOWN)\b/.test(reply.message);
}

/**
 * A master that Sentinels have replaced sends this error, too: its replicas have left it. No
 * Sentinel tells it so for about 10 s. In a Cluster, a replaced master is told at once.
 */
export function lacksReplicas(reply: unknown): boolean {
  return isServerError(reply) && reply.message.startsWith("NOREPLICAS");
}

/** Errors that waiting does not fix; nothing was executed. The command line uses them, too. */
export const refusals: Readonly<
  Record<"password" | "host" | "select" | "database" | "info" | "command", RegExp>
> = {
  // The last pattern: the reply to more than ten arguments from a client without a password.
  password: /^(NOAUTH|WRONGPASS)\b|^ERR Protocol error: unauthenticated/,
  host: /^DENIED\b/,
  select: /^NOPERM\b.*'select'|^ERR unknown command ['`]select\b/i,
  database:
    /^ERR (DB index is out of range|invalid DB index|SELECT is not allowed in cluster mode)/,
  // The second pattern is of servers below 6.2, the third of those with `rename-command`.
  info: /^NOPERM\b.*'client\|info'|^ERR unknown subcommand .*\bINFO\b|^ERR unknown command ['`]client\b/i,
  // The third is of a Valkey without its module for Lua, the last three of a command within a script.
  command:
    /^NOPERM\b|^ERR unknown command|^ERR Could not find scripting engine|can't run this command or subcommand|ACL failure in script|Unknown (\w+ )?command called from script/,
};

/** Pairs a pattern with the text that begins the caller's error. The first match wins. */
const misconfigurations: readonly (readonly [RegExp, advice: string])[] = [
  [refusals.password, "Redis did not accept the client's password"],
  [refusals.host, "Redis accepts no client from this host"],
  [
    refusals.select,
    "Redis does not permit SELECT, which a client on another database than 0 needs (+select)",
  ],
  [
    refusals.database,
    "Redis does not have the client's database: use a lower number, and 0 on a Cluster",
  ],
  [
    refusals.info,
    "Redis does not permit CLIENT INFO, which tells the database of a node-redis client (+client|info)",
  ],
  [
    /^ERR unknown command ['`]info\b/i,
    "Redis has no INFO, which ioredis asks for before it is ready: set its enableReadyCheck to false",
  ],
  [
    /^ERR unknown command ['`]hello\b/i,
    "Redis has no HELLO, which node-redis sends: set its RESP to 2",
  ],
  [
    refusals.command,
    "Redis does not permit what a lock needs (EVAL, and GET, SET, PTTL, PEXPIRE, DEL and TIME within it, on its keys, in the client's database)",
  ],
];

export function toNoAnswer(
  result: Exclude<CallResult, { kind: "value" | "not-loaded" }>,
): NoAnswer {
  if (result.kind === "closed") {
    const cause = new Error("the connection to Redis closed before Redis answered");
    return { kind: "unknown", cause };
  }
  const cause = plainError(result.error);
  if (isUnwritten(cause)) return { kind: "unsent", reason: cause.message };
  if (isServerError(cause)) {
    if (elsewhere.test(cause.message) || isOfReplica(cause)) {
      return { kind: "unsent", reason: "no master took it", cause };
    }
    if (notExecuted.test(cause.message)) return { kind: "rejected", cause, misconfigured: false };
    const misconfigured = misconfiguration(cause);
    if (misconfigured !== undefined) return misconfigured;
    return { kind: "unknown", cause, isAnswered: true };
  }
  return { kind: "unknown", cause };
}

/** A store's answer, with advice, for an error that waiting does not fix; else `undefined`. */
export function misconfiguration(cause: Error): NoAnswer | undefined {
  const found = misconfigurations.find(([pattern]) => pattern.test(cause.message));
  return found && { kind: "rejected", cause, misconfigured: true, advice: found[1] };
}
