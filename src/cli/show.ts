import type { HeldInspection, Inspection, OutlivedOrder } from "../lock/store.ts";
import { performance, sleep } from "../time.ts";
import { longestCooldownMs, longestTtlMs } from "../validation.ts";
import { answerOf, redisOf } from "./connect.ts";
import type { Arguments, Context } from "./context.ts";
import {
  clock,
  duration,
  json,
  plural,
  quoted,
  visible,
  visibleTexts,
  visibleUser,
} from "./terminal.ts";

export async function show({ args, terminal, open }: Context): Promise<undefined> {
  const connection = await open();
  const [lock] = connection.locks;
  const inspection = await answerOf(connection.address, lock.inspect(args.user));
  const found = visibleTexts(inspection);
  const user = visibleUser(args.user);
  if (args.has("json")) terminal.print([json({ userId: args.user, ...inspection })]);
  else if (found.state === "free") {
    const key = visible(connection.clientPrefix + lock.keyFor(args.user));
    terminal.print([
      terminal.paint("bold", `User ${user} is not locked (key ${key} in ${redisOf(connection)}).`),
      ...(found.outlived === undefined
        ? [
            "This lock does not keep the user out now. If orders still fail, look at the status and code that the shop answers.",
          ]
        : outlivedTexts(found.outlived)),
      `To see which answers are kept for the user: ${args.suggest("answers")}`,
    ]);
  } else {
    const [headline = "", ...facts] = describeLock(user, found);
    const lines = [terminal.paint("bold", headline), ...facts, effectOfFree(found)];
    terminal.print(lines.concat(adviceOn(found, args)));
  }
}

/** Where `free` may help: the command with its condition, and then a way that is safe. */
function adviceOn(found: Found, args: Arguments): string[] {
  const left = duration(found.expiresInMs);
  const free = (why: string, now = "") =>
    args.suggest(`free --id ${quoted(found.id)} --reason ${quoted(why)}${now}`);
  const click =
    "clockSetBack" in found
      ? "cuts the time to ttlMs, 10 s by default"
      : "gives the lock maxHoldMs to live, 1 min by default";
  const isLong = left === "forever" || "clockSetBack" in found;
  const wait = isLong
    ? `ask the customer to click once, which ${click}, and wait for that time`
    : `wait ${left}`;
  switch (stateOf(found)) {
    case "working":
      return [
        `Only if the handler looks at its signal: ${free("an order that hangs")}`,
        `Safe with any handler: wait, or end ${processOf(found.state === "held" ? found.holder : "")}, with all other orders in it. Use kill -9, and see that it is gone: a handler may outlive SIGTERM. Then free the lock, or let it run out, in ${longestWait(found)} at most. Look for the order and the payment before the customer orders again.`,
      ];
    case "unknown":
      return [
        `Only when the developers say that its process is gone: ${free("its process is gone", " --now")}`,
        `Safe: ${wait}.`,
      ];
    case "foreign":
      return [
        `Only when the developers say that nothing uses it: ${free("a lock that nothing uses")}`,
        `Safe: ${"notText" in found ? "leave the key until you know which program writes it" : wait}.`,
      ];
    default:
      return [];
  }
}

/** No text gives an all-clear: an order that outlived its lock may still be at work, and charge. */
function outlivedTexts(orders: readonly OutlivedOrder[]): string[] {
  const texts = orders.map(
    ({ endedMs, holder, reason }) =>
      `An order outlived its lock, which ended ${duration(endedMs)} ago (${reason}), and may still be at work in ${processOf(visible(holder))}: the next order runs beside it.`,
  );
  return [
    ...texts,
    "Look for the order and the payment. Safe: end each such process, with all other orders in it (kill -9, and see that it is gone). The line of a process that has died stays until an hour after the last such order.",
  ];
}

/** Names the process of a `holder`, which is `host:pid` by default. */
function processOf(holder: string): string {
  const [, host, pid] = /^(.+):(\d+)$/.exec(holder) ?? [];
  if (host !== undefined) return `process ${pid} on ${host}`;
  return holder === "" ? "its process" : `the process ${holder}`;
}

export type Found = Exclude<Inspection, { state: "free" }>;

export const lockStates = ["working", "silent", "unknown", "freed", "cooldown", "foreign"] as const;

export type LockState = (typeof lockStates)[number];

export function stateOf(found: Found): LockState {
  if (found.state !== "held") return found.state;
  const renewals = renewalsOf(found);
  if (renewals === undefined) return "unknown";
  return renewals.missed > 0 ? "silent" : "working";
}

/** `undefined` if unknown: no holder, a lock of another library, or a clock set back. */
export function renewalsOf(
  found: Found,
): { readonly everyMs: number; readonly missed: number; readonly hasEnded: boolean } | undefined {
  if (found.state !== "held" || found.clockSetBack) return undefined;
  const { renewedMs, expiresInMs, endsInMs } = found;
  if (renewedMs === undefined || endsInMs === undefined) return undefined;
  // A renewal gives the key ttlMs to live, and the next one is due after a third of it.
  const everyMs = (renewedMs + expiresInMs) / 3;
  // The key lives until maxHoldMs already, so it is not renewed again.
  const hasEnded = endsInMs <= expiresInMs;
  // A renewal that is less than half a period late may be under way.
  const missed = everyMs === 0 ? 0 : Math.floor((renewedMs - everyMs / 2) / everyMs);
  return { everyMs, missed: hasEnded ? 0 : Math.max(missed, 0), hasEnded };
}

export function describeLock(user: string, found: Found): string[] {
  const lines = [`User ${user} ${headline(found)}.`];
  if (found.state === "held") lines.push(...factsOf(found));
  if (found.state === "foreign" && found.valueStart !== undefined) {
    const more = Buffer.byteLength(found.valueStart) < 16 ? "" : " …";
    lines.push(`  value    "${found.valueStart}"${more}`);
  }
  const isOfValue = found.state === "foreign" && found.expiresInMs === Number.POSITIVE_INFINITY;
  const alone = isOfValue
    ? ", which a newer lock may have as well: free would delete the newer lock"
    : "";
  lines.push(`  id       ${found.id}${alone}`);
  if (found.outlived !== undefined) lines.push(...outlivedTexts(found.outlived));
  if ("clockSetBack" in found) {
    const most = { held: "", freed: longestTtlMs, cooldown: longestCooldownMs }[found.state];
    const ms = typeof most === "number" ? duration(most) : "ttlMs, 10 s by default";
    lines.push(`Redis' clock was set back: the next click cuts the time to ${ms}.`);
  }
  return lines;
}

function headline(found: Found): string {
  const left = duration(found.expiresInMs);
  const rest = left === "forever" ? "and it has no expiry" : `for another ${left}`;
  const { hasEnded, missed } = renewalsOf(found) ?? {};
  switch (found.state) {
    case "freed":
      return `was freed by ${found.by} (${found.reason}) and can order again in ${left}`;
    case "cooldown":
      return `is in a cooldown: the last request has ended, and the next is let in at ${timeIn(found.expiresInMs)} (in ${left})`;
    case "foreign":
      return `is locked by ${found.notText ? "a key that holds no text and so cannot be a lock" : "something that is not submit-lock"}, ${rest}`;
    case "held":
      if (missed === 0)
        return `is placing an order${hasEnded ? ", unless its process has died" : " right now"}`;
      if (missed !== undefined)
        return `is locked, and its process has missed ${plural(missed, "renewal")}: it died, or it cannot reach Redis`;
      return `is locked ${found.clockSetBack ? `${rest}, because Redis' clock was set back` : `by another library, ${rest}`}; whether a process is at work is not known`;
  }
}

function timeIn(ms: number): string {
  return clock(new Date(Date.now() + ms));
}

function factsOf(held: HeldInspection): string[] {
  const { heldMs = 0, renewedMs = 0, expiresInMs, endsInMs = 0, holder } = held;
  const renewals = renewalsOf(held);
  const where = holder === "" ? [] : [`  where    ${holder}`];
  if (renewals === undefined) return where;
  const facts = [`  since    ${timeIn(-heldMs)}, ${duration(heldMs)} ago`, ...where];
  if (renewals.missed > 0) return facts;
  const ago = `${duration(renewedMs)} ago`;
  // A lease whose maxHoldMs is ttlMs is never renewed.
  const last = renewedMs < heldMs ? `${ago}, for the last time` : "never";
  const [renewed, end] = renewals.hasEnded
    ? [`${last}, so it does not show whether its process is alive`, `in ${duration(expiresInMs)}`]
    : [
        `${ago} (every ${duration(renewals.everyMs)}): its process is alive`,
        `at ${timeIn(endsInMs)} (in ${duration(endsInMs)})`,
      ];
  const ends = `  ends     the lock ends when the order is done, at the latest ${end}; the order may go on`;
  return [...facts, `  renewed  ${renewed}`, ends];
}

/** The longest wait from a `free` to the next order, in ms; `Infinity` means the lock's `ttlMs`. */
export function longestWaitMs(found: Found): number {
  if (found.state === "held" && found.clockSetBack) return Number.POSITIVE_INFINITY;
  const renewals = renewalsOf(found);
  return renewals?.hasEnded === false ? Math.round(3 * renewals.everyMs) : found.expiresInMs;
}

export function longestWait(found: Found): string {
  const ms = longestWaitMs(found);
  return ms === Number.POSITIVE_INFINITY ? "ttlMs" : duration(ms);
}

export function effectOfFree(found: Found): string {
  const left = duration(found.expiresInMs);
  const lookFirst = "Look for the order and the payment first.";
  const effects: Readonly<Record<LockState, string>> = {
    working: `free asks the process to stop: it aborts the signal that the handler has, and some handlers do not obey it (ask its developers, or read the route). The next order can start when the lock runs out, in ${longestWait(found)} at most, whether or not this one has stopped: two charges are possible. free undoes nothing that the order has done. ${lookFirst}`,
    silent: `The lock ends by itself in ${left}. Freeing it without --now will not help the user sooner; it only stops the process from renewing it. ${lookFirst}`,
    unknown: `free without --now ${"clockSetBack" in found ? "cuts the time to ttlMs, as the next click does" : left === "forever" ? "gives it an expiry, ttlMs" : "leaves the user locked out for the time above"}. The lock's holder may still be at work. ${lookFirst}`,
    freed:
      "Wait, then look again: by then the holder has been notified, or its lease has run out. A handler that ignores its signal may still be at work.",
    cooldown: "Do not free: look whether the last request placed an order. free ends the cooldown.",
    foreign: `It may be an old lock whose process died. Its value and CLIENT LIST may name the program, and an id that changes means that its holder is alive. free deletes it at once. Its holder may still be at work and is not notified: two orders and two charges are possible. ${lookFirst}`,
  };
  return "notText" in found
    ? "free deletes the key at once, with everything in it. Find out first which program writes it, and give the lock another prefix."
    : effects[stateOf(found)];
}

const everyMs = 200;

export async function watch({ args, terminal, open }: Context): Promise<undefined> {
  const endsAt = performance.now() + args.duration("for", Number.POSITIVE_INFINITY);
  const { address, locks } = await open();
  const [lock] = locks;
  let before: Inspection | undefined;
  for (;;) {
    const found = await answerOf(address, lock.inspect(args.user));
    const change = changeOf(before, found);
    if (change !== undefined) {
      const time = new Date();
      const line = args.has("json")
        ? json({ time: time.toISOString(), userId: args.user, change, ...found })
        : watchLine(time, change, visibleTexts(found), before);
      terminal.print([line]);
    }
    before = found;
    if (performance.now() + everyMs > endsAt) return;
    await sleep(everyMs);
  }
}

/** Names the change between two looks; `undefined` for none. The first look is always a change. */
export function changeOf(before: Inspection | undefined, now: Inspection): string | undefined {
  const idOf = (found?: Inspection) => found !== undefined && "id" in found && found.id;
  const isSame = before?.state === now.state && idOf(before) === idOf(now);
  const [outlived, earlier] = [now.outlived?.length ?? 0, before?.outlived?.length ?? 0];
  if (isSame && outlived !== earlier) return outlived > earlier ? "outlived" : "ended";
  if (now.state !== "held") return isSame ? undefined : now.state;
  if (!isSame || before.state !== "held") return "taken";
  return (now.renewedMs ?? 0) < (before.renewedMs ?? 0) ? "renewed" : undefined;
}

export function watchLine(at: Date, change: string, now: Inspection, before?: Inspection): string {
  const ms = String(at.getMilliseconds()).padStart(3, "0");
  const ended = "an order that had outlived its lock";
  const detail = { renewed: "", ended }[change] ?? detailOf(now, before);
  const outlived = (now.outlived ?? []).map(
    ({ endedMs, holder }) =>
      `an order outlived its lock, which ended ${duration(endedMs)} ago, and may still be at work at ${visible(holder)}`,
  );
  const whole = [detail, ...outlived].filter((part) => part !== "").join("; ");
  return `${clock(at)}.${ms} ${change.padEnd(8)} ${whole}`.trimEnd();
}

function detailOf(now: Inspection, before?: Inspection): string {
  if (now.state === "free") {
    const heldMs = before?.state === "held" ? before.heldMs : undefined;
    return heldMs === undefined ? "" : `after about ${duration(heldMs)}`;
  }
  if (now.state === "held") {
    const { holder, id, heldMs = 0 } = now;
    const since = heldMs < 1_000 ? "" : `${duration(heldMs)} ago`;
    return [holder, id, since].filter((part) => part !== "").join(" ");
  }
  const left = duration(now.expiresInMs);
  const end = left === "forever" ? "never ends" : `ends in ${left}`;
  return now.state === "freed" ? `by ${now.by} (${now.reason}), ${end}` : end;
}
