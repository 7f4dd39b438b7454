import type { Machine } from "./machine.ts";
import type { Noise } from "./random.ts";
import { type Phase, type Task, TaskQueue } from "./task-queue.ts";

// Taken before anything is replaced.
const nextRealTurn = globalThis.setImmediate;

/** How many steps are taken in one turn of the real event loop. */
const stepsInOneTurn = 64;

/** The machine whose code runs at the moment, if it is one of a simulation. */
let running: Machine | undefined;

export function runningMachine(): Machine | undefined {
  return running;
}

/** Runs code as if on this machine: its clocks, its timers. */
export function on<Result>(machine: Machine, run: () => Result): Result {
  const before = running;
  running = machine;
  try {
    return run();
  } finally {
    running = before;
  }
}

/**
 * Virtual time for several machines at once. Each step is one callback of one machine, in a turn of
 * its own of Node's real loop, so that ticks and promises are settled by Node itself, in its order.
 */
export class EventLoop {
  now = 0;
  steps = 0;
  /** The phase of the callback that runs at the moment. */
  phase: Phase | undefined;
  readonly noise: Noise;
  readonly #tasks = new TaskQueue();
  #order = 0;

  constructor(noise: Noise) {
    this.noise = noise;
  }

  queue(machine: Machine, at: number, phase: Phase, run: () => void): Task {
    const task: Task = { at, phase, order: this.#order++, machine, run, cancelled: false };
    this.#tasks.push(task);
    return task;
  }

  /** Goes on until the condition holds, which is looked at between steps, or nothing is left to do. */
  async until(isDone: () => boolean): Promise<void> {
    for (;;) {
      if (await this.#oneRealTurn(isDone)) return;
    }
  }

  #oneRealTurn(isDone: () => boolean): Promise<boolean> {
    return new Promise((resolve, reject) => {
      let done = false;
      const step = () => {
        // What the last step left in the promise queue has run by now.
        running = undefined;
        if (done) return;
        try {
          done = isDone() || !this.#step();
        } catch (error) {
          done = true;
          running = undefined;
          reject(error);
        }
      };
      for (let i = 0; i < stepsInOneTurn; i++) nextRealTurn(step);
      nextRealTurn(() => {
        running = undefined;
        resolve(done);
      });
    });
  }

  #step(): boolean {
    for (;;) {
      const task = this.#tasks.pop();
      if (task === undefined) return false;
      if (task.cancelled) continue;
      const { machine } = task;
      if (machine.isDead) continue;
      if (machine.pausedUntil > task.at) {
        // Same phase, same order: a machine that goes on fires its timers first and then reads.
        task.at = machine.pausedUntil;
        this.#tasks.push(task);
        continue;
      }
      this.now = task.at;
      this.steps++;
      this.phase = task.phase;
      running = machine;
      task.run();
      if (machine.runsJavaScript) return true;
      running = undefined;
    }
  }
}
