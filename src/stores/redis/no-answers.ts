import type { NoAnswer } from "../../lock/store.ts";
import type { CallResult } from "./connection.ts";
import { isServerError, plainError } from "./ioredis.ts";

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

/** Errors that waiting does not fix, said before anything is executed. The command line reads them, too. */
export const refusals: Readonly<
  Record<"password" | "host" | "select" | "database" | "command", RegExp>
> = {
  // The last is the answer to a command of more than ten arguments, such as an acquire.
  password: /^(NOAUTH|WRONGPASS)\b|^ERR Protocol error: unauthenticated/,
  host: /^DENIED\b/,
  select: /^NOPERM\b.*'select'|^ERR unknown command ['`]select\b/i,
  database:
    /^ERR (DB index is out of range|invalid DB index|SELECT is not allowed in cluster mode)/,
  // The last two are NOPERM within a script: of Redis up to 7, and of later ones.
  command:
    /^NOPERM\b|^ERR unknown command|can't run this command or subcommand|ACL failure in script/,
};

/** The meaning of each; the first that matches counts. */
const misconfigurations: readonly (readonly [RegExp, advice: string])[] = [
  [refusals.password, "Redis did not accept the client's password"],
  [refusals.host, "Redis accepts no client from this host"],
  [
    refusals.select,
    "Redis does not permit SELECT, which a client on another database than 0 needs (+select)",
  ],
  [refusals.database, "Redis does not have the database of the client"],
  [
    refusals.command,
    "Redis does not permit what a lock needs (EVAL, and GET, SET, PTTL, PEXPIRE, DEL and TIME within it)",
  ],
];

export function toNoAnswer(
  result: Exclude<CallResult, { kind: "value" | "not-loaded" }>,
): NoAnswer {
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

/** The meaning of an error that waiting cannot fix; `undefined` for any other. */
export function misconfiguration(cause: Error): NoAnswer | undefined {
  const found = misconfigurations.find(([pattern]) => pattern.test(cause.message));
  return found && { kind: "rejected", cause, misconfigured: true, advice: found[1] };
}
