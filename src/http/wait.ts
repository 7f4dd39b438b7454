import { setTimeout as sleep } from "node:timers/promises";
import type { LookUp } from "../lock/look-up.ts";

/**
 * Waits until the same submission is no longer in flight, and tells what became of it. Never takes
 * the lock: a click that waits for the first must not become a second order.
 *
 * @param waitMs the longest wait, in milliseconds.
 * @param isGone whether nobody waits for the answer any more.
 */
export async function waitForAnswer(
  look: () => Promise<LookUp>,
  waitMs: number,
  isGone: () => boolean,
): Promise<LookUp> {
  const endsAt = performance.now() + waitMs;
  for (let pauseMs = 25; ; pauseMs = Math.min(2 * pauseMs, 200)) {
    const leftMs = endsAt - performance.now();
    if (leftMs <= 0) return { outcome: "in-flight" };
    await sleep(Math.min(pauseMs, leftMs));
    if (isGone()) return { outcome: "in-flight" };
    const found = await look();
    // A store that does not say is asked again.
    if (found.outcome !== "in-flight" && found.outcome !== "unknown") return found;
  }
}
