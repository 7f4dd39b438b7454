import { duration } from "./durations.ts";
import { type Found, renewalsOf, stateOf } from "./lock-state.ts";

/** What a person reads before the id has to be typed. */
export function beforeFreeing(user: string, found: Found, isNow: boolean): string[] {
  return [...whatIsThere(user, found), ...whatHappens(found, isNow)];
}

function whatIsThere(user: string, found: Found): string[] {
  switch (found.state) {
    case "held": {
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
        `User ${user} has just ordered. The cooldown lasts for another ${duration(found.expiresInMs)}.`,
      ];
    case "foreign":
      return [
        `User ${user} is locked by something that is not submit-lock, ${found.expiresInMs === Number.POSITIVE_INFINITY ? "for ever" : `for another ${duration(found.expiresInMs)}`}.`,
      ];
  }
}

function whatHappens(found: Found, isNow: boolean): string[] {
  if (found.state === "cooldown") return ["Nobody is at work. It ends at once."];
  if (found.state === "foreign") {
    return [
      "It ends at once. Its holder may still be at work and is not told: two orders are possible.",
      "Look for the order, and for the payment, first.",
    ];
  }
  if (isNow) {
    return [
      `--now: the next order can start at once, although the holder may still be at work: two orders are possible for ${duration(found.expiresInMs)}.`,
      "Do this only if its process is certainly dead.",
    ];
  }
  if (found.state === "freed") return ["Freeing the user again changes nothing."];
  const wait = duration(found.expiresInMs);
  return [
    stateOf(found) === "silent"
      ? `The lock frees itself in ${wait}. Freeing it frees nobody sooner: it only makes sure that it is not renewed again.`
      : `It will be told to stop; nobody else can order for this user until it must have heard, ${wait} at most.`,
    "What it has done is not undone: look for the order, and for the payment, first.",
  ];
}

/** Which lock it is, for one line. */
function labelOf(found: Found): string {
  const { id = "" } = found;
  if (found.state !== "held") return `${id}, ${found.state}`;
  const held = found.heldMs === undefined ? "" : `, ${duration(found.heldMs)}`;
  return `${id}, ${stateOf(found)}${held}`;
}

/** How long others are kept out by a `free`, in milliseconds. */
export function keptOutMs(found: Found, isNow: boolean): number {
  const endsAtOnce = isNow || found.state === "cooldown" || found.state === "foreign";
  return endsAtOnce ? 0 : found.expiresInMs;
}

export function dryRunText(user: string, found: Found, isNow: boolean): string[] {
  const ms = keptOutMs(found, isNow);
  const after =
    ms === 0 ? "let the next order start at once" : `keep others out for ${duration(ms)}`;
  return [`Would free user ${user} (${labelOf(found)}) and ${after}. Nothing was changed.`];
}

export function freedText(user: string, by: string, reason: string, freeInMs: number): string[] {
  const when = freeInMs === 0 ? "now" : `in ${duration(freeInMs)}`;
  return [`Freed by ${by} (${reason}). User ${user} can order again ${when}.`];
}

/** The id was another one's. */
export function changedText(found: Found, showCommand: string): string[] {
  const what =
    found.state === "held"
      ? `another order holds this lock by now (id ${found.id}${found.heldMs === undefined ? "" : `, for ${duration(found.heldMs)}`})`
      : `this lock is another one by now (${labelOf(found)})`;
  return [`Not freed: ${what}. Look again: ${showCommand}`];
}
