import type {
  CooldownInspection,
  ForeignInspection,
  FreedInspection,
  HeldInspection,
  Inspection,
} from "../lock/on-call.ts";
import { longestCooldownMs, longestTtlMs } from "../lock/store.ts";
import { clock, duration } from "./durations.ts";
import { type Renewals, renewalsOf, restOf } from "./lock-state.ts";
import type { Paint } from "./terminal.ts";

/** What the text of a lock is made from. */
export interface View {
  readonly user: string;
  readonly found: Inspection;
  /** When it was looked at. */
  readonly at: Date;
  /** The key and the Redis that were looked at. */
  readonly place: string;
  /** The command that frees the user, as it has to be typed. */
  readonly freeCommand: string;
  /** The same with `--now`. */
  readonly freeNowCommand: string;
  readonly paint: Paint;
}

/** What a support person is told of a user's lock. */
export function showText(view: View): string[] {
  const { user, found, paint } = view;
  switch (found.state) {
    case "free":
      return [
        paint("bold", `User ${user} is not locked (${view.place}).`),
        "If the customer still cannot order, it is not this lock: look at what the shop answered.",
      ];
    case "freed":
      return [
        paint(
          "bold",
          `User ${user} was freed by ${found.by} (${found.reason}) and can order again in ${duration(found.expiresInMs)}.`,
        ),
        `  id       ${found.id}`,
        ...ifSetBack(found, longestTtlMs),
        "Nothing to do: until then whoever held the lock is being told to stop.",
      ];
    case "cooldown":
      return [
        paint(
          "bold",
          `User ${user}: the last order went through a moment ago; a new one is possible in ${duration(found.expiresInMs)} (cooldown).`,
        ),
        `  id       ${found.id}`,
        ...ifSetBack(found, longestCooldownMs),
        "Nothing to do: do not free, look for that order.",
      ];
    case "foreign":
      return foreignText(view, found);
    case "held":
      return heldText(view, found);
  }
}

function foreignText(view: View, found: ForeignInspection): string[] {
  const { user, paint, freeCommand } = view;
  const { id, expiresInMs, notText } = found;
  const heading = [paint("bold", whatIsForeign(user, found)), `  id       ${id}`];
  if (notText) {
    return [
      ...heading,
      "Something else uses this key: look for it, and give the lock another prefix.",
      `free deletes it at once, with everything in it: ${freeCommand}`,
    ];
  }
  return [
    ...heading,
    "It may be an old lock whose process died, or one whose holder is still at work: nobody can tell.",
    ...(expiresInMs === Number.POSITIVE_INFINITY
      ? ["The customer's next click gives it an end: maxHoldMs, 60 s by default."]
      : []),
    "Look for the order and the payment first. free deletes it at once, and its holder is told nothing.",
    `Only when the developers say that nothing uses such locks any more: ${freeCommand}`,
  ];
}

/** Which other lock it is, in one sentence. */
export function whatIsForeign(user: string, found: ForeignInspection): string {
  const what = found.notText
    ? "a key that holds no text and so cannot be a lock"
    : "something that is not submit-lock";
  return `User ${user} is locked by ${what}, ${restOf(found)}.`;
}

/** After a step of Redis' clock, the time that is shown is longer than the one that the user waits. */
function ifSetBack(found: FreedInspection | CooldownInspection, mostMs: number): string[] {
  if (!found.clockSetBack) return [];
  return [`Redis' clock was set back: the customer's next click cuts this to ${duration(mostMs)}.`];
}

function heldText(view: View, held: HeldInspection): string[] {
  const renewals = renewalsOf(held);
  if (renewals === undefined || held.heldMs === undefined) return unknownText(view, held);
  return renewals.missed > 0
    ? silentText(view, held, held.heldMs, renewals)
    : workingText(view, held, held.heldMs, renewals);
}

function workingText(
  { user, at, paint, freeCommand }: View,
  held: HeldInspection,
  heldMs: number,
  renewals: Renewals,
): string[] {
  const endsInMs = held.endsInMs ?? 0;
  const lines = [
    paint("bold", `User ${user} is placing an order right now.`),
    `  since    ${since(at, heldMs)}, ${duration(heldMs)} ago`,
    ...(held.holder === "" ? [] : [`  where    ${held.holder}`]),
  ];
  const renewedMs = held.renewedMs ?? 0;
  if (renewals.hasEnded) {
    // Where maxHoldMs is ttlMs it never is renewed.
    lines.push(
      renewedMs < heldMs
        ? `  renewed  ${duration(renewedMs)} ago, for the last time: whether its process is alive cannot be told any more`
        : "  renewed  never: whether its process is alive cannot be told",
    );
    lines.push(`  ends     when the order is done, at the latest in ${duration(held.expiresInMs)}`);
  } else {
    lines.push(
      `  renewed  ${duration(renewedMs)} ago (every ${duration(renewals.everyMs)}): its process is alive`,
      `  ends     when the order is done, at the latest at ${clock(new Date(at.getTime() + endsInMs))} (in ${duration(endsInMs)})`,
    );
  }
  return [
    ...lines,
    `  id       ${held.id}`,
    "Nothing to do: a second click is told 409.",
    "free takes the lock and asks the process to stop; what it has done stays done. Look for the order and the payment first.",
    `To stop this order: ${freeCommand}`,
  ];
}

function silentText(
  { user, at, paint }: View,
  held: HeldInspection,
  heldMs: number,
  { missed }: Renewals,
): string[] {
  const where = held.holder === "" ? "" : `, on ${held.holder}`;
  return [
    paint(
      "bold",
      `User ${user} is locked, and its process has missed ${missed} renewal${missed === 1 ? "" : "s"}: it died, or it cannot reach Redis.`,
    ),
    `  since    ${since(at, heldMs)}, ${duration(heldMs)} ago${where}, id ${held.id}`,
    `The lock frees itself in ${duration(held.expiresInMs)}. Wait for that: there is no need to free.`,
    "Then look for the order and the payment.",
  ];
}

/** A lock whose value does not tell whether its process is alive, in one sentence. */
export function whatIsUnknown(user: string, held: HeldInspection): string {
  const rest = restOf(held);
  const what = held.clockSetBack
    ? `${rest}, because Redis' clock was set back`
    : `by submit-lock 0.1 or another library, ${rest}`;
  return `User ${user} is locked ${what}; whether anybody is at work is not known.`;
}

/** A value that begins with a UUID and tells no more, or not by the clock of now. */
function unknownText(view: View, held: HeldInspection): string[] {
  const { user, paint } = view;
  return [
    paint("bold", whatIsUnknown(user, held)),
    ...(held.holder === "" ? [] : [`  where    ${held.holder}`]),
    `  id       ${held.id}`,
    ...(held.clockSetBack
      ? ["The customer's next click cuts it to ttlMs, 10 s by default: there is no need to free."]
      : []),
    `Look for the order and the payment first. ${plainFreeOfUnknown(held)}`,
    `Only when the developers say that its process is gone: ${view.freeNowCommand}`,
  ];
}

/** A plain `free` keeps the expiry, and gives one to a key that has none or too late a one. */
export function plainFreeOfUnknown({ expiresInMs, clockSetBack }: HeldInspection): string {
  if (clockSetBack) return "A plain free cuts it to ttlMs, too.";
  return expiresInMs === Number.POSITIVE_INFINITY
    ? "A plain free gives it an end: ttlMs, 10 s by default."
    : "A plain free keeps the user out for all of that time.";
}

function since(at: Date, heldMs: number): string {
  return clock(new Date(at.getTime() - heldMs));
}
