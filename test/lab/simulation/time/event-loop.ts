import {
  clearTimeout,
  performance,
  replaceTimers,
  setImmediate,
  setTimeout,
  sleep,
  wallClock,
} from "../../../../src/time.ts";
import type { Noise } from "./random.ts";

let isInstalled = false;

/**
 * Puts virtual time in the place of the package's, once and for good, for code that runs on a simulated
 * machine and for no other: whatever else runs in this process keeps the real one.
 * `process.nextTick` and promises stay Node's own.
 */
export function installVirtualTime(): void {
  if (isInstalled) return;
  isInstalled = true;
  const real = { clearTimeout, setImmediate, setTimeout, sleep };
  const { now: monotonicNow } = performance;
  const { now: wallNow } = Date;
  const { random } = Math;

  Date.now = () => {
    const machine = runningMachine();
    return machine === undefined ? wallNow() : Math.floor(machine.wallMs());
  };
  Math.random = () => runningMachine()?.random() ?? random();
  const virtual = {
    setTimeout: (run: (...given: unknown[]) => void, ms?: number, ...given: unknown[]): unknown => {
      const machine = runningMachine();
      if (machine === undefined) return real.setTimeout(run, ms, ...given);
      return machine.setTimer(ms, () => run(...given));
    },
    clearTimeout: (timer?: unknown): void => {
      if (timer instanceof Timer) timer.clear();
      else real.clearTimeout(timer as NodeJS.Timeout);
    },
    setImmediate: (run: (...given: unknown[]) => void, ...given: unknown[]): unknown => {
      const machine = runningMachine();
      if (machine === undefined) return real.setImmediate(run, ...given);
      return machine.after(0, () => run(...given), phase.check);
    },
    sleep: (ms?: number, value?: unknown, options?: object): Promise<unknown> => {
      const machine = runningMachine();
      if (machine === undefined) return real.sleep(ms, value, options);
      return new Promise((resolve) => {
        machine.setTimer(ms, () => resolve(value));
      });
    },
  };
  replaceTimers(virtual as Parameters<typeof replaceTimers>[0]);
  performance.now = () => {
    const machine = runningMachine();
    return machine === undefined ? monotonicNow() : machine.monotonicMs();
  };
  wallClock.now = Date.now;
}

// Taken before anything is replaced.
const nextRealTurn = setImmediate;

/** How many steps are taken in one turn of the real event loop. */
const stepsInOneTurn = 64;

/** The phases of a turn of Node's event loop, in their order. */
export const phase = { timers: 0, poll: 1, check: 2 } as const;
type Phase = (typeof phase)[keyof typeof phase];

export interface Task {
  at: number;
  readonly phase: Phase;
  readonly order: number;
  readonly machine: Machine;
  readonly run: () => void;
  cancelled: boolean;
  /** It was due while its machine was paused, and is done as soon as that goes on. */
  isOverdue?: true;
}

/** The machine whose code runs at the moment, if it is one of a simulation. */
let running: Machine | undefined;

function runningMachine(): Machine | undefined {
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
  /** The next one last. */
  readonly #tasks: Task[] = [];
  #order = 0;

  constructor(noise: Noise) {
    this.noise = noise;
  }

  queue(machine: Machine, at: number, phase: Phase, run: () => void): Task {
    const task: Task = { at, phase, order: this.#order++, machine, run, cancelled: false };
    this.#insert(task);
    return task;
  }

  #insert(task: Task): void {
    const later = this.#tasks.findLastIndex((other) => isBefore(task, other));
    this.#tasks.splice(later + 1, 0, task);
  }

  /** The timers of a machine that sleeps come so much later, unless they were due before. */
  delayTimers(machine: Machine, ms: number): void {
    const isOne = (task: Task) =>
      task.machine === machine && task.phase === phase.timers && task.isOverdue !== true;
    const delayed = this.#tasks.filter(isOne);
    const others = this.#tasks.filter((task) => !isOne(task));
    this.#tasks.splice(0, this.#tasks.length, ...others);
    for (const task of delayed) {
      task.at += ms;
      this.#insert(task);
    }
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
        task.isOverdue = true;
        this.#insert(task);
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

/** By time, then by phase, then by the order in which they were queued. */
function isBefore(one: Task, other: Task): boolean {
  if (one.at !== other.at) return one.at < other.at;
  if (one.phase !== other.phase) return one.phase < other.phase;
  return one.order < other.order;
}

export interface Clocks {
  /** How fast its clocks run; 1 is right. */
  readonly rate?: number;
  /** What its monotonic clock shows at the start. */
  readonly startsAt?: number;
  /** How wrong its wall clock is, in milliseconds. */
  readonly wallOffsetMs?: number;
  /** JavaScript runs here: promises are settled before anything else happens. */
  readonly runsJavaScript?: boolean;
}

/** The right time of day at the start of every run. */
const startOfTime = 1_800_000_000_000;

/** A computer, or the process on it: its clocks, its timers, and whether it runs at the moment. */
export class Machine {
  readonly name: string;
  readonly rate: number;
  readonly runsJavaScript: boolean;
  /** Timers that have not fired yet, without those that are nobody's to clear. */
  readonly timers = new Set<Timer>();
  /** It will never do anything again, and what it has sent is on its way. */
  isDead = false;
  pausedUntil = 0;
  resumedAt = 0;
  /** For how long its monotonic clock has stood still. */
  sleptMs = 0;
  /** When its wall clock was last set forward. */
  setForwardAt = Number.NEGATIVE_INFINITY;
  /** By how much it was set forward, all in all. */
  setForwardMs = 0;
  #sleepsUntil = 0;
  readonly #loop: EventLoop;
  readonly #startsAt: number;
  #wallOffsetMs: number;

  constructor(loop: EventLoop, name: string, clocks: Clocks = {}) {
    this.#loop = loop;
    this.name = name;
    this.rate = clocks.rate ?? 1;
    this.runsJavaScript = clocks.runsJavaScript ?? false;
    this.#startsAt = clocks.startsAt ?? 0;
    this.#wallOffsetMs = clocks.wallOffsetMs ?? 0;
  }

  get isPaused(): boolean {
    return this.pausedUntil > this.#loop.now;
  }

  monotonicMs(): number {
    return this.#startsAt + (this.#loop.now - this.sleptMs) * this.rate;
  }

  wallMs(): number {
    return startOfTime + this.#wallOffsetMs + this.#loop.now * this.rate;
  }

  /** When the wall clock of this machine will show, or has shown, a time. */
  whenWallShows(wallMs: number): number {
    return (wallMs - startOfTime - this.#wallOffsetMs) / this.rate;
  }

  /** Its wall clock is corrected; the monotonic one never is. @param byMs back if it is negative. */
  setWallClock(byMs: number): void {
    this.#wallOffsetMs += byMs;
    if (byMs <= 0) return;
    this.setForwardAt = this.#loop.now;
    this.setForwardMs += byMs;
  }

  random(): number {
    return this.#loop.noise.next();
  }

  /** It does nothing for a while: no timer fires, nothing is read. Its clocks go on. */
  pause(forMs: number): void {
    this.pausedUntil = Math.max(this.pausedUntil, this.#loop.now + forMs);
    this.resumedAt = this.pausedUntil;
  }

  /**
   * A laptop that is closed, or a virtual machine that is moved: as paused, but its monotonic clock
   * stands still, and its timers with it.
   */
  suspend(forMs: number): void {
    const { now } = this.#loop;
    this.pause(forMs);
    // One that sleeps already sleeps on.
    const moreMs = Math.max(0, now + forMs - Math.max(now, this.#sleepsUntil));
    this.#sleepsUntil = Math.max(this.#sleepsUntil, now + forMs);
    this.sleptMs += moreMs;
    this.#loop.delayTimers(this, moreMs);
  }

  /** Lets time pass for all machines, by the right clock. */
  async pass(ms: number): Promise<void> {
    const until = this.#loop.now + ms;
    // Something to do then: the loop goes on from one thing to the next.
    this.after(ms, () => {});
    await this.#loop.until(() => this.#loop.now >= until);
  }

  /** @param delayMs by the right clock. */
  after(delayMs: number, run: () => void, inPhase: Phase = phase.poll): Task {
    return this.#loop.queue(this, this.#loop.now + delayMs, inPhase, run);
  }

  /** A timer that is not among `timers`: the end of a run does not ask who has left it. */
  setUncountedTimer(ms: number, run: () => void): Timer {
    const timer = this.setTimer(ms, run);
    this.timers.delete(timer);
    return timer;
  }

  setTimer(ms: unknown, run: () => void): Timer {
    const wanted = Math.trunc(Number(ms));
    const delayMs = wanted >= 1 && wanted <= 2 ** 31 - 1 ? wanted : 1;
    const timer = new Timer(this.timers, delayMs);
    // Node counts from the start of its turn, so that a timer may come a little early, or late.
    const noise = this.#loop.noise.deviation(-0.9, 1.5);
    const fire = () => {
      this.timers.delete(timer);
      run();
    };
    timer.task = this.after(Math.max(0.01, delayMs / this.rate + noise), fire, phase.timers);
    this.timers.add(timer);
    return timer;
  }
}

/** What `setTimeout` gives. */
export class Timer {
  readonly delayMs: number;
  task: Task | undefined;
  readonly #pending: Set<Timer>;

  constructor(pending: Set<Timer>, delayMs: number) {
    this.#pending = pending;
    this.delayMs = delayMs;
  }

  /** No run ends by itself, so that no timer keeps it. */
  ref(): this {
    return this;
  }

  unref(): this {
    return this;
  }

  clear(): void {
    this.#pending.delete(this);
    if (this.task !== undefined) this.task.cancelled = true;
  }
}
