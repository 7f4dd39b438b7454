// Two doors, one order: `npm run build`, then `npx tsx examples/payment.ts`.
//
// A payment provider tells the shop of a payment twice, sends each event again until it is answered,
// and sends the customer back to a return page: before, during or after the events. All of these
// calls go through `orderOf`, which is keyed by the payment, so they make one order: the lock lets one
// of them run at a time, and the transaction has the last word where a process dies.
import { setTimeout as sleep } from "node:timers/promises";
import { isSubmitLockError, type Lease, SubmitLock } from "submit-lock";
import { placeOrder } from "./orders.ts";
import { openStore } from "./store.ts";

interface Payment {
  readonly id: string;
  readonly cents: number;
}

/** What the doors were given, by payment. */
const orders = new Map<string, Set<number>>();

/** The only way to an order of a payment, from every door. */
async function orderOf(lock: SubmitLock, payment: Payment): Promise<number> {
  const submission = {
    id: payment.id,
    fingerprint: `${payment.cents}`,
    // For as long as the provider sends its events again.
    retainMs: 3 * 86_400_000,
  };
  const work = ({ signal, submission }: Lease) => placeOrder(payment.id, submission, signal);
  const { value } = await lock.once(`payment:${payment.id}`, submission, work);
  orders.set(payment.id, (orders.get(payment.id) ?? new Set()).add(value));
  return value;
}

/** The return page shows the order, or a page that looks again in a moment. */
async function returnPage(lock: SubmitLock, payment: Payment): Promise<string> {
  try {
    return `Thank you for order ${await orderOf(lock, payment)}`;
  } catch (error) {
    if (isSubmitLockError(error)) return "We are placing your order, please wait";
    throw error;
  }
}

/** The webhook answers 2xx when the order is placed, and 5xx to get the event again. */
async function webhook(lock: SubmitLock, payment: Payment): Promise<number> {
  try {
    await orderOf(lock, payment);
    return 200;
  } catch {
    return 503;
  }
}

/** Sends two events of a payment, and each of them again until it is answered with 2xx. */
async function notify(say: (text: string) => void, deliver: () => Promise<number>): Promise<void> {
  const events = ["payment.authorised", "payment.captured"].map(async (event) => {
    for (let status = 0; status !== 200; ) {
      status = await deliver();
      say(`${event}: ${status}`);
      if (status !== 200) await sleep(50);
    }
    // Providers promise to send an event at least once.
    say(`${event}, again: ${await deliver()}`);
  });
  await Promise.all(events);
}

async function main(): Promise<void> {
  const { store, place, end } = await openStore(process.env["REDIS_URL"]);
  const lock = new SubmitLock({ store, keyPrefix: "demo:lock:payment:" });
  try {
    await lock.check();
    console.log(`Locks are kept ${place}.`);
    for (const moment of ["before", "during", "after"] as const) {
      const payment = { id: `pay-${Date.now()}-${moment}`, cents: 4_200 };
      const say = (text: string) => console.log(`return ${moment}  ${text}`);
      const comesBack = async () => say(`return page: ${await returnPage(lock, payment)}`);
      const page = moment === "before" ? comesBack() : undefined;
      await sleep(20);
      const events = notify(say, () => webhook(lock, payment));
      await sleep(40);
      if (moment === "during") await comesBack();
      await Promise.all([page, events]);
      if (moment === "after") await comesBack();
      say(`orders: ${orders.get(payment.id)?.size}`);
    }
  } finally {
    await lock.close();
    end();
  }
}

await main().catch((error: unknown) => {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
});
