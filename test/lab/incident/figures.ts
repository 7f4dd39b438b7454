import type { Block, Replay } from "./replay.ts";

/** A block shorter than this is a customer who clicked again and ordered. */
const noticeableMs = 2_000;

/** The row of one kind of lock. */
export function figuresOf({ blocks, ...replay }: Replay) {
  const noticed = blocks.filter((block) => lengthOf(block) >= noticeableMs);
  const lengths = noticed.map(lengthOf);
  return {
    "replies lost": replay.repliesLost,
    "orders placed": replay.orders,
    "users blocked": new Set(noticed.map(({ user }) => user)).size,
    "total blocked time (s)": seconds(lengths.reduce((sum, length) => sum + length, 0)),
    "longest block (s)": seconds(Math.max(0, ...lengths)),
    "refused once, then served": blocks.length - noticed.length,
    "double orders": replay.doubleOrders,
    "second orders later": replay.laterOrders,
  };
}

/** How many users were blocked at each tenth of a second of the run. */
export function blockedOverTime(blocks: readonly Block[], lengthMs: number): number[] {
  const steps = Math.ceil(lengthMs / 100);
  return Array.from({ length: steps }, (_, step) => {
    const atMs = step * 100;
    return blocks.filter(({ fromMs, untilMs }) => fromMs <= atMs && atMs < untilMs).length;
  });
}

function lengthOf({ fromMs, untilMs }: Block): number {
  return untilMs - fromMs;
}

function seconds(ms: number): number {
  return Math.round(ms / 100) / 10;
}
