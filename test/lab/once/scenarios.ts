import { setTimeout as sleep } from "node:timers/promises";
import { until } from "../../support/until.ts";
import { type Asked, isRefusal, post, postAndLeave, type Told, toldBy } from "./client.ts";
import type { Order } from "./shop.ts";
import type { Stage } from "./stage.ts";

export interface Trial {
  /** Of the handler. */
  readonly runs: number;
  /** By each client that waited for its answer, the one that the scenario is about at the end. */
  readonly told: readonly Told[];
}

export interface Scenario {
  readonly name: string;
  readonly what: string;
  /** How many orders its clients want; of one submission that succeeds, one. */
  readonly wanted: 1 | 2;
  /** What the first client is told where nothing is wrong. */
  readonly first: Told;
  /** Whether a client that is refused asks again for `patienceMs`. */
  readonly insists: boolean;
  play(stage: Stage): Promise<Trial>;
}

const retryEveryMs = 250;
/** A client that was refused asks again for so long. */
export const patienceMs = 2_000;

export const scenarios: readonly Scenario[] = [
  ...[0, 60, 100, 300].map(doubleClick),
  {
    name: "lost answer",
    what: "the client leaves after 10 ms and sends the same request again at 300 ms; the handler answers at 50 ms",
    wanted: 1,
    first: "first answer",
    insists: true,
    async play(stage) {
      const asked = await leaveAnOrder(stage);
      const told = await insist(stage, asked);
      return { runs: await stage.runsOf(asked), told: [told] };
    },
  },
  {
    name: "two users, one key",
    what: "another user sends the same key and the same body",
    wanted: 2,
    first: "first answer",
    insists: false,
    async play(stage) {
      const first = stage.newOrder();
      return await twoOrders(stage, first, { ...first, user: `${first.user}-b` });
    },
  },
  {
    name: "another payload",
    what: "the same user sends the same key and another body",
    wanted: 2,
    first: "first answer",
    insists: false,
    async play(stage) {
      const first = stage.newOrder();
      return await twoOrders(stage, first, { ...first, order: { ...first.order, item: "tandem" } });
    },
  },
  {
    ...answerThenRetry(
      "a throw",
      "the handler's first run throws after 50 ms; the same request again",
      "throw",
    ),
    wanted: 2,
    first: 500,
  },
  answerThenRetry("100 KB", "an answer of 100 KB; the same request again", "large"),
  answerThenRetry(
    "a stream",
    "an answer of three writes and an end; the same request again",
    "stream",
  ),
];

function doubleClick(gapMs: number): Scenario {
  return {
    name: `double click, ${gapMs} ms`,
    what: gapMs === 0 ? "the same request twice at once" : `the second one ${gapMs} ms later`,
    wanted: 1,
    first: "first answer",
    insists: false,
    async play(stage) {
      const asked = stage.newOrder();
      const click = async () => toldBy(await post(stage.port, asked), asked);
      const second = gapMs === 0 ? click() : sleep(gapMs).then(click);
      const told = await Promise.all([click(), second]);
      // Of two clicks at once either may be the first to arrive.
      if (gapMs === 0 && told[1] === "first answer") told.reverse();
      return { runs: await stage.runsOf(asked), told };
    },
  };
}

function answerThenRetry(name: string, what: string, answer: Order["answer"]): Scenario {
  return {
    name,
    what,
    wanted: 1,
    first: "first answer",
    insists: true,
    async play(stage) {
      const asked = stage.newOrder({ answer });
      const first = toldBy(await post(stage.port, asked), asked);
      await sleep(100);
      return { told: [first, await insist(stage, asked)], runs: await stage.runsOf(asked) };
    },
  };
}

/** Its client has left, and 300 ms have passed since it asked. */
async function leaveAnOrder(stage: Stage): Promise<Asked> {
  for (let tries = 0; tries < 10; tries++) {
    const asked = stage.newOrder();
    const start = performance.now();
    await postAndLeave(stage.port, asked, 10);
    await sleep(start + 300 - performance.now());
    // On a busy machine a client may leave before its request was read: nothing was lost then.
    if ((await stage.runsOf(asked)) > 0) return asked;
  }
  throw new Error("No request reached the handler within 10 ms.");
}

async function twoOrders(stage: Stage, first: Asked, second: Asked): Promise<Trial> {
  const told = toldBy(await post(stage.port, first), first);
  await sleep(100);
  const later = toldBy(await post(stage.port, second), second, [first]);
  return { told: [told, later], runs: await stage.runsOf(first) };
}

/** Asks until it is told something else than to come back, and resolves with what it was told last. */
async function insist(stage: Stage, asked: Asked): Promise<Told> {
  for (const end = performance.now() + patienceMs; ; await sleep(retryEveryMs)) {
    const told = toldBy(await post(stage.port, asked), asked);
    if (!isRefusal(told) || performance.now() + retryEveryMs > end) return told;
  }
}

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
