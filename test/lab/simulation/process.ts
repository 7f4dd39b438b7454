import { SubmitLock } from "../../../src/lock/submit-lock.ts";
import { RedisStore } from "../../../src/stores/redis/redis-store.ts";
import { ClientWatch, Health } from "./invariants/process-watch.ts";
import { SimulatedClient } from "./network/simulated-client.ts";
import { type CommandFate, ioredisDefaults } from "./network/surroundings.ts";
import type { FatePlan, ProcessPlan } from "./schedule.ts";
import { nameOf } from "./scripts.ts";
import { Machine, on } from "./time/event-loop.ts";
import { WitnessedStore } from "./witnessed-store.ts";
import type { World } from "./world.ts";

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
      world.count(
        fate.stillLands ? "fault: reset, copy may still land" : "fault: reset, copy lost",
      );
    }
    world.note(() => `           ${JSON.stringify(fate)}`);
  }
}
