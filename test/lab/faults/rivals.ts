import { setTimeout as sleep } from "node:timers/promises";
import type { Ledger } from "../ledger.ts";
import { callBoundMs, settled } from "./bounded.ts";
import type { Contender } from "./library.ts";

const everyMs = 20;

export interface Rival {
  stop(): Promise<void>;
}

/**
 * Another request of the same user on a healthy connection: tries all the time, and holds for
 * `holdMs` when it gets the lock. A short hold proves an overlap as well as a long one, and leaves
 * the key free for whatever lands late; a long one can be deleted by somebody else's late release.
 */
export function startRival(
  contender: Contender,
  user: string,
  { who, holdMs, ledger }: { who: string; holdMs: number; ledger: Ledger },
): Rival {
  let stopped = false;
  const run = async (): Promise<void> => {
    while (!stopped) {
      const answer = await settled(contender.acquire(user), callBoundMs);
      if (answer.kind === "fulfilled" && answer.value.outcome === "acquired") {
        const { hold } = answer.value;
        const holding = ledger.begin({
          holder: who,
          user,
          ownerId: hold.ownerId,
          from: performance.now(),
        });
        if (holdMs > 0) await sleep(holdMs);
        ledger.end(holding, performance.now());
        await settled(hold.release(), callBoundMs);
      }
      await sleep(everyMs);
    }
  };
  const running = run();
  return {
    stop() {
      stopped = true;
      return running;
    },
  };
}
