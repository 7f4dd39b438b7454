import { Random } from "../simulation/time/random.ts";

/**
 * What befalls one wish:
 *
 * - `lost reply`: its acquire is applied by Redis, and the reply is lost;
 * - `killed process`: its server is killed when Redis has executed its first command;
 * - `slow holder`: the order takes longer than the life of a lock, and the customer clicks on.
 */
export type Fault = "lost reply" | "killed process" | "slow holder";

/** One customer's wish to order, at a time of the run. */
export interface Wish {
  readonly user: string;
  readonly atMs: number;
  /** When its clicks come, after the first; whatever becomes of that one. */
  readonly laterClicksMs: readonly number[];
  readonly fault: Fault | undefined;
}

export interface StreamOptions {
  readonly seconds: number;
  readonly wishesPerSecond: number;
  readonly users: number;
  /** How many of the wishes are double clicks. */
  readonly doubleClicks: number;
  /** How many are clicked again after the answer. */
  readonly lateClicks: number;
  /** Every so many wishes meet the fault. */
  readonly every: Readonly<Record<Fault, number>>;
}

/** Each second, for longer than a slow order takes. */
const impatientMs = Array.from({ length: 9 }, (_, index) => (index + 1) * 1_000);

/** The same stream every time, so that every lock faces the same customers and the same faults. */
export function streamOf(options: StreamOptions): Wish[] {
  const { seconds, wishesPerSecond, users, doubleClicks, lateClicks } = options;
  const random = new Random(20_261_111);
  const wishes: Wish[] = [];
  for (let atMs = 0; atMs < seconds * 1_000; atMs += exponential(random, 1_000 / wishesPerSecond)) {
    // Of one length, so that none is the beginning of another.
    const user = `customer-${10_000 + Math.floor(random.next() * users)}`;
    const kind = random.next();
    const soonMs = random.between(30, 90);
    const lateMs = random.between(200, 500);
    const fault = faultOf(wishes.length + 1, options.every);
    const second =
      kind < doubleClicks ? [soonMs] : kind < doubleClicks + lateClicks ? [lateMs] : [];
    const laterClicksMs = fault === "slow holder" ? impatientMs : second;
    wishes.push({ user, atMs, laterClicksMs, fault });
  }
  return wishes;
}

/** The rarest first, so that a wish that is due for two meets that one. */
function faultOf(number: number, every: StreamOptions["every"]): Fault | undefined {
  const kinds = (Object.keys(every) as Fault[]).sort((one, other) => every[other] - every[one]);
  return kinds.find((kind) => number % every[kind] === 0);
}

/** Arrivals that know nothing of each other. */
function exponential(random: Random, mean: number): number {
  return -Math.log(1 - random.next()) * mean;
}
