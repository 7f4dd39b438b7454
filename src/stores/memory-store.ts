import type {
  AcquireReply,
  AcquireRequest,
  CompleteReply,
  CompleteRequest,
  ForgetReply,
  ForgetRequest,
  FreeReply,
  FreeRequest,
  FreeResult,
  Inspection,
  InspectReply,
  InspectRequest,
  LockCommand,
  LockRequest,
  LockStore,
  NoAnswer,
  OutlivedOrder,
  OutliveRequest,
  OwnedReply,
  RecordBytes,
  ReleaseRequest,
} from "../lock/store.ts";
import { performance } from "../time.ts";
import { checkOptionNames, invalidOption, ownError, warnOnce } from "../validation.ts";

/**
 * An outage that {@link MemoryStore.play} plays.
 *
 * - `"silent"`: requests are not executed, and never answered.
 * - `"unreachable"`: requests are not sent, and the lock is notified at once.
 * - `"replies-lost"`: requests are executed, and their replies are lost.
 */
export type Outage = "silent" | "unreachable" | "replies-lost";

const outages: readonly (Outage | "none")[] = ["silent", "unreachable", "replies-lost", "none"];
const ofOutage = "MemoryStore plays an outage";

/** A lease, its tombstone or its cooldown. Fields that end in `At` are times of {@link clockMs}. */
interface Entry extends Pick<LockCommand, "holder" | "ownerId" | "submission" | "times"> {
  readonly state: "held" | "freed" | "cooldown";
  readonly fencingToken: number;
  readonly takenAt: number;
  /** Who has freed the lease, and why; both are `""` unless it was freed. */
  readonly by: string;
  readonly reason: string;
  expiresAt: number;
}

/** An answer without its `storeTimeMs`, which `#execute` adds. */
type Untimed<Reply> = Reply extends NoAnswer ? never : Omit<Reply, "storeTimeMs">;

type Kept = { readonly record: RecordBytes; readonly expiresAt: number };

const capacity = 10_000;

/** The store's clock: Unix time, which no step of the process' wall clock changes. */
const clockMs = () => performance.timeOrigin + performance.now();

/**
 * Locks in this process only: for development, demonstrations and unit tests. Two processes do not
 * see each other's locks, so a process warning with the code `SUBMIT_LOCK_MEMORY_STORE` is emitted,
 * once, when `NODE_ENV` is `production`. Keeps no more than the latest 10 000 answers.
 */
export class MemoryStore implements LockStore {
  readonly #entries = new Map<string, Entry>();
  /** The kept answers, by {@link recordKey}. */
  readonly #records = new Map<string, Kept>();
  /** The answers that runs have left for waiting repeats (rule 25), by {@link recordKey}. */
  readonly #told = new Map<string, Kept>();
  /** Orders that may be at work although their locks have ended, by owner id: `inspect` shows them. */
  readonly #outlived = new Map<string, OutliveRequest & { readonly expiresAt: number }>();
  #lastToken = 0;
  #sweepAt = 1_000;
  #outage: Outage | "none" = "none";

  constructor(options: Record<never, never> = {}) {
    checkOptionNames("MemoryStore", options, []);
    if (process.env["NODE_ENV"] !== "production") return;
    warnOnce(
      "SUBMIT_LOCK_MEMORY_STORE",
      "MemoryStore locks within one process only: use RedisStore where more than one process serves",
    );
  }

  /**
   * Plays an outage for a test, from the next request on, even in the middle of an order. `"none"`
   * ends the outage. The store keeps its locks and answers, and leases expire as in any outage.
   * @throws InvalidOptionError for any other value.
   */
  play(outage: Outage | "none"): void {
    if (!outages.includes(outage)) {
      throw invalidOption("outage", outages.map((each) => `"${each}"`).join(", "), outage);
    }
    this.#outage = outage;
  }

  acquire(request: AcquireRequest): void {
    this.#execute<AcquireReply>(request, (now) => {
      const { command, onlyLooks, waitsFor } = request;
      // Rule 16: look for the record before the lock.
      const record = this.#recordOf(command, now);
      if (record !== undefined) {
        const isOther = differs(readHead(record).fingerprint, command.submission?.fingerprint);
        return isOther ? { kind: "mismatched", inFlight: false } : { kind: "completed", record };
      }
      const told = waitsFor && live(this.#told, recordKey(command), now)?.record;
      if (told && readHead(told).ownerId === waitsFor) return { kind: "told", record: told };
      const entry = live(this.#entries, command.key, now);
      if (entry === undefined && onlyLooks) return { kind: "outOfWindow" };
      if (entry === undefined) return { kind: "taken", fencingToken: this.#take(command, now) };
      const { fencingToken } = entry;
      if (isOwned(entry, command.ownerId)) return { kind: "mine", fencingToken };
      return contendedOrMismatched(entry, command.submission, now);
    });
  }

  extend(request: LockRequest<OwnedReply>): void {
    this.#executeIfOwned(request, (entry, now) => {
      entry.expiresAt = Math.max(entry.expiresAt, now + request.command.times.ttlMs);
    });
  }

  release(request: ReleaseRequest): void {
    const letGo = (entry: Entry, now: number): void => {
      this.#free(request, entry, now);
      const { command, told } = request;
      if (told === undefined) return;
      const key = recordKey(command);
      // Delete expired answers, the oldest first, up to the first that has not expired.
      for (const each of this.#told.keys()) if (live(this.#told, each, now)) break;
      this.#told.delete(key);
      this.#told.set(key, { record: told.record, expiresAt: now + told.lifeMs });
    };
    // Rule 8: a cooldown with this owner id proves that an earlier copy of the release wrote it.
    const isDone = ({ state }: Entry) => request.cooldownUntilMs > 0 && state === "cooldown";
    this.#executeIfOwned(request, letGo, isDone);
  }

  complete(request: CompleteRequest): void {
    this.#execute<CompleteReply>(request, (now) => {
      const { command, expiresAtMs, record } = request;
      const entry = live(this.#entries, command.key, now);
      const isHeld = entry !== undefined && isOwned(entry, command.ownerId);
      const prior = this.#recordOf(command, now);
      if (prior === undefined && expiresAtMs > now) {
        const [oldest] = this.#records.keys();
        if (this.#records.size >= capacity && oldest !== undefined) this.#records.delete(oldest);
        this.#records.set(recordKey(command), { record, expiresAt: expiresAtMs });
      }
      if (isHeld) this.#free(request, entry, now);
      // Rule 15: check in this order: this run's own record, the expiry, another run's record.
      if (prior && readHead(prior).ownerId === command.ownerId) return { kind: "recorded" };
      if (expiresAtMs <= now) return { kind: "expired" };
      if (prior !== undefined) return { kind: "duplicate" };
      return { kind: isHeld ? "recorded" : "late" };
    });
  }

  attach(): () => Promise<void> {
    return () => Promise.resolve();
  }

  inspect(request: InspectRequest): void {
    this.#execute<InspectReply>(request, (now) => {
      const found = inspectionOf(live(this.#entries, request.command.key, now), now);
      const outlived = [...this.#outlived.keys()].flatMap((ownerId) => {
        const trace = live(this.#outlived, ownerId, now);
        return trace?.command.key === request.command.key ? outlivedOf(trace, now) : [];
      });
      return { kind: "inspected", found: outlived.length === 0 ? found : { ...found, outlived } };
    });
  }

  outlive(request: OutliveRequest): void {
    this.#execute<OwnedReply>(request, (now) => {
      const { command, lifeMs, trace } = request;
      if (trace) this.#outlived.set(command.ownerId, { ...request, expiresAt: now + lifeMs });
      else this.#outlived.delete(command.ownerId);
      return { kind: "done" };
    });
  }

  free(request: FreeRequest): void {
    this.#execute<FreeReply>(request, (now) => {
      const entry = live(this.#entries, request.command.key, now);
      return { kind: "answered", result: this.#takeAway(request, entry, now) };
    });
  }

  forget(request: ForgetRequest): void {
    this.#execute<ForgetReply>(request, (now) => {
      const { command, run } = request;
      const entry = live(this.#entries, command.key, now);
      if (entry?.state === "held" && entry.submission?.id === command.submission?.id) {
        return { kind: "inFlight" };
      }
      const record = this.#recordOf(command, now);
      if (record === undefined) return { kind: "absent" };
      if (readHead(record).ownerId !== run) return { kind: "changed" };
      this.#records.delete(recordKey(command));
      return { kind: "forgotten" };
    });
  }

  /** Executes and answers a request, as far as the current `#outage` permits. */
  #execute<Reply>(request: LockRequest<Reply>, act: (now: number) => Untimed<Reply>): void {
    // Every request is executed now or never, so none is in flight.
    request.deadlineMs = Number.NEGATIVE_INFINITY;
    const outage = this.#outage;
    const fail = (none: NoAnswer) => request.answer(none as Reply);
    if (outage === "unreachable") fail({ kind: "unsent", reason: ofOutage });
    if (outage === "unreachable" || outage === "silent") return;
    const now = clockMs();
    const reply = { ...act(now), storeTimeMs: now } as Reply;
    if (outage === "replies-lost") fail({ kind: "unknown", cause: ownError(ofOutage) });
    else request.answer(reply);
  }

  /** @param isDone whether an earlier copy of the request has left this entry of the owner id. */
  #executeIfOwned(
    request: LockRequest<OwnedReply>,
    act: (entry: Entry, now: number) => void,
    isDone: (entry: Entry) => boolean = () => false,
  ): void {
    const { key, ownerId } = request.command;
    this.#execute<OwnedReply>(request, (now) => {
      const entry = live(this.#entries, key, now);
      if (entry === undefined) return { kind: "gone" };
      if (entry.ownerId !== ownerId) return { kind: "foreign" };
      if (isDone(entry)) return { kind: "done" };
      // Rule 19: a tombstone with this owner id says that a person freed this lease.
      if (entry.state !== "held") return { kind: entry.state === "freed" ? "freed" : "foreign" };
      act(entry, now);
      return { kind: "done" };
    });
  }

  #takeAway(request: FreeRequest, entry: Entry | undefined, now: number): FreeResult {
    if (entry === undefined) return { outcome: "already-free" };
    if (!entry.ownerId.startsWith(request.id)) return { outcome: "changed" };
    const { key } = request.command;
    // Rule 19: without `now` only a cooldown is deleted, because it has no holder.
    if (request.now || entry.state === "cooldown") {
      this.#entries.delete(key);
      return { outcome: "freed", freeInMs: 0 };
    }
    if (entry.state === "held") {
      const by = decodeURIComponent(request.by);
      const reason = decodeURIComponent(request.reason);
      this.#entries.set(key, { ...entry, state: "freed", by, reason });
    }
    return { outcome: "freed", freeInMs: Math.ceil(entry.expiresAt - now) };
  }

  #take(command: LockCommand, now: number): number {
    // Users may never return, so delete expired keys; only when the keys have doubled, to be cheap.
    if (this.#entries.size >= this.#sweepAt) {
      for (const each of this.#entries.keys()) live(this.#entries, each, now);
      this.#sweepAt = Math.max(1_000, 2 * this.#entries.size);
    }
    const microseconds = Math.floor(now * 1_000);
    // Rule 20: the token is higher than the last one, also within one microsecond.
    const fencingToken = Math.max(microseconds, this.#lastToken + 1);
    this.#lastToken = fencingToken;
    const { holder, key, ownerId, submission, times } = command;
    const written = { ownerId, fencingToken, submission, times, holder, takenAt: now };
    const expiresAt = now + times.ttlMs;
    this.#entries.set(key, { ...written, state: "held", by: "", reason: "", expiresAt });
    return fencingToken;
  }

  #free(request: ReleaseRequest | CompleteRequest, entry: Entry, now: number): void {
    const { command, cooldownUntilMs: expiresAt } = request;
    if (expiresAt > now) this.#entries.set(command.key, { ...entry, state: "cooldown", expiresAt });
    else this.#entries.delete(command.key);
  }

  #recordOf(command: LockCommand, now: number): RecordBytes | undefined {
    if (command.submission === undefined) return undefined;
    return live(this.#records, recordKey(command), now)?.record;
  }
}

/** Returns a value that has not expired, and deletes one that has. */
function live<Value extends { readonly expiresAt: number }>(
  map: Map<string, Value>,
  key: string,
  now: number,
): Value | undefined {
  const found = map.get(key);
  if (found === undefined || found.expiresAt > now) return found;
  map.delete(key);
  return undefined;
}

function recordKey({ key, submission }: LockCommand): string {
  return `${key}:${submission?.id}`;
}

function readHead(record: RecordBytes): { readonly fingerprint: string; readonly ownerId: string } {
  const head = Buffer.from(record.slice(0, 60) as string).toString("latin1");
  return { fingerprint: head.slice(1, 23), ownerId: head.slice(23, 59) };
}

const noFingerprint = "-".repeat(22);

function isOwned(entry: Entry, ownerId: string): boolean {
  return entry.ownerId === ownerId && entry.state === "held";
}

function contendedOrMismatched(
  { expiresAt, ownerId, state, submission: held }: Entry,
  submission: LockCommand["submission"],
  now: number,
): Untimed<AcquireReply> {
  const isSame = state === "held" && submission !== undefined && held?.id === submission.id;
  if (isSame && differs(held.fingerprint, submission.fingerprint)) {
    return { kind: "mismatched", inFlight: true };
  }
  const holderId = isSame ? ownerId : undefined;
  const why = { sameSubmission: isSame, holderId, isCooldown: state === "cooldown" };
  return { kind: "contended", expiresInMs: Math.ceil(expiresAt - now), ...why };
}

/** A missing fingerprint is equal to any. */
function differs(one: string, other: string | undefined): boolean {
  return one !== other && one !== noFingerprint && other !== noFingerprint;
}

function inspectionOf(entry: Entry | undefined, now: number): Inspection {
  if (entry === undefined) return { state: "free" };
  const { by, expiresAt, ownerId, reason, state, takenAt, times } = entry;
  const id = ownerId.slice(0, 8);
  const expiresInMs = Math.ceil(expiresAt - now);
  if (state === "cooldown") return { state, id, expiresInMs };
  if (state === "freed") return { state, id, by, reason, expiresInMs };
  const heldMs = Math.floor(now - takenAt);
  const renewedMs = Math.max(0, times.ttlMs - expiresInMs);
  const endsInMs = Math.max(0, times.maxHoldMs - heldMs);
  const holder = decodeURIComponent(entry.holder);
  return { state, id, holder, heldMs, renewedMs, expiresInMs, endsInMs };
}

function outlivedOf({ command, trace }: OutliveRequest, now: number): OutlivedOrder {
  const { endedAtMs, reason, takenAtMs } = trace as NonNullable<OutliveRequest["trace"]>;
  const holder = decodeURIComponent(command.holder);
  const [takenMs, endedMs] = [Math.floor(now - takenAtMs), Math.floor(now - endedAtMs)];
  return { holder, reason, takenMs, endedMs: Math.max(0, endedMs) };
}
