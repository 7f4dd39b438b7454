import type { FreedInspection } from "../lock/on-call.ts";
import { duration } from "./durations.ts";
import { type Found, renewalsOf, stateOf } from "./lock-state.ts";
import { plainFreeOfUnknown, whatIsForeign, whatIsUnknown } from "./show-text.ts";

/** What a person reads before the id has to be typed. */
export function beforeFreeing(user: string, found: Found, isNow: boolean): string[] {
  return [...whatIsThere(user, found), ...whatHappens(found, isNow)];
}

function whatIsThere(user: string, found: Found): string[] {
  switch (found.state) {
    case "held": {
      if (stateOf(found) === "unknown") return [whatIsUnknown(user, found)];
      const missed = renewalsOf(found)?.missed ?? 0;
      const held = found.heldMs === undefined ? "" : `, for ${duration(found.heldMs)}`;
      const where = found.holder === "" ? "" : `, on ${found.holder}`;
      return [
        missed > 0
          ? `User ${user} is locked${held}${where}, and that process has missed ${missed} renewal${missed === 1 ? "" : "s"}.`
          : `User ${user} is placing an order right now${held}${where}.`,
      ];
    }
    case "freed":
      return [
        `User ${user} was freed by ${found.by} (${found.reason}) and can order again in ${duration(found.expiresInMs)}.`,
      ];
    case "cooldown":
      return [
        `User ${user}: the last order went through a moment ago; a new one is possible in ${duration(found.expiresInMs)}.`,
      ];
    case "foreign":
      return [whatIsForeign(user, found)];
  }
}

function whatHappens(found: Found, isNow: boolean): string[] {
  if (found.state === "cooldown") {
    return ["The cooldown ends at once. Look for that order first: a second one is seldom meant."];
  }
  if (found.state === "foreign" && found.notText) {
    return [
      "It is deleted at once, with everything in it. Find out first what writes it: it may be another program's data.",
    ];
  }
  if (found.state === "foreign") {
    return [
      "It is deleted at once. Its holder may still be at work and is told nothing: two orders and two charges are possible.",
      "Look for the order and the payment first, and free it only when the developers say that nothing uses such locks any more.",
    ];
  }
  if (isNow) {
    return [
      "--now: the next order can start at once, although the holder may still be at work: two orders and two charges are possible.",
      `Do this only with a developer who has stopped that process.${waiting(found)}`,
    ];
  }
  if (found.state === "held" && stateOf(found) === "unknown") {
    return [
      `${plainFreeOfUnknown(found)} Its holder may still be at work.`,
      "Look for the order and the payment first. --now is only for when the developers say that its process is gone.",
    ];
  }
  const wait = duration(found.expiresInMs);
  return [
    stateOf(found) === "silent"
      ? `The lock frees itself in ${wait}. Freeing it frees nobody sooner: it only makes sure that it is not renewed again.`
      : `It will be told to stop; nobody else can order for this user until it must have heard, ${wait} at most.`,
    "What it has done is not undone: look for the order, and for the payment, first.",
  ];
}

/** What is gained by `--now`. */
function waiting({ expiresInMs }: Found): string {
  return expiresInMs === Number.POSITIVE_INFINITY
    ? ""
    : ` Without --now the user waits ${duration(expiresInMs)}.`;
}

/** Which lock it is, for one line. */
function labelOf(found: Found): string {
  const { id } = found;
  if (found.state !== "held") return `${id}, ${found.state}`;
  const held = found.heldMs === undefined ? "" : `, for ${duration(found.heldMs)}`;
  return `${id}, ${stateOf(found)}${held}`;
}

/** How long others are kept out by a `free`, in milliseconds. */
export function keptOutMs(found: Found, isNow: boolean): number {
  const endsAtOnce = isNow || found.state === "cooldown" || found.state === "foreign";
  // It is cut to the holder's ttlMs, which is not known here.
  if (found.state === "held" && found.clockSetBack && !isNow) return Number.POSITIVE_INFINITY;
  return endsAtOnce ? 0 : found.expiresInMs;
}

export function dryRunText(user: string, found: Found, isNow: boolean): string[] {
  const ms = keptOutMs(found, isNow);
  const after =
    ms === 0
      ? "let the next order start at once"
      : `keep others out for ${ms === Number.POSITIVE_INFINITY ? "ttlMs" : duration(ms)}`;
  return [`Would free user ${user} (${labelOf(found)}) and ${after}. Nothing was changed.`];
}

export function freedText(user: string, by: string, reason: string, freeInMs: number): string[] {
  const when = freeInMs === 0 ? "now" : `in ${duration(freeInMs)}`;
  return [`Freed by ${by} (${reason}). User ${user} can order again ${when}.`];
}

/** Somebody was there before. */
export function alreadyFreedText(
  user: string,
  { by, reason, expiresInMs }: FreedInspection,
): string[] {
  return [
    `Already freed by ${by} (${reason}). User ${user} can order again in ${duration(expiresInMs)}. Nothing was changed.`,
  ];
}

/** The id that was given is not that of the lock. */
export function changedText(found: Found, showCommand: string): string[] {
  return [
    `Nothing was changed: this is not the id of the lock's holder (${labelOf(found)}). It was mistyped, or a newer order has begun: leave that one alone.`,
    `Look again: ${showCommand}`,
  ];
}
