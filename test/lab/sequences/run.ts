import { parseArgs } from "node:util";
import fc from "fast-check";
import { serverBinary } from "../../support/server-binary.ts";
import { startServer } from "../../support/server-process.ts";
import { Progress } from "../progress.ts";
import { byContent, type Strategy, strategies } from "./customer.ts";
import { play, type Sequence, sequences } from "./play.ts";
import { Shop } from "./shop.ts";

interface Hunt {
  readonly runs: number;
  readonly seed: number;
  readonly path?: string | undefined;
  readonly redisPort: number;
  /** How many shops are open at a time. */
  readonly shops: number;
  /** Whether a sequence that fails is made smaller, which takes longer than to find it. @defaultValue true */
  readonly shrinks?: boolean;
  /** Called behind each sequence with how many were played so far. */
  onPlayed?(played: number): void;
}

const open = async ({ shops, redisPort }: Hunt) =>
  await Promise.all(Array.from({ length: shops }, () => Shop.open(redisPort)));

/** @returns the smallest sequence that fast-check could find that is not one order, and its story */
export async function hunt(strategy: Strategy, given: Hunt): Promise<string | undefined> {
  const shops = await open(given);
  const { runs, seed, path, shrinks = true } = given;
  let played = 0;
  let isOver = false;
  try {
    const all = await Promise.all(
      shops.map(async (shop, at) => {
        const one = async (sequence: Sequence) => {
          if (isOver) return;
          const { orders, flaws } = await play(shop, sequence, strategy);
          given.onPlayed?.(++played);
          if (orders === 1 && flaws.length === 0) return;
          isOver = !shrinks;
          throw new Error([`${orders} orders`, ...flaws].join("\n"));
        };
        const property = fc.asyncProperty(sequences(strategy), one);
        const numRuns = Math.ceil(runs / shops.length);
        const options = { numRuns, seed: seed + at, endOnFailure: !shrinks, ...(path && { path }) };
        const found = await fc.check(property, options);
        if (!found.failed) return undefined;
        const [sequence] = found.counterexample ?? [];
        const again = `--seed ${seed + at} --path ${found.counterexamplePath} --shops 1`;
        const story = JSON.stringify(sequence, undefined, 1);
        return `${strategy}: ${found.errorInstance}\n${story}\nagain: ${again}`;
      }),
    );
    return all.find((story) => story !== undefined);
  } finally {
    await Promise.all(shops.map((shop) => shop.close()));
  }
}

/** @returns how many of the same sequences end with more than one order, for each of these ways */
export async function doubles(
  given: Hunt,
  chosen: readonly Strategy[],
  /** Whose sequences they are. */
  of: Strategy = "`submitOnce`",
): Promise<Map<Strategy, number>> {
  const { runs: numRuns, seed } = given;
  const all = fc.sample(sequences(of), { numRuns, seed });
  const counts = new Map<Strategy, number>();
  const shops = await open(given);
  for (const strategy of chosen) {
    const waiting = [...all];
    let count = 0;
    const work = async (shop: Shop) => {
      for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
        if ((await play(shop, next, strategy)).orders > 1) count++;
        given.onPlayed?.(numRuns - waiting.length);
      }
    };
    await Promise.all(shops.map(work));
    counts.set(strategy, count);
  }
  await Promise.all(shops.map((shop) => shop.close()));
  return counts;
}

/** The ways that keep P9. */
const guarded = ["`submitOnce`", "`submitOnce` with `id`", byContent] as const;

/** `npm run lab -- browser-sequences`, with `--runs`, `--seed`, `--path`, `--shops` and `--table`. */
export async function run(): Promise<void> {
  const option = { type: "string" } as const;
  const options = { runs: option, seed: option, path: option, shops: option } as const;
  const table = { table: { type: "boolean" } } as const;
  const { values } = parseArgs({ options: { ...options, ...table } });
  const redis = await startServer(serverBinary());
  const seed = Number(values.seed ?? Math.trunc(Math.random() * 2 ** 31));
  const runs = Number(values.runs ?? 2_000);
  const { path } = values;
  const shops = Number(values.shops ?? 12);
  const from = performance.now();
  const progress = new Progress(runs, "sequences");
  try {
    for (const strategy of guarded) {
      const onPlayed = progress.at(0);
      const given = { runs, seed, path, shops, redisPort: redis.port, onPlayed };
      if (values.table) {
        if (strategy === byContent) continue;
        console.log(`the sequences of ${strategy}`);
        const chosen = Object.keys(strategies).filter((each) => each !== byContent) as Strategy[];
        for (const [way, count] of await doubles(given, chosen, strategy)) {
          console.log(`| ${way} | ${count} of ${runs} |`);
        }
        continue;
      }
      const story = await hunt(strategy, given);
      const seconds = Math.round((performance.now() - from) / 1_000);
      console.log(
        story ?? `${strategy}: ${runs} sequences, one order each (${seconds} s, seed ${seed})`,
      );
      if (story !== undefined) process.exitCode = 1;
    }
  } finally {
    progress.stop();
    await redis.stop();
  }
}
