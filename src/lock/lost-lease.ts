import type { LostReason } from "../errors.ts";
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

/** Rule 19: makes `inspect` show an order. @param endedAtMs store's time when the lock ended. */
export function outlives(
  runtime: LockRuntime,
  command: CallerCommand,
  reason: LostReason,
  endedAtMs: number,
  heldMs: number,
): void {
  if (reason === "max-hold") {
    const { maxHoldMs } = command.times;
    warnOnce(
      "SUBMIT_LOCK_OUTLIVED",
      `an order had not ended when its lock did, after maxHoldMs (${maxHoldMs} ms): the user's next order runs beside it. Pass lease.signal to all that the order awaits, or set a maxHoldMs that is longer than the longest order. A handler may also hang: a promise that never settles, or an answer that is never sent`,
    );
  }
  const takenAtMs = endedAtMs - Math.round(heldMs);
  writeTrace(runtime, command, { reason, takenAtMs, endedAtMs }, outlivedMs);
}

export function orderEnds(runtime: LockRuntime, command: CallerCommand): void {
  writeTrace(runtime, command, undefined, 2 * runtime.patienceMs);
}

/** Sends a trace, or its end, and again at each new connection, until it is answered. */
function writeTrace(
  { store, traces, unwritten }: LockRuntime,
  command: CallerCommand,
  trace: OutliveRequest["trace"],
  lifeMs: number,
): void {
  if (store.outlive === undefined) return;
  const { ownerId } = command;
  const send = () => {
    traces.count++;
    write(store, "outlive", { command, deadlineMs: undefined, trace, lifeMs, answer });
  };
  const answer = (reply: OwnedReply) => {
    traces.done();
    // Give up a refused end, because the trace expires, and the server may refuse each one.
    const isOver = !isNoAnswer(reply) || (trace === undefined && reply.kind === "rejected");
    if (isOver && unwritten.get(ownerId) === send) unwritten.delete(ownerId);
  };
  unwritten.set(ownerId, send);
  send();
}
