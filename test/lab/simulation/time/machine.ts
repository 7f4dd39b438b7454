import type { EventLoop } from "./event-loop.ts";
import { type Phase, phase, type Task } from "./task-queue.ts";

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
    return this.#startsAt + this.#loop.now * this.rate;
  }

  wallMs(): number {
    return startOfTime + this.#wallOffsetMs + this.#loop.now * this.rate;
  }

  /** When the wall clock of this machine will show, or has shown, a time. */
  whenWallShows(wallMs: number): number {
    return (wallMs - startOfTime - this.#wallOffsetMs) / this.rate;
  }

  /** Its wall clock is corrected; the monotonic one never is. */
  setBack(ms: number): void {
    this.#wallOffsetMs -= ms;
  }

  random(): number {
    return this.#loop.noise.next();
  }

  /** It does nothing for a while: no timer fires, nothing is read. Its clocks go on. */
  pause(forMs: number): void {
    this.pausedUntil = Math.max(this.pausedUntil, this.#loop.now + forMs);
    this.resumedAt = this.pausedUntil;
  }

  /** @param delayMs by the right clock. */
  after(delayMs: number, run: () => void, inPhase: Phase = phase.poll): Task {
    return this.#loop.queue(this, this.#loop.now + delayMs, inPhase, run);
  }

  /** A timer that is not among `timers`: the end of a run does not ask who has left it. */
  setUncountedTimer(ms: number, run: () => void): Timer {
    const timer = this.setTimer(ms, false, run);
    this.timers.delete(timer);
    return timer;
  }

  setTimer(ms: unknown, everyTime: boolean, run: () => void): Timer {
    const wanted = Math.trunc(Number(ms));
    const delayMs = wanted >= 1 && wanted <= 2 ** 31 - 1 ? wanted : 1;
    const timer = new Timer(this, delayMs, everyTime, run);
    this.timers.add(timer);
    this.#arm(timer);
    return timer;
  }

  #arm(timer: Timer): void {
    // Node counts from the start of its turn, so that a timer may come a little early, or late.
    const noise = this.#loop.noise.deviation(-0.9, 1.5);
    const delayMs = Math.max(0.01, timer.delayMs / this.rate + noise);
    timer.task = this.after(
      delayMs,
      () => {
        if (!timer.everyTime) this.timers.delete(timer);
        timer.run();
        if (timer.everyTime && this.timers.has(timer)) this.#arm(timer);
      },
      phase.timers,
    );
  }
}

/** What `setTimeout` and `setInterval` give. */
export class Timer {
  readonly delayMs: number;
  readonly everyTime: boolean;
  readonly run: () => void;
  task: Task | undefined;
  isReferenced = true;
  readonly #machine: Machine;

  constructor(machine: Machine, delayMs: number, everyTime: boolean, run: () => void) {
    this.#machine = machine;
    this.delayMs = delayMs;
    this.everyTime = everyTime;
    this.run = run;
  }

  ref(): this {
    this.isReferenced = true;
    return this;
  }

  unref(): this {
    this.isReferenced = false;
    return this;
  }

  hasRef(): boolean {
    return this.isReferenced;
  }

  clear(): void {
    this.#machine.timers.delete(this);
    if (this.task !== undefined) this.task.cancelled = true;
  }
}
