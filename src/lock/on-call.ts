import { InvalidOptionError } from "../errors.ts";
import { checkOptionNames, invalidOption } from "../validation.ts";
import { within } from "../within.ts";
import type { LeaseRuntime } from "./held-lease.ts";
import type { FreeOptions, FreeResult, Inspection, LockStats } from "./inspection.ts";
import { toLockError } from "./no-answer.ts";
import { isNoAnswer } from "./replies.ts";
import type { LockCommand, LockRequest, LockStore, LockTimes, NoAnswer } from "./store.ts";
import { encodeKeyPart } from "./submit-key.ts";
import { pauseBeforeRetry } from "./with-lock.ts";

/** @throws LockUnavailableError, LockMisconfiguredError, InvalidOptionError, as a rejection. */
export async function inspect(store: LockStore, command: LockCommand): Promise<Inspection> {
  if (store.inspect === undefined) throw missing("inspect");
  const { found } = await ask(store.inspect, command, {});
  return found;
}

/** @throws LockUnavailableError, LockMisconfiguredError, InvalidOptionError, as a rejection. */
export async function free(
  store: LockStore,
  command: LockCommand,
  options: FreeOptions,
): Promise<FreeResult> {
  if (store.free === undefined) throw missing("free");
  const { result } = await ask(store.free, command, resolveFree(options));
  return result;
}

export function statsOf({ active, completes, releases, watchdogs }: LeaseRuntime): LockStats {
  const now = performance.now();
  let held = 0;
  let oldest = now;
  for (const lease of watchdogs.armed()) {
    if (!lease.isHeld) continue;
    held++;
    oldest = Math.min(oldest, lease.startedAt);
  }
  return {
    attempting: active.count - held,
    held,
    retiring: completes.count + releases.count,
    oldestHeldMs: now - oldest,
  };
}

/**
 * Sends the same request until one of them is answered. It is bounded as an attempt is, and may be
 * executed twice: a second look harms nobody, and a second free answers as the first.
 */
async function ask<Answer extends { readonly kind: string }, More extends object>(
  write: (request: LockRequest<Answer | NoAnswer> & More) => void,
  command: LockCommand,
  more: More,
): Promise<Exclude<Answer, NoAnswer>> {
  const { acquireTimeoutMs, commandTimeoutMs }: LockTimes = command.times;
  const endsAt = performance.now() + acquireTimeoutMs;
  let settle!: (answer: Exclude<Answer, NoAnswer>) => void;
  // Of whichever request: one that is slow may be answered after the next was sent.
  const answered = new Promise<Exclude<Answer, NoAnswer>>((resolve) => {
    settle = resolve;
  });
  let lastFailure: NoAnswer | undefined;
  for (let round = 0; performance.now() < endsAt; round++) {
    const failed = new Promise<NoAnswer>((fail) => {
      const answer = (reply: Answer | NoAnswer) => {
        if (isNoAnswer(reply)) fail(reply);
        else settle(reply as Exclude<Answer, NoAnswer>);
      };
      write({ ...more, command, deadlineMs: undefined, answer });
    });
    // Rule 10.
    const waitMs = Math.min(commandTimeoutMs, endsAt - performance.now());
    const reply = await within(waitMs, Promise.race([answered, failed]));
    if (reply === undefined) continue;
    if (!isNoAnswer(reply)) return reply;
    lastFailure = reply;
    // Asking again would only delay the answer.
    if (reply.kind === "rejected") break;
    await pauseBeforeRetry(round, endsAt);
  }
  throw toLockError(lastFailure, acquireTimeoutMs);
}

function resolveFree(options: FreeOptions) {
  checkOptionNames("free", options, ["id", "by", "reason", "now"]);
  const { id, by, reason, now = false } = options;
  // An owner id has 36 characters, and a SHA-1 40.
  if (typeof id !== "string" || !/^[0-9a-f]{8}[0-9a-f-]{0,32}$/i.test(id)) {
    throw invalidOption("id", "at least 8 hex digits, as inspect gives them", id);
  }
  if (typeof now !== "boolean") throw invalidOption("now", "true or false", now);
  return { id, by: checkText("by", by, 64), reason: checkText("reason", reason, 200), now };
}

/** Percent-encoded, so that no field of a tombstone holds a colon. */
function checkText(name: string, text: unknown, maxLength: number): string {
  if (
    typeof text !== "string" ||
    text.length < 1 ||
    text.length > maxLength ||
    /[\p{Cc}\p{Cs}]/u.test(text)
  ) {
    throw invalidOption(name, `1 to ${maxLength} characters without control characters`, text);
  }
  return encodeKeyPart(text);
}

function missing(method: "inspect" | "free"): InvalidOptionError {
  return new InvalidOptionError(
    `${method}: expected a lock whose store has it (RedisStore, MemoryStore, or a LockStore with ${method}), got a store without ${method}`,
  );
}
