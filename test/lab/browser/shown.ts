import { type UntilOptions, until } from "../../support/until.ts";

/** How long a step waits for what it names: a busy machine is 30 s late now and then. */
export const boundMs = 120_000;

/** As `until`, for what a page shows or sends. */
export const untilShown = <T>(condition: () => T | Promise<T>, options: UntilOptions) =>
  until(condition, { boundMs, ...options });
