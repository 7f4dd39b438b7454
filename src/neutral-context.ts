import { AsyncResource } from "node:async_hooks";

/**
 * The asynchronous context in which the package was loaded. A timer, a socket or a callback that
 * serves many requests runs in the context in which it was made: made in the first request's, it
 * would show that request's `AsyncLocalStorage` store to all the others, and keep it in memory.
 */
const neutral: AsyncResource = new AsyncResource("submit-lock");

/** Calls `fn` with the arguments in the asynchronous context in which the package was loaded. */
export function inNeutralContext<Args extends unknown[], Result>(
  fn: (...args: Args) => Result,
  ...args: Args
): Result {
  return neutral.runInAsyncScope(fn, undefined, ...args);
}
