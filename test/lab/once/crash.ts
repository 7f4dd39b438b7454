import { setTimeout as sleep } from "node:timers/promises";
import { until } from "../../support/until.ts";
import { type Asked, isRefusal, post, toldBy } from "./client.ts";
import type { Trial } from "./scenarios.ts";
import type { Stage } from "./stage.ts";

/** A user whose order was under way when the process died. */
interface Survivor extends Trial {
  /** From the kill to an answer; `undefined`: none within the bound. */
  readonly lockedOutMs: number | undefined;
}

export interface Crash {
  readonly survivors: readonly Survivor[];
  /** From the kill until the shop listened again: no library can be faster. */
  readonly restartMs: number;
  /** The longest that Redis would still have kept a key of these orders at the kill; −1: for ever. */
  readonly keyLeftMs: number | undefined;
}

export const crashBoundMs = 20_000;
const retryEveryMs = 250;

/** SIGKILL while the handler works for `users`; the shop is restarted and all of them ask again. */
export async function crash(stage: Stage, users: number): Promise<Crash> {
  const before = await stage.keys();
  const orders = Array.from({ length: users }, () => stage.newOrder({ firstRunMs: 10_000 }));
  const first = orders.map((asked) => post(stage.port, asked));
  await until(async () => (await runs(stage, orders)).every((count) => count === 1), {
    what: "all orders to be under way",
  });
  await stage.killShop();
  const killedAt = performance.now();
  await Promise.all(first);
  const left = [...(await stage.keys())].filter(([name]) => !before.has(name));
  const restart = stage.startShop().then(() => performance.now() - killedAt);
  const survivors = orders.map(async (asked) => {
    const answer = await askAgain(stage, asked, killedAt);
    return { ...answer, runs: await stage.runsOf(asked) };
  });
  return {
    restartMs: await restart,
    survivors: await Promise.all(survivors),
    keyLeftMs: longest(left.map(([, ms]) => ms)),
  };
}

async function askAgain(
  stage: Stage,
  asked: Asked,
  killedAt: number,
): Promise<Omit<Survivor, "runs">> {
  for (;;) {
    const told = toldBy(await post(stage.port, asked), asked);
    const passedMs = performance.now() - killedAt;
    if (!isRefusal(told)) return { told: [told], lockedOutMs: passedMs };
    if (passedMs > crashBoundMs) return { told: [told], lockedOutMs: undefined };
    await sleep(retryEveryMs);
  }
}

function runs(stage: Stage, orders: readonly Asked[]): Promise<number[]> {
  return Promise.all(orders.map((asked) => stage.runsOf(asked)));
}

function longest(times: readonly number[]): number | undefined {
  return times.includes(-1) ? -1 : times.length === 0 ? undefined : Math.max(...times);
}
