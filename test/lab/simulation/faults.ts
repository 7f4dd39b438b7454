import type { FaultPlan } from "./schedule.ts";
import type { SimulatedProcess, Simulation } from "./simulation.ts";
import { Machine } from "./time/machine.ts";
import { phase } from "./time/task-queue.ts";

const refusals = [
  "LOADING Redis is loading the dataset in memory",
  "READONLY You can't write against a read only replica.",
  "OOM command not allowed when used memory > 'maxmemory'.",
  "NOPERM this user has no permissions to run the 'eval' command",
];

/** Lets everything happen that a schedule has planned for servers, processes and networks. */
export class Faults {
  readonly #simulation: Simulation;
  /** Nothing pauses it. */
  readonly #outside: Machine;
  /** When the last of them is over. */
  readonly overAt: number;

  constructor(simulation: Simulation) {
    this.#simulation = simulation;
    this.#outside = new Machine(simulation.loop, "outside");
    const { faults } = simulation.schedule;
    for (const fault of faults) {
      this.#outside.after(fault.atMs, () => this.#happen(fault), phase.timers);
    }
    this.overAt = Math.max(0, ...faults.map(({ atMs, forMs }) => atMs + forMs));
  }

  #happen(fault: FaultPlan): void {
    const { server, processes } = this.#simulation;
    const process = this.#simulation.processOf(fault.process);
    const { forMs, stillLands } = fault;
    this.#simulation.count(`fault: ${fault.kind}`);
    this.#simulation.note(
      () => `           ${fault.kind} (${process.machine.name}) for ${forMs} ms`,
    );
    switch (fault.kind) {
      case "server paused":
        server.machine.pause(forMs);
        this.#trouble(processes, forMs);
        break;
      case "server restarted empty":
        server.restart(forMs);
        this.#simulation.keyObserver.lost();
        this.#trouble(processes, forMs);
        for (const each of processes) this.#reset(each, false);
        break;
      case "server refusing":
        server.refuse(refusals[fault.atMs % refusals.length] as string, forMs);
        this.#trouble(processes, forMs);
        break;
      case "process paused":
        process.machine.pause(forMs);
        this.#trouble([process], forMs);
        break;
      case "process cut off":
        process.cutOffUntil = Math.max(process.cutOffUntil, this.#simulation.loop.now + forMs);
        for (const client of process.clients) client.connection?.stall(process.cutOffUntil);
        this.#trouble([process], forMs);
        break;
      case "connections reset":
        this.#trouble([process], 0);
        this.#reset(process, stillLands);
        break;
    }
  }

  #trouble(processes: readonly SimulatedProcess[], forMs: number): void {
    for (const { health } of processes) this.#outside.after(forMs, health.troubled(true));
  }

  #reset(process: SimulatedProcess, stillLands: boolean): void {
    for (const client of process.clients) {
      const { connection } = client;
      // The reset itself travels too, and is seen when the process runs.
      process.machine.after(0.1, () => client.lose(connection, stillLands));
    }
  }
}
