import { setTimeout as sleep } from "node:timers/promises";

export interface UntilOptions {
  /** What is awaited, as it is to read in the error. */
  what: string;
  /** @defaultValue 15 000: less than the life of a lock that has to be seen released. */
  boundMs?: number;
  /** @defaultValue a tenth of the time waited so far, 5 to 25: who waits for long costs little */
  everyMs?: number;
}

/**
 * Asks until the answer is truthy and resolves with it. An error that `condition` throws ends the
 * waiting at once.
 */
export async function until<T>(
  condition: () => T | Promise<T>,
  { what, boundMs = 15_000, everyMs }: UntilOptions,
): Promise<Exclude<T, false | null | undefined | 0 | "">> {
  const from = performance.now();
  const end = from + boundMs;
  for (;;) {
    // The last look comes after the bound, so a test process that was held up itself still sees
    // what has become true meanwhile.
    const late = performance.now() >= end;
    const value = await condition();
    if (value) return value as Exclude<T, false | null | undefined | 0 | "">;
    if (late) {
      throw new Error(`Waited ${boundMs} ms for ${what}; the last answer was ${show(value)}.`);
    }
    await sleep(everyMs ?? Math.min(Math.max(5, (performance.now() - from) / 10), 25));
  }
}

function show(value: unknown): string {
  return typeof value === "string" ? JSON.stringify(value) : String(value);
}
