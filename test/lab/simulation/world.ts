import type { LockCommand } from "../../../src/lock/store.ts";
import { portOf } from "../../../src/stores/redis/clients/port-of.ts";
import { recordKeyOf } from "../../../src/stores/redis/cluster.ts";
import { Executions } from "./invariants/executions.ts";
import { type Invariant, invariants, type Violation } from "./invariants/invariants.ts";
import { KeyWatch } from "./invariants/key-watch.ts";
import { CompleteWatch, FenceWatch, LeaseWatch } from "./invariants/lease-watch.ts";
import { type Owner, Owners } from "./invariants/owners.ts";
import { CallWatch } from "./invariants/process-watch.ts";
import { RecordWatch } from "./invariants/record-watch.ts";
import { SimulatedProcess } from "./process.ts";
import type { Schedule } from "./schedule.ts";
import { SimulatedRedis } from "./server/simulated-redis.ts";
import { EventLoop } from "./time/event-loop.ts";
import { Noise } from "./time/random.ts";
import type { AttemptId } from "./witnessed-store.ts";

/** A Redis server, the processes that lock on it, the network between them, and everybody who watches. */
export class World {
  readonly schedule: Schedule;
  readonly loop: EventLoop;
  readonly server: SimulatedRedis;
  readonly owners = new Owners();
  readonly executions = new Executions(this);
  readonly recordWatch = new RecordWatch(this);
  readonly fenceWatch = new FenceWatch(this);
  readonly keyWatch = new KeyWatch(this);
  readonly leaseWatch = new LeaseWatch(this);
  readonly completeWatch = new CompleteWatch(this);
  readonly callWatch = new CallWatch(this);
  readonly processes: readonly SimulatedProcess[];
  /** What the run did. */
  readonly counts = new Map<string, number>();
  /** The first one: what follows from it proves nothing more. */
  violation: Violation | undefined;
  /** Only where it was asked for. */
  readonly timeline: string[] = [];
  /** The last step at which an answer of the server was read. */
  readAtStep: number | undefined;
  readonly #isTold: boolean;
  readonly #ownersOfCall = new Map<number, Owner[]>();

  constructor(schedule: Schedule, isTold: boolean) {
    this.schedule = schedule;
    this.#isTold = isTold;
    this.loop = new EventLoop(new Noise(schedule.noise));
    const { database, isCluster, processes, redisRate, replica } = schedule;
    const rate = 1 + redisRate / 1_000;
    this.server = new SimulatedRedis(this.loop, rate, this.keyWatch, replica?.lagMs);
    this.server.database = database === "0" || isCluster ? 0 : 5;
    this.processes = processes.map((plan, index) => new SimulatedProcess(this, plan, index));
  }

  /** One line of the timeline. */
  note(text: () => string): void {
    if (!this.#isTold) return;
    this.timeline.push(`${this.loop.now.toFixed(2).padStart(9)} ms  ${text()}`);
  }

  count(what: string): void {
    this.counts.set(what, (this.counts.get(what) ?? 0) + 1);
  }

  broken(invariant: Invariant, text: string): void {
    if (this.violation !== undefined) return;
    this.violation = { invariant, atMs: this.loop.now, text };
    this.note(() => `VIOLATION: ${invariants[invariant]}: ${text}`);
  }

  /** Looks at everything that has to hold at every instant. */
  check(): boolean {
    this.leaseWatch.check();
    this.completeWatch.check();
    this.callWatch.check();
    return this.violation !== undefined;
  }

  /** Where the record of an owner's submission lies. */
  recordKeyOf({ process, key, submission }: Owner): string {
    const { client } = process as SimulatedProcess;
    return recordKeyOf(portOf(client), key, submission?.id ?? "");
  }

  /** The processes of a schedule are taken round, so that dropping one leaves the others' numbers valid. */
  processOf(number: number): SimulatedProcess {
    return this.processes[number % this.processes.length] as SimulatedProcess;
  }

  /** Every owner id that a call has used, in the order of their use. */
  ownersOf(call: number): readonly Owner[] {
    return this.#ownersOfCall.get(call) ?? [];
  }

  /** A process asks for a lock, or for what there is. */
  saw(
    { ownerId, key, submission }: LockCommand,
    attempt: AttemptId,
    process: SimulatedProcess,
  ): void {
    const owners = this.#ownersOfCall.get(attempt.call) ?? [];
    this.#ownersOfCall.set(attempt.call, owners);
    if (this.owners.get(ownerId) !== undefined) return;
    const owner = this.owners.add(ownerId, key, process, attempt, submission, this.loop.now);
    this.note(() => `${process.machine.name}  ${owner.name} asks for ${key}`);
    // The earlier attempts of a `withLock` are over when the next one begins.
    for (const earlier of owners) {
      if (earlier.attempt !== attempt) earlier.overAt ??= this.loop.now;
    }
    owners.push(owner);
  }
}
