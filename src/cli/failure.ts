import { isSubmitLockError } from "../errors.ts";
import { isServerError, plainError } from "../stores/redis/clients/port.ts";
import { refusals } from "../stores/redis/redis-errors.ts";
import { isError } from "../validation.ts";

export const exitCode = {
  done: 0,
  found: 1,
  /** Wrong arguments, no such database, no client library, or output that cannot be written. */
  usage: 2,
  /** Redis did not answer within 2 s, or cannot serve now: it is a replica, full or loading. */
  noRedis: 3,
  notPermitted: 4,
} as const;

const { usage, noRedis, notPermitted } = exitCode;

/** Ends a command. Its message tells the person at the shell what failed and what to do. */
export class CliError extends Error {
  override readonly name = "CliError";
  readonly exitCode: number;

  constructor(message: string, code: number = usage, cause?: unknown) {
    super(message, { cause });
    this.exitCode = code;
  }
}

/** Patterns of errors, with exit code and the sentence after the address. The first match wins. */
const sentences: readonly (readonly [RegExp, code: number, sentence: string])[] = [
  [
    refusals.password,
    notPermitted,
    " rejected the user name or password. Put both in the URL, or use --config.",
  ],
  [refusals.host, notPermitted, " accepts no client from this host. Use another host."],
  [
    refusals.select,
    notPermitted,
    ": SELECT is not permitted (ACL SETUSER with +select permits it), or was renamed.",
  ],
  [
    refusals.database,
    usage,
    ": no such database. Put the number of the shop's database at the end of the URL. If this is a node of a Cluster, add --cluster, and leave the database out of the URL.",
  ],
  [
    /unknown command ['`]eval/i,
    notPermitted,
    " has no EVAL: it was renamed or removed there, or this is a Sentinel (use --sentinel and --master).",
  ],
  [
    refusals.command,
    notPermitted,
    ' does not permit a command, key or database that is needed. The documentation of submit-lock has the line for ACL SETUSER, under "Permissions".',
  ],
  [
    /\bTRYAGAIN\b|Too many Cluster redirections.*\b(MOVED|ASK) \d/s,
    noRedis,
    " is moving these keys to another node, or its nodes disagree where they are. Try again in a moment; redis-cli --cluster fix ends a move that was interrupted.",
  ],
  [/\b(MOVED|ASK) \d+/, usage, " is a node of a Cluster. Add --cluster."],
  [/cluster support disabled/, usage, " is not a Cluster. Leave --cluster out."],
  [
    /sentinels are unreachable.*\b(NOAUTH|WRONGPASS|NOPERM)\b/s,
    notPermitted,
    ": a Sentinel rejected the login, or does not permit SENTINEL. Use a client of the shop's own, by --config.",
  ],
  [
    /sentinels are unreachable/,
    noRedis,
    ": no Sentinel answered with that master. Check --sentinel and --master, and use rediss:// in --url exactly where Sentinels use TLS, with --tls-ca.",
  ],
  [
    /certificate|self[- ]signed|altname|wrong version number|ssl3_get_record/i,
    noRedis,
    ": no secure connection. Use rediss:// exactly where Redis uses TLS, and pass the server's authority with --tls-ca, or a client of the shop's own, with its certificate, by --config.",
  ],
  [
    /\bCLUSTERDOWN\b/,
    noRedis,
    ": a part of the Cluster is down. The command doctor names its nodes.",
  ],
  [/\bREADONLY\b/, noRedis, " is a replica, and nothing can be changed there. Use the master."],
  [/\bOOM\b/, noRedis, " is full, and refuses writes that need memory. Raise its maxmemory."],
  [/\bMISCONF\b/, noRedis, " cannot save to its disk, and refuses writes. Its log has the reason."],
  [/\bNOREPLICAS\b/, noRedis, " has too few replicas (min-replicas-to-write), and refuses writes."],
  [/\b(LOADING|MASTERDOWN)\b/, noRedis, " is not ready yet. Try again in a moment."],
  [/^check\(\) could not|unexpected reply/, noRedis, " answered, and not as a lock needs it."],
  [/\bBUSY\b/, noRedis, " runs a script. SCRIPT KILL ends one that has written nothing."],
  [
    /slots cache/,
    noRedis,
    ": no node answered. Is one up, and does the address say rediss:// exactly where Redis uses TLS, with the server's authority by --tls-ca?",
  ],
  [
    /Connection is closed|Cluster is ended|ECONNRESET|closed unexpectedly/,
    noRedis,
    ": no answer, and the connection was closed. Is Redis up (doctor names the nodes of a Cluster), does the address say rediss:// exactly where Redis uses TLS, and does Redis accept other hosts than its own (protected mode)?",
  ],
];

/** Turns an error into a sentence and an exit code. `at` names the Redis that was asked. */
export function toCliError(error: unknown, at: string): CliError {
  if (error instanceof CliError) return error;
  // A defect of this program must not look like a failure of Redis.
  if (error instanceof TypeError || error instanceof ReferenceError) throw error;
  const causes = causesOf(error);
  const reasons = causes.map(({ message }) => message.replace(/\.$/, "")).filter(Boolean);
  // Most errors repeat the message of their cause.
  const text = reasons
    .filter((reason, index) => !reasons.slice(0, index).some((before) => before.includes(reason)))
    .join(": ");
  const code = isSubmitLockError(error) && error.code;
  const useId = "Use the id that the guard's userId returns";
  if (code === "SUBMIT_LOCK_INVALID_USER_ID") return new CliError(`${text}. ${useId}`);
  if (code === "SUBMIT_LOCK_INVALID_OPTION") {
    return new CliError(text.replace(/^keyPrefix:/, "--prefix:"));
  }
  const found = sentences.find(([pattern]) => reasons.some((reason) => pattern.test(reason)));
  if (found !== undefined) return new CliError(`${at}${found[2]} (${text})`, found[1], error);
  const doubt = reasons.some((reason) => /\bis silent\b/.test(reason))
    ? "Is it stopped or busy, or does a Cluster move the slot of these keys (redis-cli --cluster check)?"
    : "Is the address right, and can this host reach it?";
  const silence = `no answer from ${at}. ${doubt}`;
  const failed = causes.some(isServerError) ? `${at} answered with an error` : silence;
  return new CliError(`${failed} (${text})`, noRedis, error);
}

function causesOf(error: unknown, most = 5): Error[] {
  const { lastNodeError, cause: next = lastNodeError } = Object(error);
  const others = most > 1 && isError(next) ? causesOf(next, most - 1) : [];
  return [plainError(error), ...others];
}
