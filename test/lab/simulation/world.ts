import type { LockCommand } from "../../../src/lock/store.ts";
import { SubmitLock } from "../../../src/lock/submit-lock.ts";
import { portOf } from "../../../src/stores/redis/clients/port-of.ts";
import { recordKeyOf } from "../../../src/stores/redis/clients/slots.ts";
import { RedisStore } from "../../../src/stores/redis/redis-store.ts";
import { Executions } from "./invariants/answer-checks.ts";
import { type Invariant, invariants, type Violation } from "./invariants/invariants.ts";
import { KeyWatch } from "./invariants/key-watch.ts";
import { CompleteWatch, FenceWatch, LeaseWatch } from "./invariants/lease-watch.ts";
import { type Owner, Owners } from "./invariants/owners.ts";
import { CallWatch, ClientWatch, Health } from "./invariants/process-watch.ts";
import { RecordWatch } from "./invariants/record-watch.ts";
import { SimulatedClient } from "./network/simulated-client.ts";
import { type CommandFate, ioredisDefaults } from "./network/surroundings.ts";
import type { FatePlan, ProcessPlan, Schedule } from "./schedule.ts";
import { nameOf } from "./scripts.ts";
import { SimulatedRedis } from "./server/simulated-redis.ts";
import { EventLoop, Machine, on } from "./time/event-loop.ts";
import { Noise } from "./time/random.ts";
import { type AttemptId, WitnessedStore } from "./witnessed-store.ts";

/** The most that noise adds to the latency of one message. */
const latencyNoiseMs = 2;

/** One process with its lock, as the simulation sees it. */
export class SimulatedProcess {
  readonly plan: ProcessPlan;
  readonly machine: Machine;
  readonly health: Health;
  readonly client: SimulatedClient;
  readonly clients = new Set<SimulatedClient>();
  readonly store: WitnessedStore;
  readonly lock: SubmitLock;
  /** The longest that one message takes on a healthy network. */
  readonly longestLatencyMs: number;
  /** Its network stands still until then. */
  cutOffUntil = 0;
  /** The bound that its first `close` was given. */
  closeTimeoutMs: number | undefined;
  /** Its `close` has ended: what could not be retired by then runs out by itself. */
  lockIsGone = false;
  readonly #world: World;
  readonly #fates: readonly FatePlan[];
  #written = 0;
  #completes = 0;

  constructor(world: World, plan: ProcessPlan, index: number) {
    this.#world = world;
    this.plan = plan;
    const { loop, schedule, server } = world;
    const { fates, processes, isCluster, replica, times } = schedule;
    this.#fates = fates.filter(({ process }) => process % processes.length === index);
    this.machine = new Machine(loop, `process ${index + 1}`, {
      rate: 1 + plan.rate / 1_000,
      startsAt: 5_000 * (index + 1),
      wallOffsetMs: plan.wallOffsetMs,
      runsJavaScript: true,
    });
    this.health = new Health(loop);
    this.longestLatencyMs = plan.latencyMs + latencyNoiseMs;
    const around = {
      loop,
      machine: this.machine,
      server,
      clients: this.clients,
      latency: () => plan.latencyMs + loop.noise.deviation(0, latencyNoiseMs),
      cutOffUntil: () => this.cutOffUntil,
      nextFate: (_client: SimulatedClient, { script }: { script: string }) => this.#fateOf(script),
      watcher: new ClientWatch(world, this),
    };
    const options = {
      ...ioredisDefaults,
      db: schedule.database === "of the options" ? server.database : 0,
      autoResendUnfulfilledCommands: plan.autoResend,
      enableOfflineQueue: plan.offlineQueue,
      isCluster,
      commandTimeout: plan.commandTimeout ? Math.round(1.5 * times.commandTimeoutMs) : undefined,
    };
    const selected = schedule.database === "selected at run time" ? server.database : undefined;
    [this.client, this.store, this.lock] = on(this.machine, () => {
      const client = new SimulatedClient(around, options, false, selected);
      if (!plan.lazyConnect) void client.connect();
      const ackReplicas = replica === undefined ? undefined : 1;
      const store = new WitnessedStore(new RedisStore(client, { ackReplicas }), world, this);
      return [client, store, new SubmitLock({ store, keyPrefix: "lock:", ...times })];
    });
  }

  /** What becomes of the next command, which calls this script, as the schedule has it. */
  #fateOf(script: string): CommandFate | undefined {
    const nth = this.#written++;
    const nthComplete = nameOf(script) === "complete" ? this.#completes++ : undefined;
    const fate = this.#fates.find((plan) => plan.nth === (plan.ofCompletes ? nthComplete : nth));
    if (fate !== undefined) this.#tell(fate);
    return fate;
  }

  #tell(fate: FatePlan): void {
    const world = this.#world;
    if (fate.requestMs > 0) world.count("fault: request held");
    if (fate.replyMs > 0) world.count("fault: reply held");
    if (fate.oddAnswer) world.count("fault: odd answer");
    if (fate.resetMs !== undefined) {
      world.lastResetAt = Math.max(world.lastResetAt, world.loop.now + fate.resetMs);
      world.count(
        fate.stillLands ? "fault: reset, copy may still land" : "fault: reset, copy lost",
      );
    }
    world.note(() => `           ${JSON.stringify(fate)}`);
  }
}

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
  /** When the last reset that is under way breaks its connection. */
  lastResetAt = 0;
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
    const { database, isCluster, processes, redisRate, replica, sharded } = schedule;
    const rate = 1 + redisRate / 1_000;
    this.server = new SimulatedRedis(this.loop, rate, this.keyWatch, replica?.lagMs);
    this.server.sharded = isCluster ? undefined : sharded;
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
