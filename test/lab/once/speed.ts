import { Child } from "../../../bench/process/child.ts";
import { ratioOf, type Spread, spreadOf, turns } from "../../../bench/statistics.ts";
import { startServer } from "../../support/server-process.ts";
import type { SpeedJob, SpeedResult } from "./speed-load.ts";
import { type ShopProcess, startShop } from "./stage.ts";

/** The route without anything before it, this package, and the two neighbours on plain Express. */
const compared = ["plain", "submit-lock", "express-idempotency", "node-idempotency"];

interface SpeedOptions {
  readonly binary: string;
  /** @defaultValue 7 */
  readonly rounds?: number;
  /** Of one measurement. @defaultValue 0.6 */
  readonly seconds?: number;
  /** Clients that ask again as soon as they were answered. @defaultValue 32 */
  readonly connections?: number;
}

export interface Speed {
  readonly name: string;
  /** Requests a second, each a new order under a new key. */
  readonly fresh: Spread;
  /** Requests a second for orders that were answered before. */
  readonly replay: Spread;
  /** Against the bare route in the same round. */
  readonly freshRatio: Spread;
  readonly replayRatio: Spread;
  /** Requests a second, round by round. */
  readonly rates: Readonly<Record<SpeedJob["kind"], readonly number[]>>;
}

interface Contender {
  readonly shop: ShopProcess;
  readonly rates: Record<SpeedJob["kind"], number[]>;
}

const kinds = ["fresh", "replay"] as const;

/**
 * Requests a second on Express, the bare route first. The handler only answers, nothing is counted;
 * each shop and the load have a process of their own, Redis is one for all. Within a round all take
 * turns, and a ratio is taken within its round.
 */
export async function measureSpeed(options: SpeedOptions): Promise<Speed[]> {
  const { binary, rounds = 7, seconds = 0.6, connections = 32 } = options;
  const redis = await startServer(binary);
  const load = await Child.start<SpeedJob, SpeedResult>(
    new URL("./speed-load.ts", import.meta.url),
    [],
  );
  const contenders: Contender[] = [];
  try {
    for (const library of compared) {
      const shop = await startShop(library, redis.url);
      contenders.push({ shop, rates: { fresh: [], replay: [] } });
    }
    const measure = ({ shop }: Contender, kind: SpeedJob["kind"], forSeconds = seconds) =>
      load.run({ port: shop.port, connections, kind, seconds: forSeconds });
    for (const contender of contenders) {
      // Long enough for the code to be optimised, whatever a measurement lasts.
      for (const kind of kinds) await measure(contender, kind, Math.max(1, seconds));
    }
    for (let round = 0; round < rounds; round++) {
      for (const contender of turns(contenders, round)) {
        for (const kind of kinds) {
          contender.rates[kind].push((await measure(contender, kind)).requestsPerSecond);
        }
      }
    }
  } finally {
    await load.stop();
    for (const { shop } of contenders) await shop.child.kill();
    await redis.stop();
  }
  const first = contenders[0]?.rates ?? { fresh: [], replay: [] };
  return contenders.map(({ shop, rates }) => ({
    name: shop.hello.name,
    fresh: spreadOf(rates.fresh),
    replay: spreadOf(rates.replay),
    freshRatio: ratioOf(rates.fresh, first.fresh),
    replayRatio: ratioOf(rates.replay, first.replay),
    rates,
  }));
}
