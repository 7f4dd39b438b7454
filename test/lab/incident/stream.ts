import { Random } from "../simulation/time/random.ts";

/** One customer's wish to order, at a time of the run. */
export interface Wish {
  readonly user: string;
  readonly atMs: number;
  /** The customer clicks twice, the second time after so long. */
  readonly secondClickMs: number | undefined;
  /** The acquire of the first click is applied, and its reply is lost. */
  readonly losesReply: boolean;
}

export interface StreamOptions {
  readonly seconds: number;
  readonly wishesPerSecond: number;
  readonly users: number;
  /** How many of the wishes are double clicks. */
  readonly doubleClicks: number;
  /** Every so many wishes lose the reply to their acquire. */
  readonly loseEvery: number;
}

/** The same stream every time, so that every lock faces the same customers and the same losses. */
export function streamOf(options: StreamOptions): Wish[] {
  const { seconds, wishesPerSecond, users, doubleClicks, loseEvery } = options;
  const random = new Random(20_261_111);
  const wishes: Wish[] = [];
  for (let atMs = 0; atMs < seconds * 1_000; atMs += exponential(random, 1_000 / wishesPerSecond)) {
    // Of one length, so that none is the beginning of another.
    const user = `customer-${10_000 + Math.floor(random.next() * users)}`;
    const isDouble = random.next() < doubleClicks;
    const secondClickMs = random.between(30, 90);
    const losesReply = (wishes.length + 1) % loseEvery === 0;
    wishes.push({ user, atMs, secondClickMs: isDouble ? secondClickMs : undefined, losesReply });
  }
  return wishes;
}

/** Arrivals that know nothing of each other. */
function exponential(random: Random, mean: number): number {
  return -Math.log(1 - random.next()) * mean;
}
