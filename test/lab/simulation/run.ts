import { Faults } from "./faults.ts";
import { Operations } from "./operations.ts";
import type { Report } from "./report.ts";
import type { Schedule } from "./schedule.ts";
import { Simulation } from "./simulation.ts";
import { on } from "./time/event-loop.ts";
import { installVirtualTime } from "./time/globals.ts";

/** No run takes longer than this: something goes on for ever. */
const mostSteps = 100_000;

/** Runs one schedule to its end, or to the first thing that must not be. */
export async function run(schedule: Schedule, isTold = false): Promise<Report> {
  // Before anything is made: a clock that is read in a constructor is virtual too.
  installVirtualTime();
  const simulation = new Simulation(schedule, isTold);
  const unhandled = (reason: unknown) => {
    simulation.verdict.broken("rejection", String(reason instanceof Error ? reason.stack : reason));
  };
  process.on("unhandledRejection", unhandled);
  try {
    await play(simulation);
  } finally {
    process.off("unhandledRejection", unhandled);
  }
  simulation.report.violation = simulation.verdict.violation;
  return simulation.report;
}

async function play(simulation: Simulation): Promise<void> {
  const { loop, verdict } = simulation;
  const operations = new Operations(simulation);
  const faults = new Faults(simulation);
  const until = async (isDone: () => boolean) => {
    await loop.until(() => simulation.check() || loop.steps > mostSteps || isDone());
    if (loop.steps > mostSteps) verdict.broken("leftover", "it never comes to an end");
    return verdict.violation === undefined;
  };

  if (!(await until(() => operations.areOver && loop.now >= faults.overAt))) return;
  simulation.note(() => "           every operation and every fault is over");

  let closing = simulation.processes.length;
  for (const process of simulation.processes) {
    process.machine.after(0, () => {
      void operations.close(process, 0).finally(() => closing--);
    });
  }
  if (!(await until(() => closing === 0))) return;

  const { acquireTimeoutMs, ttlMs } = simulation.schedule.times;
  const restMs = 2 * acquireTimeoutMs + ttlMs + 200;
  const restUntil = loop.now + restMs;
  simulation.processes[0]?.machine.after(restMs, () => {});
  if (!(await until(() => loop.now >= restUntil))) return;
  checkLeftovers(simulation);
}

/** The network is healthy, every lock is closed, and every retire has had its time. */
function checkLeftovers(simulation: Simulation): void {
  const { verdict, server, processes, owners } = simulation;
  for (const { machine, client, clients } of processes) {
    if (machine.timers.size > 0) {
      const [timer] = machine.timers;
      verdict.broken("leftover", `${machine.name} has a timer of ${timer?.delayMs} ms`);
    }
    const kept = [...clients].filter(({ isDisconnecting }) => !isDisconnecting);
    if (kept.length > 1) verdict.broken("leftover", `${machine.name} keeps a second connection`);
    const listeners = client
      .eventNames()
      .reduce((sum, name) => sum + client.listenerCount(name), 0);
    if (listeners > 0) {
      verdict.broken("leftover", `${machine.name} leaves ${listeners} listeners on its client`);
    }
    on(machine, () => client.disconnect());
  }
  for (const key of server.keys.names()) {
    const entry = server.look(key);
    if (entry === undefined) continue;
    const owner = owners.of(String(entry.value), key);
    if (owner.participant !== undefined)
      verdict.broken("leftover", `${key} still holds ${owner.name}`);
  }
}
