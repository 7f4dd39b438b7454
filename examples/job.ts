// The lock alone, without HTTP: `npm run build`, then `npx tsx examples/job.ts`.
//
// Two nightly jobs work on the account of one customer and must not overlap. Waiting for each other
// is right for jobs; a second click that waits for the first would become a second order.
import { setTimeout as sleep } from "node:timers/promises";
import { isSubmitLockError, SubmitLock } from "submit-lock";
import { openStore } from "./store.ts";

async function main(): Promise<void> {
  const { store, place, end } = await openStore(process.env["REDIS_URL"]);
  const lock = new SubmitLock({ store, keyPrefix: "demo:lock:account:" });
  const beganAt = performance.now();
  const say = (text: string) => {
    const ms = Math.round(performance.now() - beganAt);
    console.log(`${String(ms).padStart(6)} ms  ${text}`);
  };

  async function job(name: string, customer: string, waitMs: number): Promise<void> {
    try {
      await lock.withLock(customer, { waitMs }, async ({ signal }) => {
        say(`${name} begins on the account of ${customer}`);
        for (let page = 1; page <= 5; page++) {
          // Between two steps, so that a job whose lock was lost stops.
          signal.throwIfAborted();
          await sleep(60);
        }
        say(`${name} ends on the account of ${customer}`);
      });
    } catch (error) {
      if (!isSubmitLockError(error) || error.code !== "SUBMIT_LOCK_CONTENDED") throw error;
      say(`${name} gives up for today: ${customer} is busy`);
    }
  }

  try {
    await lock.check();
    console.log(`Locks are kept ${place}.`);
    await Promise.all([
      job("invoices", "ada", 10_000),
      job("statements", "ada", 10_000),
      // Patient for no longer than a moment.
      job("newsletter", "ada", 50),
      // Another customer, another lock.
      job("invoices", "grace", 10_000),
    ]);
  } finally {
    await lock.close();
    end();
  }
}

await main().catch((error: unknown) => {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
});
