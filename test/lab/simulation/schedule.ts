import fc from "fast-check";
import type { LockTimes } from "../../../src/lock/store.ts";

/** Everything that is chosen for one run. The same schedule gives the same run. */
export interface Schedule {
  /** Seeds the small deviations of latencies and timers; 0 for none. */
  readonly noise: number;
  readonly times: LockTimes;
  /** How much faster Redis' clock runs, in thousandths. */
  readonly redisRate: number;
  /** Whether the server is a Cluster, of one node. */
  readonly isCluster: boolean;
  /** Where another database than 0 comes from; 0 on a Cluster. */
  readonly database: "0" | "of the options" | "selected at run time";
  /** Of a Cluster: when it is moving the slot, so that only single keys can be reached. */
  readonly moving: Incident | undefined;
  /** Where the locks wait for a replica (`ackReplicas: 1`): what becomes of it, and of its master. */
  readonly replica: ReplicaPlan | undefined;
  /** How long answers are kept. */
  readonly retainMs: number;
  readonly processes: readonly ProcessPlan[];
  readonly operations: readonly OperationPlan[];
  readonly fates: readonly FatePlan[];
  readonly faults: readonly FaultPlan[];
}

export interface ProcessPlan {
  /** How much faster its clock runs, in thousandths. */
  readonly rate: number;
  readonly wallOffsetMs: number;
  readonly latencyMs: number;
  /** Options of its ioredis client. */
  readonly commandTimeout: boolean;
  readonly autoResend: boolean;
  readonly offlineQueue: boolean;
  readonly lazyConnect: boolean;
}

type OperationKind = "acquire" | "submit" | "lookUp" | "withLock" | "close" | "oldLock" | "free";

/** How a lease ends: what is called first, and whether the other follows in the same turn. */
type Ending = "release" | "complete";

export interface OperationPlan {
  readonly atMs: number;
  readonly process: number;
  readonly user: number;
  readonly kind: OperationKind;
  /** How long the work takes; for `close`, its bound; for `oldLock`, nothing; for `free`, how long a person thinks. */
  readonly workMs: number;
  readonly waitMs: number;
  /** Whether the work stops when the signal aborts. */
  readonly heedsSignal: boolean;
  /** Which of the user's submissions it is about; for `submit` and `lookUp`. */
  readonly submission: 0 | 1;
  /** What it has in its body; 0 for nothing that is compared. */
  readonly payload: 0 | 1 | 2;
  /** Of a `submit`; others are released. */
  readonly ending: Ending;
  readonly endsTwice: boolean;
  readonly cooldownMs: number;
}

/** What becomes of the n-th command that a process writes, or of its n-th complete. */
export interface FatePlan {
  readonly process: number;
  readonly nth: number;
  readonly ofCompletes: boolean;
  readonly requestMs: number;
  readonly replyMs: number;
  readonly resetMs: number | undefined;
  readonly stillLands: boolean;
  readonly oddAnswer: boolean;
}

type FaultKind =
  | "server paused"
  | "server restarted empty"
  | "server refusing"
  | "server full"
  | "server strictly full"
  | "server set back"
  | "select refused"
  | "scripts flushed"
  | "process killed"
  | "process paused"
  | "process cut off"
  | "connections reset";

export interface FaultPlan {
  readonly kind: FaultKind;
  readonly atMs: number;
  readonly process: number;
  readonly forMs: number;
  /**
   * For a reset and a kill: whether what was on its way lands nevertheless. For a clock that is set
   * back: whether it is by no more than `forMs`, and not by an hour.
   */
  readonly stillLands: boolean;
}

export interface ReplicaPlan {
  /** How long a write takes there; as long again until its master knows. */
  readonly lagMs: number;
  /** Nothing reaches it for so long. */
  readonly stalled: Incident | undefined;
  /** The master is lost, and it takes over. */
  readonly failover: Incident | undefined;
}

export interface Incident {
  readonly atMs: number;
  readonly forMs: number;
}

/** From the tightest bounds that are allowed to the proportions of the defaults. */
const timesOfLocks: readonly LockTimes[] = [
  { ttlMs: 300, maxHoldMs: 1_200, acquireTimeoutMs: 150, commandTimeoutMs: 30 },
  { ttlMs: 300, maxHoldMs: 300, acquireTimeoutMs: 150, commandTimeoutMs: 40 },
  { ttlMs: 100, maxHoldMs: 100, acquireTimeoutMs: 50, commandTimeoutMs: 25 },
  { ttlMs: 100, maxHoldMs: 500, acquireTimeoutMs: 50, commandTimeoutMs: 10 },
  { ttlMs: 1_000, maxHoldMs: 4_000, acquireTimeoutMs: 300, commandTimeoutMs: 60 },
  { ttlMs: 2_000, maxHoldMs: 2_000, acquireTimeoutMs: 600, commandTimeoutMs: 120 },
];

export const hour = 3_600_000;

/** @param longestMs what the delays are measured by. */
function delay(longestMs: number): fc.Arbitrary<number> {
  return fc.oneof(
    { arbitrary: fc.constant(0), weight: 3 },
    { arbitrary: fc.nat({ max: Math.round(longestMs / 20) }), weight: 2 },
    { arbitrary: fc.nat({ max: Math.round(longestMs / 2) }), weight: 3 },
    { arbitrary: fc.nat({ max: 2 * longestMs }), weight: 2 },
  );
}

const processPlan: fc.Arbitrary<ProcessPlan> = fc.record({
  rate: fc.oneof(fc.constant(0), fc.constantFrom(-5, 5), fc.integer({ min: -5, max: 5 })),
  wallOffsetMs: fc.oneof(
    { arbitrary: fc.constant(0), weight: 3 },
    { arbitrary: fc.integer({ min: -400, max: 400 }), weight: 1 },
    { arbitrary: fc.integer({ min: -3 * hour, max: 3 * hour }), weight: 1 },
  ),
  latencyMs: fc.constantFrom(0.2, 0.5, 1, 3),
  commandTimeout: fc.constantFrom(false, false, false, true),
  autoResend: fc.constantFrom(true, true, true, false),
  offlineQueue: fc.constantFrom(true, true, false),
  lazyConnect: fc.constantFrom(false, false, false, true),
});

function operationPlan(times: LockTimes): fc.Arbitrary<OperationPlan> {
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
    ),
    workMs: fc.oneof(
      fc.nat({ max: 20 }),
      fc.nat({ max: times.ttlMs }),
      fc.nat({ max: 3 * times.ttlMs }),
    ),
    waitMs: fc.oneof(fc.constant(0), fc.nat({ max: times.ttlMs })),
    heedsSignal: fc.boolean(),
    submission: fc.constantFrom(0, 0, 0, 0, 0, 1),
    payload: fc.constantFrom(1, 1, 1, 2, 2, 0),
    ending: fc.constantFrom<Ending>("complete", "complete", "complete", "release"),
    endsTwice: fc.constantFrom(false, false, false, false, true),
    cooldownMs: fc.oneof(
      { arbitrary: fc.constant(0), weight: 3 },
      { arbitrary: fc.integer({ min: 1, max: 2 * times.ttlMs }), weight: 1 },
    ),
  });
}

function fatePlan(times: LockTimes): fc.Arbitrary<FatePlan> {
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

function faultPlan(times: LockTimes): fc.Arbitrary<FaultPlan> {
  return fc.record({
    kind: fc.constantFrom<FaultKind>(
      "process paused",
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
    stillLands: fc.boolean(),
  });
}

function replicaPlan(times: LockTimes): fc.Arbitrary<ReplicaPlan> {
  const atMs = fc.nat({ max: 2 * times.ttlMs });
  return fc.record({
    // Less than the shortest time that is waited for it.
    lagMs: fc.constantFrom(0.1, 0.5, 2),
    stalled: fc.option(fc.record({ atMs, forMs: delay(times.ttlMs) }), {
      nil: undefined,
      freq: 2,
    }),
    // Shorter than a retire goes on for: what is given up runs out by itself, by a clock that may be set back.
    failover: fc.option(fc.record({ atMs, forMs: fc.nat({ max: times.ttlMs / 2 }) }), {
      nil: undefined,
      freq: 3,
    }),
  });
}

export const schedules: fc.Arbitrary<Schedule> = fc.constantFrom(...timesOfLocks).chain((times) =>
  fc.record({
    noise: fc.nat({ max: 1_000_000 }),
    times: fc.constant(times),
    redisRate: fc.constantFrom(0, 0, -5, 5),
    isCluster: fc.constantFrom(false, false, true),
    database: fc.constantFrom(...(["0", "0", "of the options", "selected at run time"] as const)),
    moving: fc.option(
      fc.record({ atMs: fc.nat({ max: times.ttlMs }), forMs: fc.nat({ max: 3 * times.ttlMs }) }),
      { nil: undefined, freq: 2 },
    ),
    replica: fc.oneof(
      { arbitrary: fc.constant(undefined), weight: 2 },
      { arbitrary: replicaPlan(times), weight: 1 },
    ),
    // The shortest that rule 11 permits, and longer than any run.
    retainMs: fc.constantFrom(2 * times.acquireTimeoutMs, 2 * times.acquireTimeoutMs, 100_000),
    processes: fc.array(processPlan, { minLength: 1, maxLength: 3 }),
    operations: fc.array(operationPlan(times), { minLength: 1, maxLength: 7 }),
    fates: fc.array(fatePlan(times), { maxLength: 5 }),
    faults: fc.array(faultPlan(times), { maxLength: 2 }),
  }),
);
