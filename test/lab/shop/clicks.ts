import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { startServer } from "../../support/server-process.ts";
import { labClients } from "../client-name.ts";
import { overlapping } from "../ledger.ts";
import { type Click, click, crowd } from "../service/clicks.ts";
import { Misses, runLaboratory, seedOf, setting, writeHistory } from "../service/laboratory.ts";
import { type Service, startService } from "../service/service.ts";
import { Random } from "../simulation/time/random.ts";

interface ClicksOptions {
  /** The Redis server. */
  readonly binary: string;
  readonly seed: number;
  readonly doubleClicks: number;
  /** How many of them are under way at a time. */
  readonly atOnce: number;
}

type ClicksResult = Awaited<ReturnType<typeof playClicks>>;

const maxGapMs = 500;
const maxWorkMs = 100;
// So long that a busy machine is not taken for a silent Redis.
const times = { ttlMs: 60_000, acquireTimeoutMs: 30_000, commandTimeoutMs: 15_000 };

/**
 * Double clicks with an id on two server processes and one Redis: two submits of one key, each to
 * either process, up to 500 ms apart, while an order takes up to 100 ms.
 */
export async function playClicks(options: ClicksOptions) {
  const redis = await startServer(options.binary);
  const [one, other] = labClients();
  const common = {
    target: { kind: "single", port: redis.port },
    times,
    idempotency: true,
  } as const;
  const services = await Promise.all([
    startService({ ...common, framework: "Express 5, guard.protect(handler)", redisClient: one }),
    startService({ ...common, framework: "Koa 3", redisClient: other }),
  ]);
  try {
    const pairs = await clickTwice(services, options);
    const holdings = services.flatMap((service) => service.holdings);
    return { pairs, holdings };
  } finally {
    await Promise.all(services.map((service) => service.kill()));
    await redis.stop();
  }
}

async function clickTwice(
  services: readonly Service[],
  { atOnce, doubleClicks, seed }: ClicksOptions,
) {
  const random = new Random(seed);
  const pairs: Click[][] = [];
  let next = 0;
  await crowd(atOnce, async () => {
    while (next < doubleClicks) {
      const order = `order-${next++}`;
      const workMs = random.between(0, maxWorkMs);
      const asked = { user: `user-of-${order}`, order, key: randomUUID(), workMs };
      const first = click(random.pick(services), asked);
      await sleep(random.between(0, maxGapMs));
      pairs.push(await Promise.all([first, click(random.pick(services), asked)]));
    }
  });
  return pairs;
}

const isPlaced = ({ status }: Click) => status === 201;
const isReplay = ({ reply }: Click) => reply?.headers["idempotent-replayed"] === "true";
const isInFlight = ({ reply, status }: Click) =>
  status === 409 && JSON.parse(reply?.body ?? "{}").code === "idempotency_in_flight";

/** The answers, by what they are. */
function answersOf({ pairs }: ClicksResult) {
  const clicks = pairs.flat();
  const placed = clicks.filter(isPlaced);
  return {
    fresh: placed.filter((each) => !isReplay(each)).length,
    replayed: placed.filter(isReplay).length,
    inFlight: clicks.filter(isInFlight).length,
    others: clicks.filter((each) => !isPlaced(each) && !isInFlight(each)),
  };
}

/** What was not as it should be. */
export function misses(result: ClicksResult, doubleClicks: number): string[] {
  const misses = new Misses();
  const runs = new Map<string, number>();
  for (const { order = "" } of result.holdings) runs.set(order, (runs.get(order) ?? 0) + 1);
  const orders = Array.from({ length: doubleClicks }, (_, i) => `order-${i}`);
  misses.expectNone(
    orders.filter((order) => runs.get(order) !== 1),
    "did not run once: ",
  );
  misses.expect(overlapping(result.holdings).length === 0, "a user had two holders at once");
  const { fresh, others } = answersOf(result);
  misses.expect(fresh === doubleClicks, `${fresh} answers came from a handler`);
  misses.expectNone(others.map(({ reply, status }) => `an answer was ${status} ${reply?.body}`));
  const receipts = result.pairs.map((pair) =>
    pair.filter(isPlaced).map(({ reply }) => reply?.body),
  );
  const unanswered = receipts.filter((each) => each.length === 0).length;
  misses.expect(unanswered === 0, `${unanswered} double clicks were not answered with their order`);
  const differing = receipts.filter((each) => new Set(each).size > 1).length;
  misses.expect(differing === 0, `${differing} double clicks were answered with two orders`);
  return misses.found;
}

/**
 * `npm run lab -- clicks`: 10 000 double clicks with an id over two server processes. `CLICKS` and
 * `CLICKS_SEED` say otherwise; `--history FILE` keeps who held what.
 */
export async function run(): Promise<void> {
  const doubleClicks = setting("CLICKS", 10_000);
  const seed = seedOf("CLICKS_SEED");
  await runLaboratory(`${doubleClicks} double clicks with CLICKS_SEED=${seed}`, async (binary) => {
    const result = await playClicks({ binary, seed, doubleClicks, atOnce: 100 });
    const { fresh, inFlight, replayed } = answersOf(result);
    console.table({
      "201 of a handler": fresh,
      "201 replayed": replayed,
      "409 in flight": inFlight,
    });
    writeHistory(result.holdings);
    return misses(result, doubleClicks);
  });
}
