import { performance as nodePerformance } from "node:perf_hooks";
import { nextTick as nodeNextTick } from "node:process";
import {
  clearTimeout as nodeClearTimeout,
  setImmediate as nodeSetImmediate,
  setTimeout as nodeSetTimeout,
} from "node:timers";
import { setImmediate as nodeNextTurn, setTimeout as nodeSleep } from "node:timers/promises";

/*
 * Node's clocks and timers as they were when the package was loaded. Tests of an application may
 * replace the globals and the methods of `node:timers`. A lock that used these replacements would
 * never settle an attempt again, and would grant a lease whose time stands still.
 */
export let setTimeout: typeof nodeSetTimeout = nodeSetTimeout;
export let clearTimeout: typeof nodeClearTimeout = nodeClearTimeout;
export let setImmediate: typeof nodeSetImmediate = nodeSetImmediate;
export let sleep: typeof nodeSleep = nodeSleep;
export const nextTick: typeof nodeNextTick = nodeNextTick;
export const nextTurn: typeof nodeNextTurn = nodeNextTurn;
export const wallClock: { now: () => number } = { now: Date.now };
export const performance: { now: () => number; readonly timeOrigin: number } = {
  now: nodePerformance.now.bind(nodePerformance),
  timeOrigin: nodePerformance.timeOrigin,
};

interface Timers {
  readonly setTimeout: typeof nodeSetTimeout;
  readonly clearTimeout: typeof nodeClearTimeout;
  readonly setImmediate: typeof nodeSetImmediate;
  readonly sleep: typeof nodeSleep;
}

/** Called by this package's own tests, which run on a virtual time. */
export function replaceTimers(timers: Timers): void {
  ({ setTimeout, clearTimeout, setImmediate, sleep } = timers);
}
