import { AsyncResource } from "node:async_hooks";

/**
 * A timer, a socket or a callback that serves many requests runs in the asynchronous context in
 * which it was made. Made in the first request's context, it would show that request's
 * `AsyncLocalStorage` store to all the others, and keep it in memory. So it is made in this one, in
 * which there is none: the context in which the package was loaded.
 */
const neutral: AsyncResource = new AsyncResource("submit-lock");

/** Calls `fn` with the arguments outside every request's asynchronous context. */
export function inNeutralContext<Args extends unknown[], Result>(
  fn: (...args: Args) => Result,
  ...args: Args
): Result {
  return neutral.runInAsyncScope(fn, undefined, ...args);
}
