import type {
  CooldownInspection,
  ForeignInspection,
  FreedInspection,
  HeldInspection,
  Inspection,
} from "../lock/on-call.ts";
import { longestCooldownMs, longestTtlMs } from "../lock/store.ts";
import { answerOf, redisOf, theLock } from "./connect.ts";
import { exitCode } from "./failure.ts";
import type { Context } from "./main.ts";
import {
  clock,
  duration,
  json,
  type Paint,
  plural,
  visible,
  visibleInspection,
  visibleUser,
} from "./terminal.ts";

/** `submit-lock show <user>` */
export async function show({ args, terminal, open }: Context): Promise<number> {
  const connection = await open();
  const lock = theLock(connection);
  const found = await answerOf(connection, lock.inspect(args.user));
  if (args.has("json")) terminal.print([json({ userId: args.user, ...found })]);
  else {
    const key = connection.clientPrefix + lock.keyFor(args.user);
    const view = {
      user: visibleUser(args.user),
      found: visibleInspection(found),
      at: new Date(),
      place: visible(`key ${key} in ${redisOf(connection)}`),
      suggest: (command: string) => args.suggest(command),
      paint: terminal.paint,
    };
    terminal.print(showText(view));
  }
  return exitCode.done;
}

/** A lock that is there. */
export type Found = Exclude<Inspection, { state: "free" }>;

/** The states of a lock, as `list` names them. */
export const lockStates = ["working", "silent", "unknown", "freed", "cooldown", "foreign"] as const;

export type LockState = (typeof lockStates)[number];

export function stateOf(found: Found): LockState {
  if (found.state !== "held") return found.state;
  const renewals = renewalsOf(found);
  if (renewals === undefined) return "unknown";
  return renewals.missed > 0 ? "silent" : "working";
}

/** The renewals of a lease. */
interface Renewals {
  readonly everyMs: number;
  readonly missed: number;
  /** The lease reaches `maxHoldMs` soon, and is not renewed before that. */
  readonly hasEnded: boolean;
}

/** `undefined` where they cannot be known: for a lock of 0.1, and after the clock was set back. */
export function renewalsOf(held: HeldInspection): Renewals | undefined {
  const { renewedMs, expiresInMs, endsInMs, clockSetBack } = held;
  if (clockSetBack || renewedMs === undefined || endsInMs === undefined) return undefined;
  // A renewal gives the key ttlMs to live, and the next one is due after a third of it.
  const everyMs = (renewedMs + expiresInMs) / 3;
  const hasEnded = endsInMs <= expiresInMs;
  // A renewal that is less than half a period late may be under way.
  const missed = everyMs === 0 ? 0 : Math.floor((renewedMs - everyMs / 2) / everyMs);
  return { everyMs, missed: hasEnded ? 0 : Math.max(missed, 0), hasEnded };
}

export interface View {
  readonly user: string;
  readonly found: Inspection;
  /** The time of the inspection. */
  readonly at: Date;
  /** The key and the Redis that were looked at. */
  readonly place: string;
  /** Returns another command about the same lock, as a person types it. */
  readonly suggest: (command: string) => string;
  readonly paint: Paint;
}

/** Tells a support person the state of a user's lock, and what to do. */
export function showText(view: View): string[] {
  const { user, found, at, place, paint } = view;
  if (found.state === "free") {
    return [
      paint("bold", `User ${user} is not locked (${place}).`),
      "If the customer still cannot order, this lock is not the reason: check the shop's answers.",
    ];
  }
  const [headline = "", ...facts] = describeLock(user, found, at);
  return [paint("bold", headline), ...facts, ...advice(view, found)];
}

/** The sentence and the facts about a lock that `show` and `free` begin with. */
export function describeLock(user: string, found: Found, at: Date): string[] {
  const facts = found.state === "held" ? factsOf(found, at) : [];
  return [headline(user, found), ...facts, `  id       ${found.id}`];
}

function headline(user: string, found: Found): string {
  const { expiresInMs } = found;
  const isEndless = expiresInMs === Number.POSITIVE_INFINITY;
  const rest = isEndless ? "and it has no expiry" : `for another ${duration(expiresInMs)}`;
  switch (found.state) {
    case "freed":
      return `User ${user} was freed by ${found.by} (${found.reason}) and can order again in ${duration(expiresInMs)}.`;
    case "cooldown":
      return `User ${user}: the last order went through a moment ago; a new one is possible in ${duration(expiresInMs)} (cooldown).`;
    case "foreign":
      return found.notText
        ? `User ${user} is locked by a key that holds no text and so cannot be a lock, ${rest}.`
        : `User ${user} is locked by something that is not submit-lock, ${rest}.`;
    case "held": {
      const missed = renewalsOf(found)?.missed;
      if (missed === 0) return `User ${user} is placing an order right now.`;
      if (missed !== undefined) {
        return `User ${user} is locked, and its process has missed ${plural(missed, "renewal")}: it died, or it cannot reach Redis.`;
      }
      const why = found.clockSetBack
        ? `${rest}, because Redis' clock was set back`
        : `by submit-lock 0.1 or another library, ${rest}`;
      return `User ${user} is locked ${why}; whether a process is at work is not known.`;
    }
  }
}

function factsOf(held: HeldInspection, at: Date): string[] {
  const { heldMs = 0, renewedMs = 0, endsInMs = 0, holder } = held;
  const renewals = renewalsOf(held);
  const where = holder === "" ? [] : [`  where    ${holder}`];
  if (renewals === undefined) return where;
  const since = `  since    ${clock(new Date(at.getTime() - heldMs))}, ${duration(heldMs)} ago`;
  if (renewals.missed > 0) return [since, ...where];
  if (renewals.hasEnded) {
    return [
      since,
      ...where,
      // Where maxHoldMs is ttlMs, a lease is never renewed.
      renewedMs < heldMs
        ? `  renewed  ${duration(renewedMs)} ago, for the last time: whether its process is still alive is not known`
        : "  renewed  never: whether its process is alive is not known",
      `  ends     when the order is done, at the latest in ${duration(held.expiresInMs)}`,
    ];
  }
  const end = clock(new Date(at.getTime() + endsInMs));
  return [
    since,
    ...where,
    `  renewed  ${duration(renewedMs)} ago (every ${duration(renewals.everyMs)}): its process is alive`,
    `  ends     when the order is done, at the latest at ${end} (in ${duration(endsInMs)})`,
  ];
}

function advice({ suggest }: View, found: Found): string[] {
  switch (found.state) {
    case "held":
      return heldAdvice(found, suggest);
    case "foreign":
      return foreignAdvice(found, suggest("free"));
    case "freed":
      return [
        ...ifSetBack(found, longestTtlMs),
        "Nothing to do: by then the holder has been told to stop, or its lease is over.",
      ];
    case "cooldown":
      return [
        ...ifSetBack(found, longestCooldownMs),
        "Nothing to do: do not free, look for that order.",
      ];
  }
}

function heldAdvice(held: HeldInspection, suggest: View["suggest"]): string[] {
  switch (stateOf(held)) {
    case "working":
      return [
        "Nothing to do: a second click gets 409.",
        "free takes the lock and asks the process to stop, but undoes nothing. Look for the order and the payment first.",
        `To stop this order: ${suggest("free")}`,
      ];
    case "silent":
      return [
        `The lock ends by itself in ${duration(held.expiresInMs)}. Wait for that: there is no need to free.`,
        "Then look for the order and the payment.",
      ];
    default:
      return [
        ...(held.clockSetBack
          ? [
              "The customer's next click cuts it to ttlMs, 10 s by default: there is no need to free.",
            ]
          : []),
        `Look for the order and the payment first. ${plainFreeOf(held)}`,
        `Only when the developers say that its process is gone: ${suggest("free --now")}`,
      ];
  }
}

function foreignAdvice({ expiresInMs, notText }: ForeignInspection, freeCommand: string): string[] {
  if (notText) {
    return [
      "Another program uses this key: find it, and give the lock another prefix.",
      `free deletes the key at once, with everything in it: ${freeCommand}`,
    ];
  }
  return [
    "It may be an old lock whose process died, or one whose holder is still at work: there is no way to tell.",
    ...(expiresInMs === Number.POSITIVE_INFINITY
      ? ["The customer's next click gives it an expiry: maxHoldMs, 60 s by default."]
      : []),
    "Look for the order and the payment first. free deletes it at once, and its holder is not notified.",
    `Only when the developers say that nothing uses such locks any more: ${freeCommand}`,
  ];
}

/** After the clock was set back, the time above is longer than the one that the user will wait. */
function ifSetBack(found: FreedInspection | CooldownInspection, mostMs: number): string[] {
  if (!found.clockSetBack) return [];
  return [`Redis' clock was set back: the customer's next click cuts this to ${duration(mostMs)}.`];
}

/** `free` without `--now` keeps the expiry, but bounds one that is missing or too late. */
export function plainFreeOf({ expiresInMs, clockSetBack }: HeldInspection): string {
  if (clockSetBack) return "A plain free cuts it to ttlMs, too.";
  return expiresInMs === Number.POSITIVE_INFINITY
    ? "A plain free gives it an expiry: ttlMs, 10 s by default."
    : "A plain free keeps the user out for all of that time.";
}
