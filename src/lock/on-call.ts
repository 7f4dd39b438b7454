import { InvalidOptionError, LockUnavailableError } from "../errors.ts";
import { performance } from "../time.ts";
import { pauseBeforeRetry, within } from "../timers.ts";
import { atCaller, checkOptionNames, invalidOption, isError, longestBy } from "../validation.ts";
import { Acquiring } from "./acquire.ts";
import { forgetChannel } from "./channels.ts";
import { type SubmissionAttempt, UserLease } from "./lease.ts";
import { completedOf, ownerOf, type StoredAnswer } from "./record.ts";
import type { OnReport } from "./release.ts";
import {
  type CallerCommand,
  isNoAnswer,
  type LockRuntime,
  publish,
  toLockError,
  write,
} from "./runtime.ts";
import type {
  AcquireReply,
  ForgetReply,
  FreeReply,
  FreeResult,
  Inspection,
  InspectReply,
  LockCommand,
  LockStore,
  NoAnswer,
  OwnedReply,
} from "./store.ts";
import { encodeKeyPart } from "./submit-key.ts";

/** Options of `free`. */
export interface FreeOptions {
  /** The id that `inspect` returned: at least 8 hex digits. A key with another id is left alone. */
  readonly id: string;
  /** The name of the person who frees, for others who look at the lock. 1 to 64 characters. */
  readonly by: string;
  /** Why, such as a ticket's number. 1 to 200 characters. */
  readonly reason: string;
  /**
   * Deletes the key at once. A living holder is notified by its next extend, up to `ttlMs` / 3
   * later; if no extend is due (near `maxHoldMs`), at the end of its lease, up to `ttlMs` later.
   * Until then two submissions may run at a time. @defaultValue false
   */
  readonly now?: boolean | undefined;
}

/** Options of `forget`. */
export interface ForgetOptions {
  /** The submission's 22 characters: `submission.id`, or as `submit-lock answers` prints them. */
  readonly id: string;
  /** The name of the person who deletes the answer, for the audit line. 1 to 64 characters. */
  readonly by: string;
  /** Why, such as a ticket's number. 1 to 200 characters. */
  readonly reason: string;
}

/**
 * The outcome of a `forget`. `forgotten`: the record with this answer is gone, and the next repeat
 * runs. `none`: no answer was kept. `in-flight`: the submission is under way; nothing was done.
 * `changed`: another run has recorded its answer after the record was read; nothing was done.
 */
export type ForgetResult =
  | { readonly outcome: "forgotten"; readonly answer: StoredAnswer; readonly ageMs: number }
  | { readonly outcome: "none" }
  | { readonly outcome: "in-flight" }
  | { readonly outcome: "changed" };

/** How many operations of one `SubmitLock` are under way in this process. */
export interface LockStats {
  /** Attempts that have not ended. */
  readonly attempting: number;
  /** Leases that are not lost, and for which neither `release` nor `complete` was called. */
  readonly held: number;
  /** Releases, retires and completes under way, except releases that the store denies. */
  readonly retiring: number;
  /** Requests and calls of `once` that wait for a run of their submission; at most 1 000 in all. */
  readonly waiting: number;
  /** The age of the oldest lease that is held, in milliseconds; 0 without one. */
  readonly oldestHeldMs: number;
}

/** Options of `check`. */
export interface CheckOptions {
  /**
   * Whether a record is written as well.
   * @defaultValue true after a guard with `idempotency` or `cooldownMs`, or any submission
   */
  readonly submissions?: boolean | undefined;
}

export async function inspect(store: LockStore, command: LockCommand): Promise<Inspection> {
  return (await ask<InspectReply>(store, "inspect", command, {})).found;
}

export async function free(
  store: LockStore,
  command: LockCommand,
  options: FreeOptions,
): Promise<FreeResult> {
  checkOptionNames("free", options, ["id", "by", "reason", "now"]);
  const { id, now = false } = options;
  // Up to 40 characters: an owner id has 36, and the SHA-1 of a foreign value 40.
  if (typeof id !== "string" || !/^[0-9a-f]{8}[0-9a-f-]{0,32}$/i.test(id)) {
    throw invalidOption("id", "at least 8 hex digits, as inspect gives them", id);
  }
  if (typeof now !== "boolean") throw invalidOption("now", "true or false", now);
  const asked = { id: id.toLowerCase(), ...notesOf(options), now };
  return (await ask<FreeReply>(store, "free", command, asked)).result;
}

/** Reads a record and deletes that one alone. @param recordsOf returns the places to look in. */
export async function forget(
  { seal, store }: LockRuntime,
  recordsOf: (id: string) => readonly CallerCommand[],
  options: ForgetOptions,
): Promise<ForgetResult> {
  checkOptionNames("forget", options, ["id", "by", "reason"]);
  const { id, by, reason } = options;
  const commands = recordsOf(id);
  notesOf(options);
  for (const command of commands) {
    const found = await ask<AcquireReply>(store, "acquire", command, { onlyLooks: true });
    if (found.kind === "contended" && found.sameSubmission) return { outcome: "in-flight" };
    if (found.kind !== "completed") continue;
    const { answer, ageMs } = completedOf(found, command, seal);
    const run = ownerOf(found.record);
    const { kind } = await ask<ForgetReply>(store, "forget", command, { run });
    if (kind === "inFlight") return { outcome: "in-flight" };
    if (kind === "changed") return { outcome: "changed" };
    // `absent` counts, too: an earlier copy has deleted the record, or the record has just run out.
    publish(forgetChannel, command, { submission: command.identity?.id, by, reason, ageMs });
    return { outcome: "forgotten", answer, ageMs };
  }
  return { outcome: "none" };
}

export function statsOf({
  active,
  completes,
  releases,
  waiting,
  watchdogs,
}: LockRuntime): LockStats {
  const now = performance.now();
  let held = 0;
  let oldest = now;
  for (const lease of watchdogs.armed()) {
    if (!lease.isHeld) continue;
    held++;
    oldest = Math.min(oldest, lease.clock.startedAt);
  }
  return {
    attempting: active.count - held,
    held,
    retiring: completes.count + releases.count,
    waiting: waiting.count,
    oldestHeldMs: now - oldest,
  };
}

/** Takes, extends and ends a throwaway lock: if `completes`, by a complete, else by a release. */
export async function check(
  runtime: LockRuntime,
  command: CallerCommand,
  completes: boolean,
): Promise<void> {
  const { times } = command;
  const attempt = await new Promise<SubmissionAttempt>((resolve) =>
    new Acquiring(runtime, command, resolve).begin(),
  );
  if (attempt.outcome === "unavailable") throw atCaller(attempt.cause);
  if (attempt.outcome !== "acquired") {
    throw new LockUnavailableError(
      `check() could not take its test lock: ${attempt.outcome}. If there is a keyOf, it must return a key of its own for each id`,
    );
  }
  const held = UserLease.heldOf(attempt.lease);
  // 1 ms more than the key's life: otherwise the extend may write nothing, and so test nothing.
  const longer = { ...command, times: { ...times, ttlMs: times.ttlMs + 1 } };
  const extended = await ask<OwnedReply>(runtime.store, "extend", longer, {}).catch(
    (error: Error) => error,
  );
  const ending = new Promise<Parameters<OnReport<string>>>((resolve) => {
    const ended: OnReport<string> = (...result) => resolve(result);
    held.orderEnds?.();
    if (completes) held.complete({ status: 204 }, 0, ended);
    else held.release(ended);
  });
  if (isError(extended)) throw extended;
  const whyGone =
    "Redis lost or evicted the lock's key, or another program wrote to it. Set maxmemory-policy noeviction, and a keyPrefix that no other program uses";
  if (extended.kind !== "done") {
    throw new LockUnavailableError(
      `check() could not extend its test lock (${extended.kind}): ${whyGone}`,
    );
  }
  // An unanswered release or complete is sent again for longer than a readiness check can wait.
  const ended = await within(times.acquireTimeoutMs, ending);
  const [outcome = "unconfirmed", cause] = ended ?? [];
  if (outcome === "released" || outcome === "recorded") return;
  if (outcome === "unconfirmed") throw cause ?? toLockError(undefined, times.acquireTimeoutMs);
  throw new LockUnavailableError(
    `check() could not release its test lock (${outcome}): ${whyGone}`,
  );
}

/**
 * Sends the same command until one request is answered or rejected, up to `acquireTimeoutMs`. Two
 * requests may be executed: a second look, inspect or extend changes nothing; a second free or
 * forget finds the result of the first, or a newer lock or record.
 */
async function ask<Reply extends { readonly kind: string }>(
  store: LockStore,
  method: "acquire" | "extend" | "inspect" | "free" | "forget",
  command: LockCommand,
  more: object,
): Promise<Exclude<Reply, NoAnswer>> {
  if (store[method] === undefined) {
    throw new InvalidOptionError(
      `${method}: expected a lock whose store has it (RedisStore, MemoryStore, or a LockStore with ${method}), got a store without ${method}`,
    );
  }
  const { acquireTimeoutMs, commandTimeoutMs } = command.times;
  const endsAt = performance.now() + acquireTimeoutMs;
  let settle!: (answer: Exclude<Reply, NoAnswer>) => void;
  const answered = new Promise<Exclude<Reply, NoAnswer>>((resolve) => {
    settle = resolve;
  });
  let lastFailure: NoAnswer | undefined;
  let mayBeDone = false;
  for (let round = 0; performance.now() < endsAt; round++) {
    const failed = new Promise<NoAnswer>((fail) => {
      const answer = (reply: Reply) =>
        isNoAnswer(reply) ? fail(reply) : settle(reply as Exclude<Reply, NoAnswer>);
      write(store, method, { ...more, command, deadlineMs: undefined, answer } as never);
    });
    // Rule 10: a timer of our own bounds the wait.
    const waitMs = Math.min(commandTimeoutMs, endsAt - performance.now());
    const reply = await within(waitMs, Promise.race([answered, failed]));
    mayBeDone ||= reply === undefined || reply.kind === "unknown";
    if (reply === undefined) continue;
    if (!isNoAnswer(reply)) return reply;
    lastFailure = reply;
    if (reply.kind === "rejected") break;
    await pauseBeforeRetry(round, endsAt);
  }
  const cause = toLockError(lastFailure, acquireTimeoutMs);
  const effect = { free: "the lock may have been freed", forget: "the record may be gone" };
  if (!mayBeDone || !(method === "free" || method === "forget")) throw cause;
  throw new LockUnavailableError(`${cause.message} (${effect[method]})`, { cause });
}

/** Checks and percent-encodes who and why, so that no field of a tombstone holds a colon. */
function notesOf({ by, reason }: Pick<FreeOptions, "by" | "reason">) {
  const checked = (name: string, text: unknown, maxLength: number): string => {
    const isAllowed = typeof text === "string" && /^[^\p{Cc}\p{Cs}]+$/u.test(text);
    if (isAllowed && text.length <= maxLength) return encodeKeyPart(text);
    throw invalidOption(name, `1 to ${maxLength} characters without control characters`, text);
  };
  return { by: checked("by", by, longestBy), reason: checked("reason", reason, 200) };
}
