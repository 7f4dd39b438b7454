import { isSubmitLockError } from "../../../../src/errors.ts";
import type { CompleteOutcome, ReleaseOutcome } from "../../../../src/lock/channels.ts";
import type { Lease, SubmissionAttempt } from "../../../../src/lock/lease.ts";
import type { StoredAnswer } from "../../../../src/lock/record.ts";
import type { LookUp } from "../../../../src/lock/repeats.ts";
import type { WrittenCopy } from "../network/surroundings.ts";
import {
  type CallEntry,
  codesOf,
  entriesOf,
  isAcquire,
  isGathered,
  isGrant,
  nameOf,
  type ScriptName,
} from "../scripts.ts";
import type { SimulatedProcess } from "../world.ts";
import { slackMs, Watch } from "./invariants.ts";
import { lockValue, type Owner, type Tenure } from "./owners.ts";
import type { Kept } from "./record-watch.ts";

/** What the server executes at the moment. */
export interface Execution {
  readonly copy: WrittenCopy;
  readonly name: ScriptName;
  readonly entries: readonly CallEntry[];
  /** The keys that it has set or deleted, and the owner id that was there last. */
  readonly touched: Map<string, string>;
}

/** Watches every script that the server executes: what it is about, and what it says in the end. */
export class Executions extends Watch {
  current: Execution | undefined;

  /** The server executes a copy: `run` does it. */
  watch(copy: WrittenCopy, run: () => unknown): unknown {
    const name = nameOf(copy.script);
    const entries = entriesOf(name, copy.keys, copy.args);
    const execution = { copy, name, entries, touched: new Map<string, string>() };
    // Whatever stands now stood before this script began.
    const stood = entries.map(({ record }) => record && this.world.recordWatch.standing(record));
    const held = entries.map(({ lock = "" }) => this.world.server.look(lock)?.value);
    this.current = execution;
    let reply: unknown;
    try {
      reply = run();
    } catch (error) {
      this.#failed(execution, String(error));
      if (isGathered(copy.script) && String(error).includes("non local key")) {
        this.world.broken("refused", `one entry has failed a whole ${name}`);
      }
      throw error;
    } finally {
      this.current = undefined;
    }
    for (const [at, code] of codesOf(name, reply).entries()) {
      const entry = entries[at] as CallEntry;
      if (code instanceof Error) this.#failed(execution, String(code));
      else if (["complete", "record"].includes(name)) {
        this.world.completeWatch.executed(entry.ownerId ?? "");
      }
      const record = stood[at];
      if (record && isAcquire(name) && isGrant(code)) {
        this.world.broken(
          "once",
          `${this.#nameOf(entry)} was granted ${entry.lock}, and ${record.owner.name} had recorded its answer`,
        );
      }
      this.#checkUntouched(execution, entry, code);
      this.#checkRefused(execution, entry, code);
      this.#checkCooldown(execution, entry, code);
      this.#checkFreed(execution, entry, held[at], code);
    }
    return reply;
  }

  #failed({ name, entries }: Execution, error: string): void {
    const { owners, server } = this.world;
    if (error.includes("user_script")) this.world.broken("script", error);
    const isEnding = ["release", "tell", "complete", "record", "free"].includes(name);
    // An engine that looks at every write may refuse a record; a deletion it may not.
    const isRefusable = server.memory === "strictly full" && !["release", "tell"].includes(name);
    if (isEnding && !isRefusable && error.includes("OOM")) {
      this.world.broken("full", `a ${name} was refused: ${error}`);
    }
    if (isEnding && error.includes("NOPERM")) {
      for (const { ownerId = "" } of entries) {
        const owner = owners.get(ownerId);
        if (owner !== undefined) owner.wasForbidden = true;
      }
    }
  }

  /** Rule 18: where an acquire was not granted, its owner id is nowhere, and no record was touched. */
  #checkUntouched({ name, touched, copy }: Execution, entry: CallEntry, code: unknown): void {
    if (!isAcquire(name)) return;
    const isOnlyLook = Number(copy.args[0]) === 0;
    const { lock = "", record = "", ownerId } = entry;
    const isTaken = touched.get(lock) === ownerId && (isOnlyLook || !isGrant(code));
    if (!isTaken && !touched.has(record)) return;
    this.world.broken(
      "untouched",
      `${this.#nameOf(entry)} was told ${String(code)}, and ${isTaken ? lock : record} was changed`,
    );
  }

  /** Rule 23: where a node has refused an entry, it has executed nothing of it. */
  #checkRefused({ entries, name, touched }: Execution, entry: CallEntry, code: unknown): void {
    const { lock = "", record = "" } = entry;
    if (!(code instanceof Error) || !(touched.has(lock) || touched.has(record))) return;
    // Another entry may have written: one that deletes the key, which then is elsewhere for this one.
    if (entries.some((other) => other !== entry && other.lock === lock)) return;
    this.world.broken("refused", `a ${name} was told ${code}, and has written`);
  }

  /** Rule 19: who has let go of the lock has left the cooldown that was asked for, and no retire does. */
  #checkCooldown({ name, copy }: Execution, entry: CallEntry, code: unknown): void {
    const { owners, server } = this.world;
    const { toldAt = Number.POSITIVE_INFINITY, recordUntil } =
      owners.get(entry.ownerId ?? "") ?? {};
    // Whether or not there is a lock that it could replace. (A complete in two steps has late copies.)
    const { lock = "", ownerId, cooldownUntilMs = 0 } = entry;
    // What was refused (rule 23, or NOSCRIPT) is written again, also where another request was answered
    // before.
    const isNew = copy.sentAt > toldAt && !server.hasMoved && !server.hasForgotten;
    if (["release", "tell"].includes(name) && cooldownUntilMs > 0 && !recordUntil && isNew) {
      this.world.broken("cooldown", `a retire of ${this.#nameOf(entry)} asks for a cooldown`);
    }
    if (!["release", "tell", "complete"].includes(name) || code !== 1) return;
    const { isMoving, memory, nowMs } = server;
    // A full server refuses to write over the lock, and one that moves the slot to write behind it.
    const isRefused = memory === "strictly full" || (memory === "full" && isMoving);
    if (cooldownUntilMs <= nowMs || isRefused) return;
    if (server.look(lock)?.value === `cooldown:${ownerId}`) return;
    this.world.broken("cooldown", `${this.#nameOf(entry)} has let go and left no cooldown`);
  }

  /** Rule 19: its own tombstone is called freed, and no other. */
  #checkFreed({ name }: Execution, entry: CallEntry, value: unknown, code: unknown): void {
    if (!["extend", "release", "tell"].includes(name) || typeof code !== "number") return;
    const parsed = lockValue(value);
    const isOwn = parsed.kind === "freed" && parsed.ownerId === entry.ownerId;
    if (isOwn === (code === -2)) return;
    this.world.broken(
      "freed",
      `the ${name} of ${this.#nameOf(entry)} was told ${code} by ${value}`,
    );
  }

  #nameOf({ ownerId = "" }: CallEntry): string {
    return this.world.owners.get(ownerId)?.name ?? ownerId;
  }
}

/** An attempt that was answered, and not acquired. */
type Refusal = Exclude<SubmissionAttempt, { outcome: "acquired" | "unavailable" }>;

/** What is asked of the answers that callers get: whether they are true, and whether a better one was possible. */
export class AnswerChecks extends Watch {
  /** Somebody else was there as the answer has it, at some time since. */
  checkJustified(call: number, attempt: Refusal, from: number): void {
    const owner = this.world.ownersOf(call).at(-1);
    if (owner === undefined || this.#isTrue(owner, attempt, from)) return;
    const { outcome } = attempt;
    this.world.broken(
      "justified",
      `${owner.name} was called ${outcome} at ${owner.key}, and nobody had given a reason`,
    );
  }

  /** Rule 25: it was told by a run of the same content that ended while it waited. */
  checkTold({ submission, key, ...owner }: Owner, { body }: StoredAnswer, from: number): void {
    const told = this.world.recordWatch
      .told(this.world.recordKeyOf({ submission, key, ...owner }))
      .find((each) => each.owner.name === Buffer.from(body ?? "").toString());
    const isOther = told?.owner.submission?.fingerprint !== submission?.fingerprint;
    const isNone = [told?.owner.submission?.fingerprint, submission?.fingerprint].includes(
      "-".repeat(22),
    );
    // A failover or a late copy may bring back the lock of a run that has told its answer, and so
    // those who wait for it.
    const { owners, server } = this.world;
    const isLate =
      told !== undefined &&
      told.at < from &&
      server.term === 0 &&
      !owners.wasAtKey(told.owner, from);
    if (told !== undefined && !isLate && (!isOther || isNone)) return;
    this.world.broken(
      "waited",
      `${owner.name} was told what ${told?.owner.name} has said at ${told?.at}`,
    );
  }

  checkLookUp(owner: Owner, found: LookUp, from: number): void {
    const inFlight = { outcome: "contended", expiresInMs: 0, sameSubmission: true } as const;
    const claim = found.outcome === "in-flight" ? inFlight : found;
    // What nobody has seen needs no reason, unless it was there all the time.
    const isTrue =
      claim.outcome === "unknown" ||
      (found.outcome === "in-flight" && this.world.completeWatch.mayBeKnownTo(owner)) ||
      (claim.outcome === "none"
        ? !this.#stoodSince(owner, from)
        : this.#isTrue(owner, claim, from));
    if (isTrue) return;
    this.world.broken("justified", `a look-up was told ${found.outcome}, and it was not so`);
  }

  #isTrue(owner: Owner, attempt: Refusal, from: number): boolean {
    switch (attempt.outcome) {
      case "contended":
        return this.#others(owner, from).some(({ value }) => {
          if (attempt.isCooldown === true) return value.kind === "cooldown";
          if (attempt.sameSubmission !== true) return true;
          return value.kind === "lock" && value.submission === owner.submission?.id;
        });
      case "completed":
        return this.#recorded(owner, from).some(
          (kept) => !differ(kept, owner) && isAnswerOf(attempt.answer, kept),
        );
      case "mismatched":
        if (!attempt.inFlight) {
          return this.#recorded(owner, from).some((kept) => differ(kept, owner));
        }
        return this.#others(owner, from).some(
          ({ value }) =>
            value.kind === "lock" &&
            value.submission === owner.submission?.id &&
            differ(value, owner),
        );
    }
  }

  #others({ key, attempt }: Owner, from: number): Tenure[] {
    return this.world.owners
      .tenures(key)
      .filter(({ owner, to }) => owner.attempt !== attempt && (to === undefined || to >= from));
  }

  #recorded(owner: Owner, from: number): readonly Kept[] {
    return this.world.recordWatch.since(this.world.recordKeyOf(owner), from);
  }

  #stoodSince(owner: Owner, from: number): boolean {
    const standing = this.world.recordWatch.standing(this.world.recordKeyOf(owner));
    return standing !== undefined && standing.from < from;
  }

  /** Rules 15, 16 and 20. */
  checkGrant(lease: Lease, owner: Owner): void {
    const { owners, server } = this.world;
    if (owner.serverLife === server.life && !owner.tokens.includes(Number(lease.fencingToken))) {
      this.world.broken(
        "fenced",
        `${owner.name} has token ${lease.fencingToken}, and its key ${owner.tokens}`,
      );
    }
    if (owner.submission === undefined) return;
    // Also where the lock was taken first and the record looked for afterwards.
    const standing = this.world.recordWatch.standing(this.world.recordKeyOf(owner));
    const taken = owners.tenures(owner.key).findLast((tenure) => tenure.owner === owner);
    if (standing === undefined || taken === undefined || standing.from >= taken.from) return;
    this.world.broken(
      "once",
      `${owner.name} was acquired, and ${standing.owner.name} had recorded its answer`,
    );
  }

  checkResolved(
    process: SimulatedProcess,
    from: number,
    cause: Error,
    owner: Owner | undefined,
  ): void {
    if (process.closeTimeoutMs !== undefined || process.client.status === "end") return;
    if (isSubmitLockError(cause) && cause.code === "SUBMIT_LOCK_MISCONFIGURED") return;
    const { schedule } = this.world;
    const { acquireTimeoutMs, commandTimeoutMs } = schedule.times;
    const roundTripMs = 2 * process.longestLatencyMs;
    // Silence, a second connection in three round trips, and a copy on it, with its backoff.
    const neededMs = 1.01 * commandTimeoutMs + 2 * (4 * roundTripMs) + slackMs;
    if (acquireTimeoutMs < neededMs) return;
    // A step of the clock behind a deadline costs a try, as a lost answer does: both are too much.
    const wasSetBack = this.world.server.setBackAt >= from;
    if (!this.#wasResolvable(process, from, wasSetBack ? 1 : 0)) return;
    this.world.broken("resolved", `${owner?.name} is unavailable: ${cause.message}`);
  }

  checkTruthful(owner: Owner, outcome: ReleaseOutcome, validUntil: number, began: number): void {
    const { server, owners } = this.world;
    // What a restarted server knew is not known to anybody, nor is an extend that a failover has lost.
    if (owner.serverLife !== server.life || owner.securedUntil !== undefined) return;
    if (outcome === "freed" && !owner.wasFreed) {
      this.world.broken("truthful", `${owner.name} was called freed, and nobody had freed it`);
    }
    const deleted = owner.deletedAt.some((at) => at >= began);
    const isAtKey = String(server.look(owner.key)?.value).startsWith(owner.id);
    // It may have run out while the release was on its way: no one can tell that from a deletion.
    const ranOut = !isAtKey && owners.wasAtKey(owner, began);
    if (outcome === "released" && !deleted && !ranOut) {
      this.world.broken(
        "truthful",
        `${owner.name} was called released, and its key was not deleted`,
      );
    }
    const isGone = outcome === "gone" || outcome === "foreign";
    // Who believes that it may have run out, as its clock was set forward, cannot tell that either.
    const wasSet = Number(owner.process?.machine.setForwardAt) >= began;
    if (isGone && deleted && !wasSet && this.world.loop.now < validUntil) {
      this.world.broken("truthful", `${owner.name} was called ${outcome}, and its key was deleted`);
    }
    // A cooldown names whose it is, however long ago the lease ended.
    if (isGone && server.look(owner.key)?.value === `cooldown:${owner.id}`) {
      this.world.broken(
        "truthful",
        `${owner.name} was called ${outcome}, and has left its cooldown`,
      );
    }
  }

  checkUnconfirmed(owner: Owner, process: SimulatedProcess, began: number): void {
    if (process.closeTimeoutMs !== undefined || process.client.status === "end") return;
    if (owner.wasForbidden || !this.#wasResolvable(process, began)) return;
    this.world.broken("resolved", `the complete of ${owner.name} is unconfirmed`);
  }

  /** @param others what has cost a try, and is not in the health of the process. */
  #wasResolvable({ health }: SimulatedProcess, from: number, others = 0): boolean {
    const { loop, schedule } = this.world;
    // A WAIT may be answered 100 ms late: before that nobody takes another connection, and the budgets
    // here are shorter.
    const most = schedule.replica === undefined ? 1 : 0;
    return health.wasResolvable(from, loop.now, Math.max(0, most - others));
  }

  /**
   * Of two that were completed, one at most has the record: so the other hears of it, unless it was
   * too late for one.
   */
  checkCompleted(owner: Owner, outcome: CompleteOutcome, began: number): void {
    const { server } = this.world;
    const key = this.world.recordKeyOf(owner);
    const own = this.world.recordWatch.history(key).filter((kept) => kept.owner === owner);
    const isOwn = own.length > 0;
    const others = this.world.recordWatch.since(key, began).filter((kept) => kept.owner !== owner);
    // A later copy may write the own record when the other one, which the answer is about, is over.
    const isOtherFirst = own.every(
      ({ from, serverLife, isForgotten, isLost }) =>
        isForgotten ||
        isLost ||
        serverLife !== server.life ||
        others.some((other) => other.from < from),
    );
    const isTrue = {
      recorded: isOwn,
      late: isOwn,
      duplicate: isOtherFirst && others.length > 0,
      // Nothing is kept, whether or not an earlier copy had been in time.
      expired: server.nowMs + server.setBackMs >= Number(owner.recordUntil),
      unconfirmed: true,
    }[outcome];
    if (isTrue) return;
    this.world.broken("truthful", `${owner.name} was called ${outcome}, and is not`);
  }
}

function isAnswerOf({ body }: StoredAnswer, { owner }: Kept): boolean {
  return body !== undefined && Buffer.from(body).toString() === owner.name;
}

function differ({ fingerprint }: { fingerprint: string }, { submission }: Owner): boolean {
  const other = submission?.fingerprint;
  const none = "-".repeat(22);
  return fingerprint !== other && fingerprint !== none && other !== none;
}
