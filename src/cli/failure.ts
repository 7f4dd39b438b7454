import { isSubmitLockError } from "../errors.ts";
import { plainError } from "../stores/redis/ioredis.ts";
import { refusals } from "../stores/redis/no-answers.ts";
import { program } from "./terminal.ts";

export const exitCode = {
  done: 0,
  /** `doctor` found a failure, or `free` met another holder. */
  found: 1,
  /** Wrong arguments, or no ioredis. */
  usage: 2,
  /** No Redis within 2 s of connecting. */
  noRedis: 3,
  notPermitted: 4,
} as const;

const { usage, noRedis, notPermitted } = exitCode;

/** Ends a command. The message tells the person at the shell what failed and what to do. */
export class CliError extends Error {
  override readonly name = "CliError";
  readonly exitCode: number;

  constructor(message: string, code: number, options?: ErrorOptions) {
    super(message, options);
    this.exitCode = code;
  }
}

/** Wrong arguments. */
export class UsageError extends CliError {
  constructor(message: string) {
    super(message, usage);
  }
}

/** Redis did not answer: it may have executed the request. */
export class NoAnswerError extends CliError {
  constructor(message: string, options?: ErrorOptions) {
    super(message, noRedis, options);
  }
}

/** Errors with their exit code, and a sentence that begins with the address. The first that matches counts. */
const remedies: readonly (readonly [RegExp, code: number, sentence: string])[] = [
  [
    refusals.password,
    notPermitted,
    " rejected the user name or password. Put both in the URL: REDIS_URL=redis://user:password@host:6379.",
  ],
  [
    refusals.host,
    notPermitted,
    " accepts no client from this host (protected mode). Run this command on another host.",
  ],
  [
    refusals.select,
    notPermitted,
    " may not be selected by this user. Permit it with: ACL SETUSER <user> +select.",
  ],
  [
    /SELECT is not allowed in cluster mode/,
    usage,
    " does not exist: it is a node of a Cluster. Add --cluster, and leave the database out of the URL.",
  ],
  [
    refusals.database,
    usage,
    " does not exist. Put the number of the shop's database at the end of the URL.",
  ],
  [
    refusals.command,
    notPermitted,
    ' does not permit a command that is needed. The documentation of submit-lock has the line for ACL SETUSER, under "Permissions".',
  ],
  [/\b(MOVED|ASK) \d+/, usage, " is a node of a Cluster. Add --cluster."],
  [/cluster support disabled/, usage, " is not a Cluster. Leave --cluster out."],
  [
    /sentinels are unreachable/,
    noRedis,
    ": no Sentinel answered. Check the addresses after --sentinel, and --master.",
  ],
  [
    /certificate|self[- ]signed|altname|wrong version number|ssl3_get_record/i,
    noRedis,
    ": no secure connection. Use rediss:// exactly where Redis uses TLS, and pass the server's authority with --tls-ca.",
  ],
];

/** Refusals by a Redis that is reached, by the first word of the error. */
const unready: Readonly<Record<string, string>> = {
  CLUSTERDOWN: `cannot serve this user's key: a part of the Cluster is down. Look at it with: ${program} doctor --cluster.`,
  READONLY: "is a replica, and nothing can be changed there. Use the address of the master.",
  OOM: "is full, and refuses writes that need memory. Raise its maxmemory.",
  MISCONF: "cannot save to its disk, and refuses writes until it can. Its log has the reason.",
  NOREPLICAS:
    "has too few replicas (min-replicas-to-write), and refuses writes until they are back.",
  LOADING: "is not ready yet. Try again in a moment.",
  MASTERDOWN: "is not ready yet. Try again in a moment.",
  BUSY: "is blocked by a script. SCRIPT KILL ends one that has written nothing.",
};

/** Turns any error into a sentence and an exit code. `at` names the Redis that was asked. */
export function toCliError(error: unknown, at: string): CliError {
  if (error instanceof CliError) return error;
  // A defect of this program must not look like a failure of Redis.
  if (error instanceof TypeError || error instanceof ReferenceError) throw error;
  const reasons = reasonsOf(error);
  // Most errors repeat the message of their cause.
  const text = reasons
    .filter((reason, index) => !reasons.slice(0, index).some((before) => before.includes(reason)))
    .join(": ");
  if (isSubmitLockError(error)) {
    if (error.code === "SUBMIT_LOCK_INVALID_USER_ID") {
      return new UsageError(`${text}. Use the id that the guard's userId returns`);
    }
    if (error.code === "SUBMIT_LOCK_INVALID_OPTION") return new UsageError(text);
  }
  const cause = { cause: error };
  for (const [pattern, code, sentence] of remedies) {
    if (reasons.some((reason) => pattern.test(reason))) {
      return new CliError(`${at}${sentence} (${text})`, code, cause);
    }
  }
  const word = Object.keys(unready).find((each) => new RegExp(`\\b${each}\\b`).test(text));
  return word !== undefined
    ? new CliError(`${at} ${unready[word]} (${text})`, noRedis, cause)
    : new NoAnswerError(
        `no answer from ${at}. Is the address right, and can this host reach it? (${text})`,
        cause,
      );
}

/** The messages of an error and of its causes, without full stops at their ends. */
function reasonsOf(error: unknown): string[] {
  const reasons: string[] = [];
  for (let each = error; each instanceof Error && reasons.length < 5; ) {
    reasons.push(plainError(each).message.replace(/\.$/, ""));
    each = each.cause ?? (each as { lastNodeError?: unknown }).lastNodeError;
  }
  return reasons.length === 0 ? [String(error)] : reasons.filter((reason) => reason !== "");
}
