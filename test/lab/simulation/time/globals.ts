import { syncBuiltinESMExports } from "node:module";
import timersPromises from "node:timers/promises";
import { phase, runningMachine, Timer } from "./event-loop.ts";

let isInstalled = false;

/**
 * Puts virtual time in the place of Node's, once and for good, for code that runs on a simulated
 * machine and for no other: whatever else runs in this process keeps the real one.
 * `process.nextTick` and promises stay Node's own.
 */
export function installVirtualTime(): void {
  if (isInstalled) return;
  isInstalled = true;
  const real = {
    setTimeout: globalThis.setTimeout,
    setInterval: globalThis.setInterval,
    setImmediate: globalThis.setImmediate,
    clearTimeout: globalThis.clearTimeout,
    clearInterval: globalThis.clearInterval,
    now: Date.now,
    monotonic: performance.now,
    random: Math.random,
    sleep: timersPromises.setTimeout,
  };

  const set =
    (realSet: typeof setTimeout | typeof setInterval, everyTime: boolean) =>
    (run: (...given: unknown[]) => void, ms?: number, ...given: unknown[]): unknown => {
      const machine = runningMachine();
      if (machine === undefined) return realSet(run, ms, ...given);
      return machine.setTimer(ms, everyTime, () => run(...given));
    };
  const clear =
    (realClear: typeof clearTimeout) =>
    (timer?: unknown): void => {
      if (timer instanceof Timer) timer.clear();
      else realClear(timer as NodeJS.Timeout);
    };

  Object.assign(globalThis, {
    setTimeout: set(real.setTimeout, false),
    setInterval: set(real.setInterval, true),
    clearTimeout: clear(real.clearTimeout),
    clearInterval: clear(real.clearInterval),
    setImmediate: (run: (...given: unknown[]) => void, ...given: unknown[]): unknown => {
      const machine = runningMachine();
      if (machine === undefined) return real.setImmediate(run, ...given);
      return machine.after(0, () => run(...given), phase.check);
    },
  });
  Date.now = () => {
    const machine = runningMachine();
    return machine === undefined ? real.now() : Math.floor(machine.wallMs());
  };
  performance.now = () => {
    const machine = runningMachine();
    return machine === undefined ? real.monotonic.call(performance) : machine.monotonicMs();
  };
  Math.random = () => runningMachine()?.random() ?? real.random();
  timersPromises.setTimeout = ((ms?: number, value?: unknown, options?: object) => {
    const machine = runningMachine();
    if (machine === undefined) return real.sleep(ms, value, options);
    return new Promise<unknown>((resolve) => {
      machine.setTimer(ms, false, () => resolve(value));
    });
  }) as typeof timersPromises.setTimeout;
  syncBuiltinESMExports();
}
