import type { SimulatedClient } from "../network/simulated-client.ts";
import type { ClientWatcher, WrittenCopy } from "../network/surroundings.ts";
import { nameOf } from "../scripts.ts";
import type { EventLoop } from "../time/event-loop.ts";
import type { SimulatedProcess, World } from "../world.ts";
import { slackMs, Watch } from "./invariants.ts";

interface Call {
  readonly what: string;
  readonly process: SimulatedProcess;
  readonly dueAt: number;
  readonly afterPauseMs: number;
  /** For how long its machine had slept before. */
  readonly sleptMs: number;
}

/** Watches that every call settles within its bound, by the clock of its process. */
export class CallWatch extends Watch {
  readonly #calls = new Set<Call>();

  /**
   * @param boundMs by the clock of the process.
   * @param afterPauseMs how long it may still take when the process goes on after a pause.
   */
  async settles<Result>(
    what: string,
    process: SimulatedProcess,
    boundMs: number,
    promise: Promise<Result>,
    afterPauseMs = 0,
  ): Promise<Result> {
    const dueAt = this.world.loop.now + boundMs / process.machine.rate + slackMs;
    const { sleptMs } = process.machine;
    const call: Call = { what, process, dueAt, afterPauseMs, sleptMs };
    this.#calls.add(call);
    try {
      return await promise;
    } finally {
      this.#calls.delete(call);
    }
  }

  check(): void {
    const { now } = this.world.loop;
    for (const { what, process, dueAt, afterPauseMs, sleptMs } of this.#calls) {
      const { machine } = process;
      if (now <= dueAt + machine.sleptMs - sleptMs) continue;
      // A process that is paused answers when it goes on.
      if (
        machine.isDead ||
        machine.isPaused ||
        now - machine.resumedAt <= 1.01 * afterPauseMs + slackMs
      )
        continue;
      this.world.broken("settled", `${what} has not settled within its bound`);
    }
  }
}

interface Incident {
  readonly from: number;
  to: number | undefined;
  /** What no second connection helps against. */
  readonly isEverywhere: boolean;
}

/**
 * Since when, and when before, Redis could be reached from one process without any trouble, and the
 * process itself was awake. The bounds that hold "while Redis is reachable" are measured by it.
 */
export class Health {
  readonly #loop: EventLoop;
  readonly #healthy: { from: number; to: number | undefined }[] = [];
  #troubles = 0;
  readonly #incidents: Incident[] = [];

  constructor(loop: EventLoop) {
    this.#loop = loop;
    this.#healthy.push({ from: loop.now, to: undefined });
  }

  /** @returns ends the trouble; may be called more than once. */
  troubled(isEverywhere = false): () => void {
    const now = this.#loop.now;
    if (this.#troubles++ === 0) (this.#healthy.at(-1) as { to: number | undefined }).to = now;
    const over = this.hampered(isEverywhere);
    let isOver = false;
    return () => {
      if (isOver) return;
      isOver = true;
      over();
      if (--this.#troubles === 0) this.#healthy.push({ from: this.#loop.now, to: undefined });
    };
  }

  /**
   * Redis is reached, and does not do everything: no excuse for what it does.
   *
   * @returns ends it; may be called more than once.
   */
  hampered(isEverywhere = true): () => void {
    const incident: Incident = { from: this.#loop.now, to: undefined, isEverywhere };
    this.#incidents.push(incident);
    return () => {
      incident.to ??= this.#loop.now;
    };
  }

  /** The longest time without any trouble between two times. */
  longestHealthy(from: number, to: number): number {
    let longest = 0;
    for (const stretch of this.#healthy) {
      const length = Math.min(stretch.to ?? to, to) - Math.max(stretch.from, from);
      longest = Math.max(longest, length);
    }
    return longest;
  }

  /** Whether no more than `most` connections were ever in trouble between two times, each once. */
  wasResolvable(from: number, to: number, most = 1): boolean {
    const incidents = this.#incidents.filter(
      (incident) => incident.from <= to && (incident.to ?? to) >= from,
    );
    return incidents.length <= most && !incidents.some(({ isEverywhere }) => isEverywhere);
  }
}

/**
 * Watches the clients of one process: that nothing is written on a connection that is not ready, or
 * is silent (rule 9), and since when Redis can be reached from there.
 */
export class ClientWatch implements ClientWatcher {
  readonly #world: World;
  readonly #process: SimulatedProcess;
  #untroubled: (() => void) | undefined;

  constructor(world: World, process: SimulatedProcess) {
    this.#world = world;
    this.#process = process;
    this.#untroubled = process.health.troubled();
  }

  writes(client: SimulatedClient, script: string, keys: readonly string[]): void {
    const { machine, lockIsGone } = this.#process;
    this.#note(() => `writes ${nameOf(script)} ${keys.join(" ")} ${lane(client)}`);
    if (client.status !== "ready") {
      this.#world.broken("silence", `a script was written while "${client.status}"`);
    }
    const oldest = client.oldestWrittenAt;
    const silenceMs = 0.9 * this.#world.schedule.times.commandTimeoutMs;
    // A store that nobody used any more has forgotten what it was waiting for.
    const isWatched = nameOf(script) !== "probe" && !lockIsGone;
    if (isWatched && oldest !== undefined && machine.monotonicMs() - oldest > silenceMs + 0.001) {
      this.#world.broken("silence", "a script was written on a silent connection");
    }
  }

  executes(copy: WrittenCopy, run: () => unknown): unknown {
    const { name } = this.#process.machine;
    this.#world.count(`executed: ${nameOf(copy.script)}`);
    this.#world.note(() => `Redis      executes ${nameOf(copy.script)} of ${name}`);
    return this.#world.executions.watch(copy, run);
  }

  reads(): void {
    this.#world.readAtStep = this.#world.loop.steps;
  }

  troubled(): () => void {
    return this.#process.health.troubled();
  }

  connected(client: SimulatedClient): void {
    this.#note(() => `connected ${lane(client)}`);
    if (client.isSecond) return;
    this.#untroubled?.();
    this.#untroubled = undefined;
  }

  closed(client: SimulatedClient): void {
    const { health } = this.#process;
    this.#note(() => `lost its connection ${lane(client)}`);
    // The second connection is opened anew; without the first there is none.
    if (client.isSecond) health.troubled()();
    else this.#untroubled ??= health.troubled();
  }

  #note(text: () => string): void {
    this.#world.note(() => `${this.#process.machine.name}  ${text()}`);
  }
}

function lane(client: SimulatedClient): string {
  return client.isSecond ? "[second]" : "[first]";
}
