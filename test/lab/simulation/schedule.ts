import fc from "fast-check";
import type { LockTimes } from "../../../src/lock/store.ts";

type Value<Made> = Made extends fc.Arbitrary<infer Generated> ? Readonly<Generated> : never;

/** Everything that is chosen for one run. The same schedule gives the same run. */
export type Schedule = Value<typeof schedules>;
export type ProcessPlan = Value<typeof processPlan>;
export type OperationPlan = Value<ReturnType<typeof operationPlan>>;
export type FatePlan = Value<ReturnType<typeof fatePlan>>;
export type ClockPlan = Value<ReturnType<typeof clockPlan>>;
export type FaultPlan = Value<ReturnType<typeof faultPlan>>;

export interface Incident {
  readonly atMs: number;
  readonly forMs: number;
}

export const hour = 3_600_000;

/** From the tightest bounds that are allowed to the proportions of the defaults. */
const timesOfLocks: readonly LockTimes[] = [
  { ttlMs: 300, maxHoldMs: 1_200, acquireTimeoutMs: 150, commandTimeoutMs: 30 },
  { ttlMs: 300, maxHoldMs: 300, acquireTimeoutMs: 150, commandTimeoutMs: 40 },
  { ttlMs: 100, maxHoldMs: 100, acquireTimeoutMs: 50, commandTimeoutMs: 25 },
  { ttlMs: 100, maxHoldMs: 500, acquireTimeoutMs: 50, commandTimeoutMs: 10 },
  { ttlMs: 1_000, maxHoldMs: 4_000, acquireTimeoutMs: 300, commandTimeoutMs: 60 },
  { ttlMs: 2_000, maxHoldMs: 2_000, acquireTimeoutMs: 600, commandTimeoutMs: 120 },
];

/** @param longestMs what the delays are measured by. */
function delay(longestMs: number) {
  return fc.oneof(
    { arbitrary: fc.constant(0), weight: 3 },
    { arbitrary: fc.nat({ max: Math.round(longestMs / 20) }), weight: 2 },
    { arbitrary: fc.nat({ max: Math.round(longestMs / 2) }), weight: 3 },
    { arbitrary: fc.nat({ max: 2 * longestMs }), weight: 2 },
  );
}

const processPlan = fc.record({
  /** How much faster its clock runs, in thousandths. */
  rate: fc.oneof(fc.constant(0), fc.constantFrom(-5, 5), fc.integer({ min: -5, max: 5 })),
  wallOffsetMs: fc.oneof(
    { arbitrary: fc.constant(0), weight: 3 },
    { arbitrary: fc.integer({ min: -400, max: 400 }), weight: 1 },
    { arbitrary: fc.integer({ min: -3 * hour, max: 3 * hour }), weight: 1 },
  ),
  latencyMs: fc.constantFrom(0.2, 0.5, 1, 3),
  /** From here on options of its ioredis client. */
  commandTimeout: fc.constantFrom(false, false, false, true),
  autoResend: fc.constantFrom(true, true, true, false),
  offlineQueue: fc.constantFrom(true, true, false),
  lazyConnect: fc.constantFrom(false, false, false, true),
});

function operationPlan(times: LockTimes) {
  return fc.record({
    atMs: fc.oneof(
      fc.nat({ max: times.ttlMs }),
      fc.nat({ max: 3 * times.ttlMs }),
      // About when the record of an early submission expires.
      fc.integer({ min: 2 * times.acquireTimeoutMs, max: 3 * times.acquireTimeoutMs }),
    ),
    process: fc.nat({ max: 2 }),
    user: fc.constantFrom(0, 0, 0, 1),
    kind: fc.oneof(
      { arbitrary: fc.constant("acquire" as const), weight: 12 },
      { arbitrary: fc.constant("submit" as const), weight: 14 },
      { arbitrary: fc.constant("lookUp" as const), weight: 1 },
      { arbitrary: fc.constant("withLock" as const), weight: 4 },
      { arbitrary: fc.constant("close" as const), weight: 1 },
      { arbitrary: fc.constant("oldLock" as const), weight: 1 },
      { arbitrary: fc.constant("free" as const), weight: 3 },
      { arbitrary: fc.constant("forget" as const), weight: 2 },
    ),
    /** How long the work takes; for `close`, its bound; for `oldLock`, nothing; for `free`, how long a person thinks. */
    workMs: fc.oneof(
      fc.nat({ max: 20 }),
      fc.nat({ max: times.ttlMs }),
      fc.nat({ max: 3 * times.ttlMs }),
    ),
    waitMs: fc.oneof(fc.constant(0), fc.nat({ max: times.ttlMs })),
    /** When it looks at its signal, counted from its beginning. */
    looksAtMs: fc.nat({ max: 3 * times.ttlMs }),
    /** Whether the work stops when the signal aborts. */
    heedsSignal: fc.boolean(),
    /** Which of the user's submissions it is about; for `submit`, `lookUp` and `forget`. */
    submission: fc.constantFrom(0, 0, 0, 0, 0, 1),
    /** What it has in its body; 0 for nothing that is compared. */
    payload: fc.constantFrom(1, 1, 1, 2, 2, 0),
    /** Of a `submit`, what is called first; others are released. */
    ending: fc.constantFrom("complete", "complete", "complete", "release"),
    /** Whether the other follows in the same turn. */
    endsTwice: fc.constantFrom(false, false, false, false, true),
    cooldownMs: fc.oneof(
      { arbitrary: fc.constant(0), weight: 3 },
      { arbitrary: fc.integer({ min: 1, max: 2 * times.ttlMs }), weight: 1 },
    ),
  });
}

/** What becomes of the n-th command that a process writes, or of its n-th complete. */
function fatePlan(times: LockTimes) {
  return fc.record({
    process: fc.nat({ max: 2 }),
    nth: fc.nat({ max: 9 }),
    ofCompletes: fc.constantFrom(false, false, true),
    requestMs: delay(times.ttlMs),
    replyMs: delay(times.ttlMs),
    resetMs: fc.option(delay(times.ttlMs), { nil: undefined, freq: 2 }),
    stillLands: fc.boolean(),
    oddAnswer: fc.constantFrom(false, false, false, false, false, true),
  });
}

function faultPlan(times: LockTimes) {
  return fc.record({
    kind: fc.constantFrom(
      "process paused",
      "process suspended",
      "process cut off",
      "connections reset",
      "server paused",
      "server refusing",
      "server restarted empty",
      "server full",
      "server strictly full",
      "server set back",
      "select refused",
      "scripts flushed",
      "process killed",
    ),
    atMs: fc.nat({ max: 2 * times.ttlMs }),
    process: fc.nat({ max: 2 }),
    forMs: delay(times.ttlMs),
    /**
     * For a reset and a kill: whether what was on its way lands nevertheless. For a clock that is set
     * back: whether it is by no more than `forMs`, and not by an hour.
     */
    stillLands: fc.boolean(),
  });
}

function replicaPlan(times: LockTimes) {
  const atMs = fc.nat({ max: 2 * times.ttlMs });
  return fc.record({
    /**
     * How long a write takes there, and as long again until its master knows: less than the shortest
     * time that is waited for it.
     */
    lagMs: fc.constantFrom(0.1, 0.5, 2),
    /** Nothing reaches it for so long. */
    stalled: fc.option(fc.record({ atMs, forMs: delay(times.ttlMs) }), {
      nil: undefined,
      freq: 2,
    }),
    /**
     * The master is lost, and it takes over. Shorter than a retire goes on for: what is given up runs
     * out by itself, by a clock that may be set back.
     */
    failover: fc.option(fc.record({ atMs, forMs: fc.nat({ max: times.ttlMs / 2 }) }), {
      nil: undefined,
      freq: 3,
    }),
  });
}

function clockPlan(times: LockTimes) {
  return fc.record({
    process: fc.nat({ max: 2 }),
    atMs: fc.nat({ max: 2 * times.ttlMs }),
    /** By how much, and for how long: its wall clock is set, and then right again. */
    forMs: delay(times.ttlMs),
    isAhead: fc.boolean(),
  });
}

export const schedules = fc.constantFrom(...timesOfLocks).chain((times) =>
  fc.record({
    /** Seeds the small deviations of latencies and timers; 0 for none. */
    noise: fc.nat({ max: 1_000_000 }),
    times: fc.constant(times),
    /** How much faster Redis' clock runs, in thousandths. */
    redisRate: fc.constantFrom(0, 0, -5, 5),
    /** Whether the server is a Cluster, of one node. */
    isCluster: fc.constantFrom(false, false, true),
    /** Whether one address has several shards: a proxy sends a call where its first key is. */
    sharded: fc.constantFrom(
      undefined,
      undefined,
      "by a proxy" as const,
      "in cluster mode" as const,
    ),
    /** Where another database than 0 comes from; 0 on a Cluster. */
    database: fc.constantFrom("0", "0", "of the options", "selected at run time"),
    /** Of a Cluster: when it is moving the slot, so that only single keys can be reached. */
    moving: fc.option(
      fc.record({ atMs: fc.nat({ max: times.ttlMs }), forMs: fc.nat({ max: 3 * times.ttlMs }) }),
      { nil: undefined, freq: 2 },
    ),
    /** Where the locks wait for a replica (`ackReplicas: 1`): what becomes of it, and of its master. */
    replica: fc.oneof(
      { arbitrary: fc.constant(undefined), weight: 2 },
      { arbitrary: replicaPlan(times), weight: 1 },
    ),
    /** How long answers are kept: the shortest that rule 11 permits, and longer than any run. */
    retainMs: fc.constantFrom(2 * times.acquireTimeoutMs, 2 * times.acquireTimeoutMs, 100_000),
    processes: fc.array(processPlan, { minLength: 1, maxLength: 3 }),
    operations: fc.array(operationPlan(times), { minLength: 1, maxLength: 7 }),
    fates: fc.array(fatePlan(times), { maxLength: 5 }),
    faults: fc.array(faultPlan(times), { maxLength: 2 }),
    // Last, so that the seeds of the mutants' hunts keep their schedules.
    clock: fc.oneof(
      { arbitrary: fc.constant(undefined), weight: 3 },
      { arbitrary: clockPlan(times), weight: 1 },
    ),
  }),
);
