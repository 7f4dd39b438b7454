import {
  type AcquireReply,
  type AcquireRequest,
  type CompleteReply,
  type CompleteRequest,
  type LockRequest,
  MemoryStore,
  type OwnedReply,
  type ReleaseRequest,
  type SubmitLockOptions,
} from "../../../src/index.ts";
import { freshUser } from "../../support/ids.ts";
import { leaseOf, openLock } from "../../support/locks.ts";
import { answer, submissionOf, submit } from "../../support/submissions.ts";
import { until } from "../../support/until.ts";

/** A store whose next answers a test decides; it goes on as a `MemoryStore`. */
class AnsweringStore extends MemoryStore {
  readonly acquires: AcquireReply[] = [];
  readonly extends: OwnedReply[] = [];
  readonly releases: OwnedReply[] = [];
  readonly completes: CompleteReply[] = [];
  /** Nothing is answered, or done. */
  isSilent = false;
  /** For how long an acquire whose answer was planned may still take effect. */
  lateForMs = 0;
  /** Every lease is extended at once. */
  connectionCameUp: () => void = () => {};

  override attach(onReady?: () => void): () => Promise<void> {
    this.connectionCameUp = onReady ?? (() => {});
    return super.attach();
  }

  override acquire(request: AcquireRequest): void {
    request.deadlineMs = performance.now() + this.lateForMs;
    this.#answer(this.acquires, request, () => super.acquire(request));
  }

  override extend(request: LockRequest<OwnedReply>): void {
    this.#answer(this.extends, request, () => super.extend(request));
  }

  override release(request: ReleaseRequest): void {
    this.#answer(this.releases, request, () => super.release(request));
  }

  override complete(request: CompleteRequest): void {
    this.#answer(this.completes, request, () => super.complete(request));
  }

  #answer<Reply>(planned: Reply[], request: LockRequest<Reply>, otherwise: () => void): void {
    if (this.isSilent) return;
    const reply = planned.shift();
    if (reply === undefined) otherwise();
    else request.answer(reply);
  }
}

/** Bounds so short that what is to run out runs out within the test. */
const brief = { ttlMs: 300, maxHoldMs: 10_000, acquireTimeoutMs: 100, commandTimeoutMs: 40 };

const patient = { ttlMs: brief.maxHoldMs, acquireTimeoutMs: 1_000 };

const storeTimeMs = 0;
const unknown = { kind: "unknown", cause: new Error("the connection was lost") } as const;
const rejected = { kind: "rejected", cause: new Error("NOPERM"), misconfigured: true } as const;

function open(options: Partial<SubmitLockOptions> = {}) {
  const store = new AnsweringStore();
  return { store, lock: openLock({ store, ...brief, keyPrefix, ...options }) };
}

/** Of every lock that `everyOutcome` makes. */
export const keyPrefix = "lock:metrics:";

/** Every outcome that a lock can tell of, once or more, each of another user. Returns the users. */
export async function everyOutcome(): Promise<string[]> {
  const users: string[] = [];
  const user = (): string => {
    users.push(freshUser());
    return users.at(-1) as string;
  };
  await Promise.all([acquires(user), releases(user), completes(user), losses(user), retires(user)]);
  return users;
}

async function acquires(user: () => string): Promise<void> {
  // On a busy machine, the first lease must not run out before the second acquire is contended.
  const { lock, store } = open(patient);
  const [first, second] = [user(), user()];
  await leaseOf(lock, first);
  await lock.acquire(first);
  const lease = await submissionOf(lock, second, { fingerprint: "one" });
  await lease.complete(answer);
  await submit(lock, second, { fingerprint: "one" });
  await submit(lock, second, { fingerprint: "another" });
  store.acquires.push(unknown);
  await lock.acquire(user());
  store.acquires.push(rejected);
  await lock.acquire(user());
  store.isSilent = true;
  await lock.acquire(user());
}

async function releases(user: () => string): Promise<void> {
  const { lock, store } = open();
  for (const kind of ["done", "gone", "freed", "foreign"] satisfies OwnedReply["kind"][]) {
    const lease = await leaseOf(lock, user());
    store.releases.push({ kind, storeTimeMs });
    await lease.release();
  }
  const lease = await leaseOf(lock, user());
  store.isSilent = true;
  await lease.release();
}

async function completes(user: () => string): Promise<void> {
  const { lock, store } = open(patient);
  const kinds = ["recorded", "late", "expired", "duplicate", "unrecordable"] as const;
  for (const kind of kinds satisfies readonly CompleteReply["kind"][]) {
    const lease = await submissionOf(lock, user());
    store.completes.push({ kind, storeTimeMs });
    await lease.complete(answer);
  }
}

async function losses(user: () => string): Promise<void> {
  const [expired, overtaken, freed, closed] = [open(), open(), open(), open()];
  const held = open({ maxHoldMs: brief.ttlMs });
  const leases = await Promise.all(
    [expired, overtaken, freed, held, closed].map(({ lock }) => leaseOf(lock, user())),
  );
  expired.store.isSilent = true;
  overtaken.store.extends.push({ kind: "foreign", storeTimeMs });
  overtaken.store.connectionCameUp();
  freed.store.extends.push({ kind: "freed", storeTimeMs });
  freed.store.connectionCameUp();
  await closed.lock.close({ timeoutMs: 0 });
  await until(() => leases.every(({ signal }) => signal.aborted), { what: "every loss" });
}

async function retires(user: () => string): Promise<void> {
  const [final, abandoned] = [open(), open()];
  abandoned.store.lateForMs = 3_600_000;
  for (const { lock, store } of [final, abandoned]) {
    store.acquires.push(unknown);
    await (await leaseOf(lock, user())).release();
  }
}
