import type { LockCommand } from "../../../src/lock/store.ts";
import { SubmitLock } from "../../../src/lock/submit-lock.ts";
import { portOf } from "../../../src/stores/redis/clients/port-of.ts";
import { recordKeyOf } from "../../../src/stores/redis/cluster.ts";
import { RedisStore } from "../../../src/stores/redis/redis-store.ts";
import { CallWatch } from "./invariants/call-watch.ts";
import { ClientWatch } from "./invariants/client-watch.ts";
import { CompleteWatch } from "./invariants/complete-watch.ts";
import { Health } from "./invariants/health.ts";
import { KeyWatch } from "./invariants/key-watch.ts";
import { LeaseWatch } from "./invariants/lease-watch.ts";
import { type Owner, Owners } from "./invariants/owners.ts";
import { Verdict } from "./invariants/verdict.ts";
import { ioredisDefaults } from "./network/client-options.ts";
import { SimulatedClient } from "./network/simulated-client.ts";
import type { CommandFate, Surroundings } from "./network/surroundings.ts";
import type { Participant } from "./participant.ts";
import { count, type Report, type Reporter } from "./report.ts";
import type { FatePlan, ProcessPlan, Schedule } from "./schedule.ts";
import { nameOf } from "./script-names.ts";
import { SimulatedRedis } from "./server/simulated-redis.ts";
import { EventLoop, on } from "./time/event-loop.ts";
import { Machine } from "./time/machine.ts";
import { Noise } from "./time/random.ts";
import { phase } from "./time/task-queue.ts";
import { type AttemptId, WitnessedStore } from "./witnessed-store.ts";

/** What becomes of the commands that one process writes, as the schedule has it. */
class Fates {
  readonly #plans: readonly FatePlan[];
  readonly #reporter: Reporter;
  #written = 0;
  #completes = 0;

  /** @param plans those of this process. */
  constructor(plans: readonly FatePlan[], reporter: Reporter) {
    this.#plans = plans;
    this.#reporter = reporter;
  }

  /** Of the next command, which calls this script. */
  next(script: string): CommandFate | undefined {
    const nth = this.#written++;
    const nthComplete = nameOf(script) === "complete" ? this.#completes++ : undefined;
    const fate = this.#plans.find((plan) => plan.nth === (plan.ofCompletes ? nthComplete : nth));
    if (fate !== undefined) this.#tell(fate);
    return fate;
  }

  #tell(fate: FatePlan): void {
    const reporter = this.#reporter;
    if (fate.requestMs > 0) reporter.count("fault: request held");
    if (fate.replyMs > 0) reporter.count("fault: reply held");
    if (fate.oddAnswer) reporter.count("fault: odd answer");
    if (fate.resetMs !== undefined) {
      reporter.count(
        fate.stillLands ? "fault: reset, copy may still land" : "fault: reset, copy lost",
      );
    }
    reporter.note(() => `           ${JSON.stringify(fate)}`);
  }
}

/** The most that noise adds to the latency of one message. */
const latencyNoiseMs = 2;

/** One process with its lock, as the simulation sees it. */
export interface SimulatedProcess extends Participant {
  readonly store: WitnessedStore;
  cutOffUntil: number;
  lockIsGone: boolean;
  closeTimeoutMs: number | undefined;
}

/** A Redis server, the processes that lock on it, the network between them, and everybody who watches. */
export class World implements Reporter {
  readonly schedule: Schedule;
  readonly noise: Noise;
  readonly loop: EventLoop;
  readonly server: SimulatedRedis;
  readonly owners = new Owners();
  readonly verdict: Verdict;
  readonly keyWatch: KeyWatch;
  readonly leaseWatch: LeaseWatch;
  readonly completeWatch: CompleteWatch;
  readonly callWatch: CallWatch;
  readonly processes: readonly SimulatedProcess[];
  readonly report: Report = { counts: new Map(), violation: undefined, timeline: [] };
  readonly #isTold: boolean;
  /** The last step at which an answer of the server was read. */
  #readAtStep: number | undefined;
  readonly #ownersOfCall = new Map<number, Owner[]>();

  constructor(schedule: Schedule, isTold: boolean) {
    this.schedule = schedule;
    this.#isTold = isTold;
    this.noise = new Noise(schedule.noise);
    this.loop = new EventLoop(this.noise);
    this.verdict = new Verdict(
      () => this.loop.now,
      (text) => this.note(() => text),
    );
    this.keyWatch = new KeyWatch(
      this.loop,
      schedule,
      this.owners,
      this.verdict,
      (text) => this.note(text),
      () => this.server,
    );
    this.server = new SimulatedRedis(
      this.loop,
      1 + schedule.redisRate / 1_000,
      this.keyWatch,
      schedule.replica?.lagMs,
    );
    this.server.database = schedule.database === "0" || schedule.isCluster ? 0 : 5;
    this.leaseWatch = new LeaseWatch(this.loop, this.server, this.verdict, schedule.times);
    const { records } = this.keyWatch;
    this.completeWatch = new CompleteWatch(this.loop, this.server, this.verdict, records);
    this.callWatch = new CallWatch(this.loop, this.verdict);
    this.processes = schedule.processes.map((plan, index) => this.#start(plan, index));
  }

  /** One line of the timeline. */
  note(text: () => string): void {
    if (!this.#isTold) return;
    this.report.timeline.push(`${this.loop.now.toFixed(2).padStart(9)} ms  ${text()}`);
  }

  count(what: string): void {
    count(this.report.counts, what);
  }

  /** Looks at everything that has to hold at every instant. */
  check(): boolean {
    this.leaseWatch.check();
    this.completeWatch.check();
    this.callWatch.check();
    return this.verdict.violation !== undefined;
  }

  /** Where the record of a user's submission lies. */
  recordKeyOf(process: SimulatedProcess, { key, submission }: Owner): string {
    return recordKeyOf(portOf(process.client), key, submission?.id ?? "");
  }

  /** The processes of a schedule are taken round, so that dropping one leaves the others' numbers valid. */
  processOf(number: number): SimulatedProcess {
    return this.processes[number % this.processes.length] as SimulatedProcess;
  }

  /** Every owner id that a call has used, in the order of their use. */
  ownersOf(call: number): readonly Owner[] {
    return this.#ownersOfCall.get(call) ?? [];
  }

  #start(plan: ProcessPlan, index: number): SimulatedProcess {
    const { loop, server } = this;
    const name = `process ${index + 1}`;
    const machine = new Machine(loop, name, {
      rate: 1 + plan.rate / 1_000,
      startsAt: 5_000 * (index + 1),
      wallOffsetMs: plan.wallOffsetMs,
      runsJavaScript: true,
    });
    const health = new Health(() => loop.now);
    const clients = new Set<SimulatedClient>();
    const { commandTimeoutMs } = this.schedule.times;
    // Filled in below: what is made first is told about the process later.
    const started: { process?: SimulatedProcess } = {};
    const fates = new Fates(
      this.schedule.fates.filter(
        ({ process }) => process % this.schedule.processes.length === index,
      ),
      this,
    );
    const lockIsGone = () => started.process?.lockIsGone === true;
    const watcher = new ClientWatch(
      { machine, health, lockIsGone },
      commandTimeoutMs,
      this.keyWatch.executions,
      this.verdict,
      this,
      () => {
        this.#readAtStep = loop.steps;
      },
    );
    const around: Surroundings = {
      loop,
      machine,
      server,
      clients,
      latency: () => plan.latencyMs + this.noise.deviation(0, latencyNoiseMs),
      cutOffUntil: () => started.process?.cutOffUntil ?? 0,
      nextFate: (_client, { script }) => fates.next(script),
      watcher,
    };
    return on(machine, () => {
      const options = {
        ...ioredisDefaults,
        db: this.schedule.database === "of the options" ? server.database : 0,
        autoResendUnfulfilledCommands: plan.autoResend,
        enableOfflineQueue: plan.offlineQueue,
        isCluster: this.schedule.isCluster,
        commandTimeout: plan.commandTimeout ? Math.round(1.5 * commandTimeoutMs) : undefined,
      };
      const selected =
        this.schedule.database === "selected at run time" ? server.database : undefined;
      const client = new SimulatedClient(around, options, false, selected);
      if (!plan.lazyConnect) void client.connect();
      const ackReplicas = this.schedule.replica === undefined ? undefined : 1;
      const redisStore = new RedisStore(client, { ackReplicas });
      const store = new WitnessedStore(redisStore, this.schedule.retainMs, {
        now: () => loop.now,
        isAwoken: () => loop.phase !== phase.poll,
        seen: (command, attempt) => this.#sawOwner(command, attempt, started.process),
        heard: (microseconds) => {
          if (started.process) this.keyWatch.fence.heard(started.process, microseconds);
        },
        extended: (ownerId, kind) => this.leaseWatch.extended(ownerId, kind),
        completes: (ownerId, expiresAtMs) => {
          const owner = this.owners.get(ownerId);
          if (owner !== undefined) owner.recordUntil ??= expiresAtMs;
        },
        unreached: () => {
          this.verdict.broken("refused", "what a node had refused was not written to the other");
        },
        overlooked: (kind) => {
          // In two steps the first half is told when the second cannot be written, or its connection
          // is lost: that had not lain ready, for then an answer is read at this very step.
          if (this.loop.steps !== this.#readAtStep) return;
          this.verdict.broken("atHand", `a command was written again, and "${kind}" lay ready`);
        },
      });
      const lock = new SubmitLock({ store, keyPrefix: "lock:", ...this.schedule.times });
      started.process = {
        plan,
        machine,
        health,
        client,
        clients,
        lock,
        store,
        longestLatencyMs: plan.latencyMs + latencyNoiseMs,
        closeTimeoutMs: undefined,
        lockIsGone: false,
        cutOffUntil: 0,
      };
      return started.process;
    });
  }

  #sawOwner(
    { ownerId, key, submission }: LockCommand,
    attempt: AttemptId,
    process: SimulatedProcess | undefined,
  ): void {
    const owners = this.#ownersOfCall.get(attempt.call) ?? [];
    this.#ownersOfCall.set(attempt.call, owners);
    if (this.owners.get(ownerId) !== undefined) return;
    const owner = this.owners.add(ownerId, key, process, attempt, submission, this.loop.now);
    this.note(() => `${process?.machine.name}  ${owner.name} asks for ${key}`);
    // The earlier attempts of a `withLock` are over when the next one begins.
    for (const earlier of owners) {
      if (earlier.attempt !== attempt) earlier.overAt ??= this.loop.now;
    }
    owners.push(owner);
  }
}
