import { InvalidOptionError } from "../errors.ts";
import { resolveRetainMs } from "../lock/submission.ts";
import type { UserId } from "../lock/submit-key.ts";
import { isSubmitLock, type SubmitLock } from "../lock/submit-lock.ts";
import {
  checkMs,
  checkOptionNames,
  describe,
  hasMembers,
  invalidOption,
  longestCooldownMs,
  longestRepeatWaitMs,
} from "../validation.ts";
import type { Adapter, AnswerFunction, WantedAnswer } from "./port.ts";
import type {
  Anonymous,
  Contended,
  IdempotencyOptions,
  KeyMissing,
  Mismatch,
  Replay,
  StorePolicy,
  Unavailable,
} from "./public.ts";
import { resolveStoredHeaders } from "./stored-answer.ts";

/** The members of a `SubmitLock` that a guard calls: a lock of another package copy fits, too. */
type GuardLock = Pick<
  SubmitLock,
  "acquire" | "acquireOrWait" | "keyFor" | "keyPrefix" | "requireRecords"
>;

type NoUser = undefined | null | "";

/**
 * The options of a guard. Its callbacks get a `Source`, such as a request. Its functions that answer
 * get `Args` and, as the last argument, the reason; they return a `Result`.
 */
export interface GuardOptions<Source, Args extends unknown[], Result = unknown> {
  /** A `SubmitLock`. */
  readonly lock: GuardLock;
  /**
   * Returns the id of the user who submits: 1 to 200 characters, a safe integer or a bigint, from
   * the verified session or token and never from the body; unique over all tenants and shops that
   * share the lock's `keyPrefix`. `undefined`, `null` and `""` are anonymous.
   */
  readonly userId: (source: Source) => UserId | NoUser | Promise<UserId | NoUser>;
  /** Returns whether a request runs without a lock, as a CORS preflight does. @defaultValue none */
  readonly skip?: ((source: Source) => boolean | Promise<boolean>) | undefined;
  /**
   * Recognises a submission that is sent again, and repeats its answer instead of running it again.
   * `{}` uses the `Idempotency-Key` header. Mount the body parser before the guard.
   * @defaultValue none: a submission that is sent again after its first run is a new order
   */
  readonly idempotency?: IdempotencyOptions<Source> | undefined;
  /**
   * How long after a success (2xx, 3xx) the user's next submission is refused as contended, with or
   * without an id, in milliseconds: 0 to 60 000. @defaultValue 0
   */
  readonly cooldownMs?: number | undefined;
  /** Without a user: "reject" answers 401, "proceed" runs without a lock. @defaultValue "reject" */
  readonly onAnonymous?: "reject" | "proceed" | AnswerFunction<Args, Anonymous, Result> | undefined;
  /** Answers instead of every 409; the reason is in {@link Contended}. @defaultValue 409 */
  readonly onContended?: AnswerFunction<Args, Contended, Result> | undefined;
  /**
   * Without Redis: "reject" answers 503, "proceed" runs without a lock. But 503 is the answer on a
   * closed lock, and to a repeat of an order that this process runs under a lease, records or has
   * waited for. A `LockMisconfiguredError` goes to the error handler. @defaultValue "reject"
   */
  readonly onUnavailable?:
    | "reject"
    | "proceed"
    | AnswerFunction<Args, Unavailable, Result>
    | undefined;
  /** Answers if an id is missing or unfit, as {@link KeyMissing} says. @defaultValue 400 */
  readonly onKeyMissing?: AnswerFunction<Args, KeyMissing, Result> | undefined;
  /** Answers if the submission's id was used before, with other content. @defaultValue 422 */
  readonly onMismatch?: AnswerFunction<Args, Mismatch, Result> | undefined;
  /** Answers a repeat. @defaultValue the first answer again, with `Idempotent-Replayed: true` */
  readonly onReplay?: AnswerFunction<Args, Replay, Result> | undefined;
}

export interface ResolvedGuardOptions<Source, Args extends unknown[]>
  extends Omit<GuardOptions<Source, Args>, "idempotency" | "cooldownMs">,
    Adapter<Source, Args> {
  readonly idempotency: ResolvedIdempotency<Source> | undefined;
  readonly cooldownMs: number;
  /** How many requests had no user, for the warning at the third; ∞ once a request had a user. */
  anonymousAtFirst: number;
}

export interface ResolvedIdempotency<Source>
  extends Pick<IdempotencyOptions<Source>, "submissionId">,
    WantedAnswer {
  readonly fingerprint: ((source: Source) => unknown) | undefined;
  /** The members of the body that the default content leaves out; `undefined` without the option. */
  readonly except: readonly string[] | undefined;
  readonly key: "optional" | "required" | "ignored";
  readonly retainMs: number;
  readonly store: StorePolicy;
  readonly waitMs: number;
  /** Has been validated for use in a header. */
  readonly docs: string | undefined;
  readonly acquireTimeoutMs: number;
}

/** The option names, as keys of objects: the compiler then reports an option that is missing. */
const guardNames = {
  ...{ lock: 1, userId: 1, onAnonymous: 1, onContended: 1, onUnavailable: 1, skip: 1 },
  ...{ idempotency: 1, cooldownMs: 1, onKeyMissing: 1, onMismatch: 1, onReplay: 1 },
} satisfies Record<keyof GuardOptions<never, never>, 1>;

const idempotencyNames = {
  ...{ key: 1, submissionId: 1, fingerprint: 1, retainMs: 1, store: 1 },
  ...{ replayHeaders: 1, maxBodyBytes: 1, waitMs: 1, docs: 1 },
} satisfies Record<keyof IdempotencyOptions<never>, 1>;

export function resolveGuardOptions<Source, Args extends unknown[]>(
  options: GuardOptions<Source, Args>,
  adapter: Adapter<Source, Args>,
  ...ownNames: readonly string[]
): ResolvedGuardOptions<Source, Args> {
  checkOptionNames("submitGuard", options, [...Object.keys(guardNames), ...ownNames]);
  const { lock, userId, skip, cooldownMs = 0, onAnonymous, onContended, onUnavailable } = options;
  const { onKeyMissing, onMismatch, onReplay } = options;
  if (!isSubmitLock(lock)) {
    const came = hasMembers(lock, ["attach"]) ? "a store" : describe(lock);
    throw new InvalidOptionError(
      `lock: expected a SubmitLock, got ${came}. Write new SubmitLock({ store }): in a test with new MemoryStore(), over a store of your own with a class that implements LockStore`,
    );
  }
  if (typeof userId !== "function") {
    throw invalidOption("userId", "a function that returns the user's id", userId);
  }
  const functions = { skip, onContended, onKeyMissing, onMismatch, onReplay };
  for (const [name, value] of Object.entries(functions)) checkFunction(name, value);
  checkFunction("onAnonymous", onAnonymous, "reject", "proceed");
  checkFunction("onUnavailable", onUnavailable, "reject", "proceed");
  checkMs("cooldownMs", cooldownMs, 0, longestCooldownMs);
  if (cooldownMs > 0) lock.requireRecords("cooldownMs");
  let idempotency: ResolvedIdempotency<Source> | undefined;
  if (options.idempotency !== undefined) {
    const { acquireTimeoutMs } = lock.requireRecords("idempotency");
    idempotency = resolveIdempotencyOptions(options.idempotency, acquireTimeoutMs);
  }
  const answers = { ...functions, onAnonymous, onUnavailable };
  return { lock, userId, idempotency, cooldownMs, anonymousAtFirst: 0, ...answers, ...adapter };
}

export function resolveIdempotencyOptions<Source>(
  options: IdempotencyOptions<Source>,
  acquireTimeoutMs: number,
): ResolvedIdempotency<Source> {
  checkOptionNames("idempotency", options, Object.keys(idempotencyNames));
  const { key = "optional", store = "success", maxBodyBytes = 65_536, waitMs = 5_000 } = options;
  if (key !== "optional" && key !== "required" && key !== "ignored") {
    throw invalidOption("idempotency.key", '"optional", "required" or "ignored"', key);
  }
  checkFunction("idempotency.submissionId", options.submissionId);
  const { fingerprint } = options;
  if (key === "ignored" && options.submissionId === undefined) {
    throw new InvalidOptionError(
      'idempotency: expected submissionId beside key: "ignored", got none, so nothing would identify a submission',
    );
  }
  checkFunction("idempotency.store", store, "success", "final");
  if (!Number.isInteger(maxBodyBytes) || maxBodyBytes < 0 || maxBodyBytes > 1_048_576) {
    const expected = "a whole number of bytes from 0 to 1048576";
    throw invalidOption("idempotency.maxBodyBytes", expected, maxBodyBytes);
  }
  return {
    key,
    submissionId: options.submissionId,
    fingerprint: typeof fingerprint === "function" ? fingerprint : undefined,
    except: typeof fingerprint === "function" ? undefined : resolveExcept(fingerprint),
    retainMs: resolveRetainMs("idempotency.retainMs", options.retainMs, acquireTimeoutMs),
    store,
    storedHeaders: resolveStoredHeaders(options.replayHeaders),
    maxBodyBytes,
    waitMs: checkMs("idempotency.waitMs", waitMs, 0, longestRepeatWaitMs),
    docs: resolveDocs(options.docs),
    acquireTimeoutMs,
  };
}

function resolveExcept(fingerprint: unknown): readonly string[] | undefined {
  if (fingerprint === undefined) return undefined;
  const option = "idempotency.fingerprint";
  if (!hasMembers(fingerprint, ["except"])) {
    throw invalidOption(option, 'a function or { except: ["member"] }', fingerprint);
  }
  checkOptionNames(option, fingerprint, ["except"]);
  const { except } = fingerprint as { except: unknown };
  const expected = "an array with the names of top-level members of the body";
  if (!Array.isArray(except)) throw invalidOption(`${option}.except`, expected, except);
  for (const name of except) {
    if (typeof name !== "string") throw invalidOption(`${option}.except`, expected, name);
  }
  return [...except];
}

/** Returns the `URL.href` form, which has no character that could end a `Link` or a header line. */
function resolveDocs(docs: unknown): string | undefined {
  if (docs === undefined) return undefined;
  const url = typeof docs === "string" && URL.canParse(docs) ? new URL(docs) : undefined;
  if (url?.protocol === "https:" || url?.protocol === "http:") return url.href;
  throw invalidOption("idempotency.docs", "an absolute http or https URL", docs);
}

function checkFunction(name: string, value: unknown, ...words: readonly unknown[]): void {
  if (value === undefined || typeof value === "function" || words.includes(value)) return;
  const expected = words.map((word) => `"${word}"`).join(", ");
  throw invalidOption(name, words.length > 0 ? `${expected} or a function` : "a function", value);
}
