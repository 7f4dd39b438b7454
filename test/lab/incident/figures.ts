import type { Block, Replay, SurplusOrder } from "./replay.ts";
import type { Fault } from "./stream.ts";

/** A block shorter than this is a customer who clicked again and ordered. */
const noticeableMs = 2_000;

/** The row of one kind of lock. */
export function figuresOf(run: Replay) {
  const noticed = noticedIn(run.blocks);
  const lengths = noticed.map(lengthOf);
  const atOnce = run.surplus.filter(({ isAtOnce }) => isAtOnce);
  return {
    "orders placed": run.orders,
    "users blocked": usersOf(noticed),
    "blocked time (s)": seconds(lengths.reduce((sum, length) => sum + length, 0)),
    "longest block (s)": seconds(Math.max(0, ...lengths)),
    "double orders at the same time": atOnce.length,
    "second orders later": run.surplus.length - atOnce.length,
    "orders lost": run.ordersLost,
  };
}

/** What each kind of failure followed from, in one sentence: the faults of the wishes that failed. */
export function reasonOf(run: Replay): string {
  const noticed = noticedIn(run.blocks);
  const ofFault = (fault: Fault | undefined) => noticed.filter((block) => block.fault === fault);
  const atOnce = run.surplus.filter(({ isAtOnce }) => isAtOnce);
  const later = run.surplus.filter(({ isAtOnce }) => !isAtOnce);
  const parts = [
    count(usersOf(ofFault("lost reply")), "user", "locked out by an own lock whose reply was lost"),
    count(usersOf(ofFault("killed process")), "user", "locked out by a process that was killed"),
    count(usersOf(ofFault("slow holder")), "user", "locked out after a slow order"),
    count(usersOf(ofFault(undefined)), "user", "locked out beside a fault of another's"),
    count(of(atOnce, isSlow), "order", "placed beside a holder slower than its lease"),
    count(of(atOnce, isOfClock), "order", "placed at once by a server whose clock is ahead"),
    count(of(atOnce, isOther), "order", "placed at once otherwise"),
    count(later.length, "click", "of an order that was finished, taken for a new one"),
  ].filter((part) => part !== undefined);
  return parts.length === 0 ? "nothing failed" : parts.join("; ");
}

/** How many users were blocked at each tenth of a second of the run. */
export function blockedOverTime(blocks: readonly Block[], lengthMs: number): number[] {
  const steps = Math.ceil(lengthMs / 100);
  return Array.from({ length: steps }, (_, step) => {
    const atMs = step * 100;
    return blocks.filter(({ fromMs, untilMs }) => fromMs <= atMs && atMs < untilMs).length;
  });
}

function noticedIn(blocks: readonly Block[]): Block[] {
  return blocks.filter((block) => lengthOf(block) >= noticeableMs);
}

function usersOf(blocks: readonly Block[]): number {
  return new Set(blocks.map(({ user }) => user)).size;
}

const isSlow = ({ fault }: SurplusOrder): boolean => fault === "slow holder";
const isOfClock = (order: SurplusOrder): boolean => !isSlow(order) && order.isByClock;
const isOther = (order: SurplusOrder): boolean => !isSlow(order) && !order.isByClock;

function of(orders: readonly SurplusOrder[], which: (order: SurplusOrder) => boolean): number {
  return orders.filter(which).length;
}

function count(number: number, noun: string, what: string): string | undefined {
  if (number === 0) return undefined;
  return `${number} ${noun}${number === 1 ? "" : "s"} ${what}`;
}

function lengthOf({ fromMs, untilMs }: Block): number {
  return untilMs - fromMs;
}

function seconds(ms: number): number {
  return Math.round(ms / 100) / 10;
}
