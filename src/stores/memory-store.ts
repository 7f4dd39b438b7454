import type {
  AcquireReply,
  AcquireRequest,
  CompleteRequest,
  ForgetRequest,
  FreeRequest,
  FreeResult,
  Inspection,
  InspectRequest,
  LockCommand,
  LockRequest,
  LockStore,
  OutlivedOrder,
  OutliveRequest,
  OwnedReply,
  RecordBytes,
  ReleaseRequest,
} from "../lock/store.ts";
import { performance } from "../time.ts";
import { checkOptionNames, warnOnce } from "../validation.ts";
import { checkOutage, type Outage, through } from "./outages.ts";

/** A lease, or its tombstone or cooldown. `…At` is by {@link clockMs}. */
interface Entry extends Pick<LockCommand, "ownerId" | "submission" | "times"> {
  readonly state: "held" | "freed" | "cooldown";
  readonly holder: string;
  readonly fencingToken: number;
  readonly takenAt: number;
  /** Who has freed the lease, and why; both are `""` unless it was freed. */
  readonly by: string;
  readonly reason: string;
  expiresAt: number;
}

type Kept = { readonly record: RecordBytes; readonly expiresAt: number };

const maxRecords = 10_000;

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
   * Plays an outage for a test, from the next request on, and in the middle of an order too; `"none"`
   * ends it. Locks and answers that the store has stay, and leases expire as in any outage.
   * @throws InvalidOptionError for any other value.
   */
  play(outage: Outage | "none"): void {
    this.#outage = checkOutage(outage);
  }

  acquire(asked: AcquireRequest): void {
    const request = through(this.#outage, asked);
    if (request === undefined) return;
    const { command } = request;
    const now = clockMs();
    // Rule 16: look for the record before the lock.
    const record = this.#recordOf(command, now);
    if (record !== undefined) {
      const isOther = differs(headOf(record).fingerprint, command.submission?.fingerprint);
      if (isOther) request.answer({ kind: "mismatched", inFlight: false, storeTimeMs: now });
      else request.answer({ kind: "completed", record, storeTimeMs: now });
      return;
    }
    const told = request.waitsFor && live(this.#told, recordKey(command), now)?.record;
    if (told && headOf(told).ownerId === request.waitsFor) {
      request.answer({ kind: "told", record: told, storeTimeMs: now });
      return;
    }
    const entry = live(this.#entries, command.key, now);
    if (entry === undefined && request.onlyLooks) {
      request.answer({ kind: "outOfWindow", storeTimeMs: now });
    } else if (entry === undefined) {
      request.answer({ kind: "taken", storeTimeMs: now, fencingToken: this.#take(command, now) });
    } else if (isOwned(entry, command.ownerId)) {
      request.answer({ kind: "mine", storeTimeMs: now, fencingToken: entry.fencingToken });
    } else {
      request.answer(contendedOrMismatched(entry, command.submission, now));
    }
  }

  extend(asked: LockRequest<OwnedReply>): void {
    const request = through(this.#outage, asked);
    if (request === undefined) return;
    this.#ifOwned(request, (entry, now) => {
      entry.expiresAt = Math.max(entry.expiresAt, now + request.command.times.ttlMs);
    });
  }

  release(asked: ReleaseRequest): void {
    const request = through(this.#outage, asked);
    if (request === undefined) return;
    const { key, ownerId } = request.command;
    const now = clockMs();
    const entry = live(this.#entries, key, now);
    // Rule 19: a cooldown with this owner id proves that an earlier copy of the release wrote it.
    const isAgain =
      request.cooldownUntilMs > 0 && entry?.state === "cooldown" && entry.ownerId === ownerId;
    if (isAgain) request.answer({ kind: "done", storeTimeMs: now });
    else this.#ifOwned(request, (owned) => this.#letGo(request, owned, now));
  }

  #letGo(request: ReleaseRequest, entry: Entry, now: number): void {
    this.#free(request, entry, now);
    const { command, told } = request;
    if (told === undefined) return;
    const key = recordKey(command);
    // Delete expired answers, the oldest first, up to one that another lock's times keep longer.
    for (const each of this.#told.keys()) if (live(this.#told, each, now)) break;
    this.#told.delete(key);
    this.#told.set(key, { record: told.record, expiresAt: now + told.lifeMs });
  }

  complete(asked: CompleteRequest): void {
    const request = through(this.#outage, asked);
    if (request === undefined) return;
    const { command, expiresAtMs, record } = request;
    const now = clockMs();
    const entry = live(this.#entries, command.key, now);
    const isHeld = entry !== undefined && isOwned(entry, command.ownerId);
    const prior = this.#recordOf(command, now);
    if (prior === undefined && expiresAtMs > now) {
      const [oldest] = this.#records.keys();
      if (this.#records.size >= maxRecords && oldest !== undefined) this.#records.delete(oldest);
      this.#records.set(recordKey(command), { record, expiresAt: expiresAtMs });
    }
    if (isHeld) this.#free(request, entry, now);
    let kind: "recorded" | "late" | "expired" | "duplicate" = isHeld ? "recorded" : "late";
    // Rule 15: its own record counts first, then that the complete is late, then another's record.
    if (prior !== undefined && headOf(prior).ownerId === command.ownerId) kind = "recorded";
    else if (expiresAtMs <= now) kind = "expired";
    else if (prior !== undefined) kind = "duplicate";
    request.answer({ kind, storeTimeMs: now });
  }

  attach(): () => Promise<void> {
    return () => Promise.resolve();
  }

  inspect(asked: InspectRequest): void {
    const request = through(this.#outage, asked);
    if (request === undefined) return;
    const now = clockMs();
    const entry = live(this.#entries, request.command.key, now);
    const found = entry === undefined ? ({ state: "free" } as const) : inspectionOf(entry, now);
    const traces = [...this.#outlived.keys()].map((ownerId) => live(this.#outlived, ownerId, now));
    const outlived = traces
      .filter((trace) => trace?.command.key === request.command.key)
      .map((trace) => outlivedOf(trace as OutliveRequest, now));
    const traced = outlived.length === 0 ? found : { ...found, outlived };
    request.answer({ kind: "inspected", found: traced, storeTimeMs: now });
  }

  outlive(asked: OutliveRequest): void {
    const request = through(this.#outage, asked);
    if (request === undefined) return;
    const { command, lifeMs, trace } = request;
    const now = clockMs();
    if (trace) this.#outlived.set(command.ownerId, { ...request, expiresAt: now + lifeMs });
    else this.#outlived.delete(command.ownerId);
    request.answer({ kind: "done", storeTimeMs: now });
  }

  free(asked: FreeRequest): void {
    const request = through(this.#outage, asked);
    if (request === undefined) return;
    const now = clockMs();
    const result = this.#takeAway(request, live(this.#entries, request.command.key, now), now);
    request.answer({ kind: "answered", result, storeTimeMs: now });
  }

  forget(asked: ForgetRequest): void {
    const request = through(this.#outage, asked);
    if (request === undefined) return;
    const { command, run } = request;
    const storeTimeMs = clockMs();
    const entry = live(this.#entries, command.key, storeTimeMs);
    const record = this.#recordOf(command, storeTimeMs);
    let kind: "forgotten" | "inFlight" | "changed" | "absent" = "forgotten";
    if (entry?.state === "held" && entry.submission?.id === command.submission?.id) {
      kind = "inFlight";
    } else if (record === undefined) kind = "absent";
    else if (headOf(record).ownerId !== run) kind = "changed";
    else this.#records.delete(recordKey(command));
    request.answer({ kind, storeTimeMs });
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
    // Delete expired keys: their users may never return. Cheap: not before the keys have doubled.
    if (this.#entries.size >= this.#sweepAt) {
      for (const each of this.#entries.keys()) live(this.#entries, each, now);
      this.#sweepAt = Math.max(1_000, 2 * this.#entries.size);
    }
    const microseconds = Math.floor(now * 1_000);
    // Rule 20: the token is higher than the last one, also within one microsecond.
    const fencingToken = Math.max(microseconds, this.#lastToken + 1);
    this.#lastToken = fencingToken;
    const { key, ownerId, submission, times } = command;
    const holder = decodeURIComponent(command.holder);
    const written = { ownerId, fencingToken, submission, times, holder, takenAt: now };
    const expiresAt = now + times.ttlMs;
    this.#entries.set(key, { ...written, state: "held", by: "", reason: "", expiresAt });
    return fencingToken;
  }

  #free(request: ReleaseRequest | CompleteRequest, entry: Entry, now: number): void {
    const { key } = request.command;
    const expiresAt = request.cooldownUntilMs;
    if (expiresAt > now) this.#entries.set(key, { ...entry, state: "cooldown", expiresAt });
    else this.#entries.delete(key);
  }

  #recordOf(command: LockCommand, now: number): RecordBytes | undefined {
    if (command.submission === undefined) return undefined;
    return live(this.#records, recordKey(command), now)?.record;
  }

  #ifOwned(request: LockRequest<OwnedReply>, act: (entry: Entry, now: number) => void): void {
    const { key, ownerId } = request.command;
    const now = clockMs();
    const entry = live(this.#entries, key, now);
    if (entry === undefined) {
      request.answer({ kind: "gone", storeTimeMs: now });
    } else if (isOwned(entry, ownerId)) {
      act(entry, now);
      request.answer({ kind: "done", storeTimeMs: now });
    } else {
      // Rule 19: a tombstone with this owner id says that a person freed this lease.
      const isFreed = entry.state === "freed" && entry.ownerId === ownerId;
      request.answer({ kind: isFreed ? "freed" : "foreign", storeTimeMs: now });
    }
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

function headOf(record: RecordBytes): { readonly fingerprint: string; readonly ownerId: string } {
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
  storeTimeMs: number,
): AcquireReply {
  const isSame = state === "held" && submission !== undefined && held?.id === submission.id;
  if (isSame && differs(held.fingerprint, submission.fingerprint)) {
    return { kind: "mismatched", inFlight: true, storeTimeMs };
  }
  const expiresInMs = Math.ceil(expiresAt - storeTimeMs);
  const holderId = isSame ? ownerId : undefined;
  const why = { sameSubmission: isSame, holderId, isCooldown: state === "cooldown" };
  return { kind: "contended", expiresInMs, ...why, storeTimeMs };
}

/** A missing fingerprint is equal to any. */
function differs(one: string, other: string | undefined): boolean {
  return one !== other && one !== noFingerprint && other !== noFingerprint;
}

function inspectionOf(entry: Entry, now: number): Inspection {
  const { by, expiresAt, holder, ownerId, reason, state, takenAt, times } = entry;
  const id = ownerId.slice(0, 8);
  const expiresInMs = Math.ceil(expiresAt - now);
  if (state === "cooldown") return { state, id, expiresInMs };
  if (state === "freed") return { state, id, by, reason, expiresInMs };
  const heldMs = Math.floor(now - takenAt);
  const renewedMs = Math.max(0, times.ttlMs - expiresInMs);
  const endsInMs = Math.max(0, times.maxHoldMs - heldMs);
  return { state, id, holder, heldMs, renewedMs, expiresInMs, endsInMs };
}

function outlivedOf({ command, trace }: OutliveRequest, now: number): OutlivedOrder {
  const { endedAtMs, reason, takenAtMs } = trace as NonNullable<OutliveRequest["trace"]>;
  const holder = decodeURIComponent(command.holder);
  const [takenMs, endedMs] = [Math.floor(now - takenAtMs), Math.floor(now - endedAtMs)];
  return { holder, reason, takenMs, endedMs: Math.max(0, endedMs) };
}
