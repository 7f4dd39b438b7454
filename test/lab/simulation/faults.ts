import { tryAgainMs } from "./network/command-queues.ts";
import { type ClockPlan, type FaultPlan, hour, type Incident } from "./schedule.ts";
import { Machine, phase } from "./time/event-loop.ts";
import type { SimulatedProcess, World } from "./world.ts";

const refusals = [
  "LOADING Redis is loading the dataset in memory",
  "READONLY You can't write against a read only replica.",
  "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
  "NOPERM this user has no permissions to run the 'eval' command",
];

/**
 * How long until what was refused is written again: the pause doubles with each refusal, and so is
 * never much longer than the refusals have lasted.
 */
function longestPauseMs(refusedForMs: number): number {
  return Math.min(1_000, refusedForMs + 50);
}

/** Lets everything happen that a schedule has planned for servers, processes and networks. */
export class Faults {
  readonly #world: World;
  /** Nothing pauses it. */
  readonly #outside: Machine;
  /** When the last of them is over. */
  overAt = 0;

  constructor(world: World) {
    this.#world = world;
    this.#outside = new Machine(world.loop, "outside");
    const { clock, faults, isCluster, moving, replica } = world.schedule;
    for (const fault of faults) this.#plan(fault, () => this.#happen(fault));
    if (isCluster) this.#plan(moving, (forMs) => this.#move(forMs));
    this.#plan(clock, () => this.#setClock(clock as ClockPlan));
    this.#plan(replica?.stalled, (forMs) => this.#stall(forMs));
    this.#plan(replica?.failover, (forMs) => this.#failOver(forMs));
  }

  #plan(incident: Incident | undefined, happen: (forMs: number) => void): void {
    if (incident === undefined) return;
    const { atMs, forMs } = incident;
    this.overAt = Math.max(this.overAt, atMs + forMs);
    this.#outside.after(atMs, () => happen(forMs), phase.timers);
  }

  #stall(forMs: number): void {
    const { server } = this.#world;
    this.#world.count("fault: replica stalled");
    this.#world.note(() => `           replica stalled for ${forMs} ms`);
    server.replica.pause(forMs);
    this.#hamper(forMs);
  }

  #failOver(forMs: number): void {
    const { keyWatch, processes, server } = this.#world;
    this.#world.count("fault: failover");
    this.#world.note(() => `           failover, nobody serves for ${forMs} ms`);
    server.failOver(forMs);
    keyWatch.failedOver();
    this.#trouble(processes, forMs);
    this.#resetAll(false);
  }

  #happen(fault: FaultPlan): void {
    const { server, processes } = this.#world;
    const process = this.#world.processOf(fault.process);
    const { forMs, stillLands } = fault;
    this.#world.count(`fault: ${fault.kind}`);
    this.#world.note(() => `           ${fault.kind} (${process.machine.name}) for ${forMs} ms`);
    switch (fault.kind) {
      case "server paused":
        server.machine.pause(forMs);
        this.#trouble(processes, forMs);
        break;
      case "server restarted empty":
        server.restart(forMs);
        this.#world.keyWatch.lost();
        this.#trouble(processes, forMs);
        this.#resetAll(false);
        break;
      case "server refusing":
        server.refuse(refusals[fault.atMs % refusals.length] as string, forMs);
        this.#trouble(processes, forMs + longestPauseMs(forMs));
        break;
      case "server full":
        server.fill("full", forMs);
        this.#hamper(forMs);
        break;
      case "server strictly full":
        server.fill("strictly full", forMs);
        this.#trouble(processes, forMs + longestPauseMs(forMs));
        break;
      case "scripts flushed":
        server.forgetScripts();
        break;
      case "select refused":
        // Connections that come up meanwhile stay in database 0.
        server.refuseSelect(forMs);
        this.#trouble(processes, forMs);
        this.#resetAll(stillLands);
        break;
      case "server set back":
        server.setBack(stillLands ? forMs : hour);
        break;
      case "process killed":
        this.#kill(process, stillLands);
        break;
      case "process paused":
        process.machine.pause(forMs);
        this.#trouble([process], forMs);
        break;
      case "process suspended":
        process.machine.suspend(forMs);
        this.#trouble([process], forMs);
        break;
      case "process cut off":
        process.cutOffUntil = Math.max(process.cutOffUntil, this.#world.loop.now + forMs);
        for (const client of process.clients) client.connection?.stall(process.cutOffUntil);
        this.#trouble([process], forMs);
        break;
      case "connections reset":
        this.#trouble([process], 0);
        this.#reset(process, stillLands);
        break;
    }
  }

  #setClock({ forMs, isAhead, process: index }: ClockPlan): void {
    const { faults, times } = this.#world.schedule;
    const process = this.#world.processOf(index);
    const { machine } = process;
    const { now } = this.#world.loop;
    // The limit of P1: a clock that is set back hides a sleep, and one that begins shortly after.
    const isHidden = ({ atMs, forMs: sleepsMs, kind, process: slept }: FaultPlan) =>
      kind === "process suspended" &&
      this.#world.processOf(slept) === process &&
      (!isAhead || (now + forMs > atMs - times.ttlMs / 2 && now < atMs + sleepsMs));
    if (faults.some(isHidden)) return;
    this.#world.count("fault: wrong clock");
    this.#world.note(() => `           wrong clock (${machine.name}) for ${forMs} ms`);
    const aheadMs = isAhead ? forMs : -forMs;
    machine.setWallClock(aheadMs);
    this.#outside.after(forMs, () => machine.setWallClock(-aheadMs));
    this.#trouble([process], forMs);
  }

  /** Two keys of a slot that is being moved cannot be reached at once. */
  #move(forMs: number): void {
    const { processes, server } = this.#world;
    this.#world.count("fault: slot moving");
    this.#world.note(() => `           slot moving for ${forMs} ms`);
    server.move(forMs);
    // What was refused last is written again that much later.
    this.#trouble(processes, forMs + tryAgainMs);
  }

  /** SIGKILL: its system closes the connections, and nobody is there to see it. */
  #kill(process: SimulatedProcess, stillLands: boolean): void {
    process.machine.isDead = true;
    for (const { connection } of process.clients) connection?.closeAtClient(stillLands);
    this.#world.leaseWatch.died(process);
  }

  #trouble(processes: readonly SimulatedProcess[], forMs: number): void {
    for (const { health } of processes) this.#outside.after(forMs, health.troubled(true));
  }

  #hamper(forMs: number): void {
    for (const { health } of this.#world.processes) this.#outside.after(forMs, health.hampered());
  }

  #resetAll(stillLands: boolean): void {
    for (const each of this.#world.processes) this.#reset(each, stillLands);
  }

  #reset(process: SimulatedProcess, stillLands: boolean): void {
    for (const client of process.clients) {
      const { connection } = client;
      // The reset itself travels too, and is seen when the process runs.
      process.machine.after(0.1, () => client.lose(connection, stillLands));
    }
  }
}
