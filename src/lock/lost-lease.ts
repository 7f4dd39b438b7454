import type { LostReason } from "../errors.ts";
import { clearTimeout, performance, setTimeout } from "../time.ts";
import { inNeutralContext } from "../timers.ts";
import { warnOnce } from "../validation.ts";
import { type CallerCommand, isNoAnswer, type LockRuntime, write } from "./runtime.ts";
import type { OutliveRequest, OwnedReply } from "./store.ts";

export const explanations: Record<LostReason, string> = {
  expired: "it could not be extended in time",
  overtaken: "the key was gone or held another value",
  freed: "a person has taken the lock away",
  "max-hold": "it cannot be extended beyond maxHoldMs",
  closed: "close() was called, and its timeoutMs ended before the lease",
};

/** Calls `look` before the signal says whether, or why, it is aborted. */
export function lookedAt(signal: AbortSignal, look: () => void): void {
  const own = (name: "aborted" | "reason") => {
    const get = Object.getOwnPropertyDescriptor(AbortSignal.prototype, name)?.get;
    return {
      configurable: true,
      get: () => {
        look();
        return get?.call(signal);
      },
    };
  };
  const throwIfAborted = () => {
    if (signal.aborted) throw signal.reason;
  };
  Object.defineProperties(signal, {
    aborted: own("aborted"),
    reason: own("reason"),
    throwIfAborted: { configurable: true, value: throwIfAborted },
  });
}

/** How long, in ms, the traces of a user's orders are kept after the last trace was written. */
const outlivedMs = 3_600_000;

/** The pauses between two sends of a trace that was not answered, in ms. */
const [shortestPauseMs, longestPauseMs] = [250, 4_000];

/**
 * Rule 19: makes `inspect` show an order.
 * @param endedAtMs store's time when the lock ended.
 * @returns what to call when the order ends.
 */
export function outlives(
  runtime: LockRuntime,
  command: CallerCommand,
  reason: LostReason,
  endedAtMs: number,
  heldMs: number,
): () => void {
  if (reason === "max-hold") {
    const { maxHoldMs } = command.times;
    warnOnce(
      "SUBMIT_LOCK_OUTLIVED",
      `an order had not ended when its lock did, after maxHoldMs (${maxHoldMs} ms): the user's next order runs beside it. Pass lease.signal to all that the order awaits, or set a maxHoldMs that is longer than the longest order. A handler may also hang: a promise that never settles, or an answer that is never sent`,
    );
  }
  const takenAtMs = endedAtMs - Math.round(heldMs);
  const stop = writeTrace(runtime, command, { reason, takenAtMs, endedAtMs }, outlivedMs);
  return () => {
    if (stop()) writeTrace(runtime, command, undefined, 2 * runtime.patienceMs);
  };
}

/**
 * Sends a trace, or its end, until it is answered: the lock may be lost by an outage of the store.
 * @returns a function that stops this, and returns whether the store may have the trace.
 */
function writeTrace(
  runtime: LockRuntime,
  command: CallerCommand,
  trace: OutliveRequest["trace"],
  lifeMs: number,
): () => boolean {
  const { store, traces } = runtime;
  const givenUpAt = performance.now() + outlivedMs;
  let mayBeThere = false;
  let isStopped = store.outlive === undefined;
  let timer: NodeJS.Timeout | undefined;
  let pauseMs = shortestPauseMs;
  const answer = (reply: OwnedReply) => {
    traces.done();
    mayBeThere ||= reply.kind !== "unsent";
    // Give up a refused end: the trace expires, and the store may refuse each one.
    const isOver = !isNoAnswer(reply) || (trace === undefined && reply.kind === "rejected");
    if (isOver || isStopped || runtime.isDrained || performance.now() > givenUpAt) return;
    // After an outage the traces of many orders do not arrive in one moment.
    timer = inNeutralContext(setTimeout, send, pauseMs * (1 + Math.random())).unref();
    pauseMs = Math.min(2 * pauseMs, longestPauseMs);
  };
  const send = () => {
    timer = undefined;
    traces.count++;
    write(store, "outlive", { command, deadlineMs: undefined, trace, lifeMs, answer });
  };
  if (!isStopped) send();
  return () => {
    isStopped = true;
    clearTimeout(timer);
    // Without a timer, a send is under way.
    return mayBeThere || timer === undefined;
  };
}
