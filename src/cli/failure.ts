import { isSubmitLockError } from "../errors.ts";
import { program } from "./commands.ts";

/** What a command ends with. */
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

/** Ends a command: its message is for the person at the shell, and says what to do. */
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
    super(message, exitCode.usage);
  }
}

/** Redis said nothing: what was asked may have been done. */
export class NoAnswerError extends CliError {
  constructor(message: string, options?: ErrorOptions) {
    super(message, exitCode.noRedis, options);
  }
}

/** What of an error's text tells what to do; the first that fits. `at` names the Redis that was asked. */
const remedies: readonly (readonly [RegExp, code: number, text: (at: string) => string])[] = [
  [
    // The last is said of a command of more than ten arguments.
    /\b(NOAUTH|WRONGPASS)\b|invalid password|Protocol error: unauthenticated/,
    exitCode.notPermitted,
    (at) =>
      `${at} did not accept the user or the password. Both belong into the address: REDIS_URL=redis://user:password@host:6379.`,
  ],
  [
    /\bDENIED\b/,
    exitCode.notPermitted,
    (at) => `${at} accepts no client from this host (protected mode). Run this on another host.`,
  ],
  [
    /\b(NOPERM|unknown command)\b.*\bselect\b/i,
    exitCode.notPermitted,
    (at) => `${at} may not be selected by this user. ACL SETUSER <user> +select permits it.`,
  ],
  [
    /\bDB index\b/,
    exitCode.usage,
    (at) => `there is no ${at}. Give the one that the shop uses as the path of the address.`,
  ],
  [
    /SELECT is not allowed in cluster mode/,
    exitCode.usage,
    (at) =>
      `${at} does not exist: it is a node of a Cluster. Say so with --cluster, and leave the database out of the address.`,
  ],
  [
    /\bNOPERM\b|unknown command|can't run this command or subcommand|ACL failure in script/,
    exitCode.notPermitted,
    (at) =>
      `${at} does not permit what this command needs. The documentation of submit-lock has the line for ACL SETUSER, under "Permissions".`,
  ],
  [
    /\b(MOVED|ASK) \d+/,
    exitCode.usage,
    (at) => `${at} is a node of a Cluster. Say so with --cluster.`,
  ],
  [/cluster support disabled/, exitCode.usage, (at) => `${at} is no Cluster. Leave --cluster out.`],
  [
    /\bCLUSTERDOWN\b/,
    exitCode.noRedis,
    (at) =>
      `${at} cannot serve this user's key: a part of the Cluster is down. Look at it with: ${program} doctor --cluster.`,
  ],
  [
    /\bREADONLY\b/,
    exitCode.noRedis,
    (at) => `${at} is a replica, and nothing can be changed there. Give the address of the master.`,
  ],
  [
    /\bOOM\b/,
    exitCode.noRedis,
    (at) => `${at} is full, and refuses whatever needs memory. Give it a larger maxmemory.`,
  ],
  [
    /\bMISCONF\b/,
    exitCode.noRedis,
    (at) => `${at} cannot save to its disk, and refuses writes until it can. Its log says why.`,
  ],
  [
    /\bNOREPLICAS\b/,
    exitCode.noRedis,
    (at) =>
      `${at} has too few replicas (min-replicas-to-write), and refuses writes until they are back.`,
  ],
  [
    /\b(LOADING|MASTERDOWN)\b/,
    exitCode.noRedis,
    (at) => `${at} is not ready yet. Try again in a moment.`,
  ],
  [
    /\bBUSY\b/,
    exitCode.noRedis,
    (at) => `${at} is held up by somebody's script. SCRIPT KILL ends one that has written nothing.`,
  ],
  [
    /sentinels are unreachable/,
    exitCode.noRedis,
    (at) => `${at}: no Sentinel answered. Are the addresses after --sentinel, and --master, right?`,
  ],
  [
    /certificate|self[- ]signed|altname|wrong version number|ssl3_get_record/i,
    exitCode.noRedis,
    (at) =>
      `${at}: no secure connection. Does the address begin with rediss:// exactly where Redis speaks TLS, and does --tls-ca name its authority?`,
  ],
];

/** What went wrong as a sentence, and the exit code, whatever was thrown. */
export function toCliError(error: unknown, at: string): CliError {
  if (error instanceof CliError) return error;
  // A defect of ours is not to look like one of Redis.
  if (error instanceof TypeError || error instanceof ReferenceError) throw error;
  const text = reasonsOf(error)
    .map((reason) => reason.replace(/\.$/, ""))
    .join(": ");
  if (isSubmitLockError(error)) {
    if (error.code === "SUBMIT_LOCK_INVALID_USER_ID") {
      return new UsageError(`${text}. Give the id that the guard's userId returns`);
    }
    if (error.code === "SUBMIT_LOCK_INVALID_OPTION") return new UsageError(text);
  }
  const options = { cause: error };
  const [, code, sentence] = remedies.find(([pattern]) => pattern.test(text)) ?? [];
  if (code !== undefined && sentence !== undefined) {
    return new CliError(`${sentence(at)} (${text})`, code, options);
  }
  return new NoAnswerError(
    `no answer from ${at}. Is the address right, and can this host reach it? (${text})`,
    options,
  );
}

/** The messages of an error and of what caused it, each once. */
function reasonsOf(error: unknown): string[] {
  const reasons: string[] = [];
  for (let each: unknown = error; each instanceof Error && reasons.length < 5; ) {
    const { lastNodeError } = each as { lastNodeError?: unknown };
    const text = messageOf(each);
    if (text !== "" && !reasons.some((reason) => reason.includes(text))) reasons.push(text);
    each = each.cause ?? lastNodeError;
  }
  return reasons.length === 0 ? [String(error)] : reasons;
}

/** The error of a host with several addresses, of which none answered, has an empty message. */
function messageOf(error: Error): string {
  if (error.message !== "" || !(error instanceof AggregateError)) return error.message;
  return error.errors
    .map((each) => (each instanceof Error ? each.message : String(each)))
    .join(", ");
}
