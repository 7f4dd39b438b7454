import { hostname, userInfo } from "node:os";
import type { FreedInspection, FreeResult } from "../lock/on-call.ts";
import { answerOf, theLock } from "./connect.ts";
import { CliError, exitCode, NoAnswerError, toCliError, UsageError } from "./failure.ts";
import type { Arguments, Context } from "./main.ts";
import { describeLock, type Found, plainFreeOf, stateOf } from "./show.ts";
import {
  duration,
  json,
  type Terminal,
  visible,
  visibleInspection,
  visibleUser,
} from "./terminal.ts";

/** `submit-lock free <user>` */
export async function free(context: Context): Promise<number> {
  const { args, terminal, open } = context;
  const isDryRun = args.has("dry-run");
  const now = args.has("now");
  if (!isDryRun && !terminal.canAsk) requireAnswers(args);
  const connection = await open();
  const lock = theLock(connection);
  const user = visibleUser(args.user);
  const look = async () => visibleInspection(await answerOf(connection, lock.inspect(args.user)));

  const found = await look();
  if (found.state === "free") {
    const text = [`User ${user} is free already. Nothing was changed.`];
    return ended(context, { outcome: "already-free" }, text);
  }
  const given = args.text("id")?.toLowerCase() ?? found.id;
  const isSame = given.startsWith(found.id);
  if (found.state === "freed" && !now && isSame) {
    return ended(context, freedResult(found.expiresInMs), alreadyFreedText(user, found));
  }
  if (isDryRun) {
    return isSame
      ? ended(context, freedResult(keptOutMs(found, now)), dryRunText(user, found, now))
      : ended(context, { outcome: "changed" }, changedText(found, args.suggest("show")));
  }

  const { id, reason } = await answers(context, found);
  const by = args.text("by") ?? personOf(terminal.env).slice(0, 64);
  const asked = lock.free(args.user, { id, by, reason, now });
  const result = await answerOf(connection, asked).catch((error: unknown) => {
    const failure = toCliError(error, connection.address);
    const outcome =
      failure instanceof NoAnswerError
        ? `Whether the user was freed is not known. Look again: ${args.suggest("show")}`
        : "Nothing was changed.";
    throw new CliError(`${failure.message} ${outcome}`, failure.exitCode);
  });
  if (result.outcome === "changed") {
    const current = await look();
    if (current.state !== "free") {
      return ended(context, result, changedText(current, args.suggest("show")));
    }
    return ended(context, { outcome: "already-free" }, [`User ${user} is free by now.`]);
  }
  const code = ended(
    context,
    result,
    result.outcome === "freed"
      ? freedText(user, visible(by), visible(reason), result.freeInMs)
      : // It ended by itself, or the first reply to this command was lost.
        [`User ${user} is free by now.`],
  );
  const audit = {
    ...{ event: "submit-lock free", time: new Date().toISOString(), userId: args.user },
    ...{ id, reason, by, now, state: found.state, ...result },
    ...{ redis: connection.address, database: connection.database, key: lock.keyFor(args.user) },
  };
  terminal.warn([json(audit)]);
  return code;
}

/** Without a terminal the command asks nothing. */
function requireAnswers(args: Arguments): void {
  const missing = ["id", "reason"].filter((name) => !args.has(name));
  if (missing.length === 0) return;
  const names = missing.map((name) => `--${name}`).join(" and ");
  throw new UsageError(
    `without a terminal, free needs ${names}: ${args.suggest("free")} --id <id> --reason <text>. ${args.suggest("show")} prints the id`,
  );
}

/** The id and the reason, as options or from the person at the terminal. */
async function answers({ args, terminal }: Context, found: Found) {
  const now = args.has("now");
  const given = args.text("id")?.toLowerCase();
  // --now is confirmed by the id once more.
  const asksId = terminal.canAsk && (given === undefined || now);
  const user = visibleUser(args.user);
  // A foreign holder is not notified, so the warning is printed even if there is nothing to ask.
  if (asksId || now || found.state === "foreign") {
    terminal.warn(beforeFreeing(user, found, now, new Date()));
  }
  const reason =
    args.text("reason") ??
    (await ask(terminal, "Why, for the audit line (such as a ticket's number): "));
  const id = given ?? found.id;
  if (!asksId) return { id, reason };
  const typed = await ask(terminal, `Type the id (${visible(id)}) to free user ${user}: `);
  if (typed.toLowerCase() === id) return { id, reason };
  throw new UsageError("that is not the id. Nothing was changed");
}

async function ask(terminal: Terminal, question: string): Promise<string> {
  const typed = await terminal.ask(question);
  if (typed !== undefined && typed !== "") return typed;
  throw new UsageError("nothing was typed. Nothing was changed");
}

/** The person at the shell, also behind sudo: `anna@ops-1`. */
function personOf(env: NodeJS.ProcessEnv): string {
  const names = [env["SUDO_USER"], env["USER"], env["LOGNAME"], env["USERNAME"]];
  return `${names.find((name) => name !== undefined && name !== "") ?? accountName()}@${hostname()}`;
}

function accountName(): string {
  try {
    return userInfo().username;
  } catch {
    // The account has no entry, as in a container.
    return "unknown";
  }
}

/** Prints the outcome, and returns the exit code. */
function ended({ args, terminal }: Context, result: FreeResult, text: readonly string[]): number {
  const isChanged = result.outcome === "changed";
  if (args.has("json")) {
    const dryRun = args.has("dry-run") && result.outcome !== "already-free";
    terminal.print([json({ userId: args.user, ...result, ...(dryRun && { dryRun }) })]);
  } else if (isChanged) terminal.warn(text);
  else terminal.print(text);
  return isChanged ? exitCode.found : exitCode.done;
}

function freedResult(freeInMs: number): FreeResult {
  return { outcome: "freed", freeInMs };
}

/** Tells a person what is there and what freeing it does, before the id has to be typed. */
export function beforeFreeing(user: string, found: Found, now: boolean, at: Date): string[] {
  return [...describeLock(user, found, at), ...whatHappens(found, now)];
}

function whatHappens(found: Found, now: boolean): string[] {
  const wait = duration(found.expiresInMs);
  if (found.state === "cooldown") {
    return ["The cooldown ends at once. Look for that order first: a second one is seldom wanted."];
  }
  if (found.state === "foreign" && found.notText) {
    return [
      "The key is deleted at once, with everything in it. Find out first which program writes it: it may be that program's data.",
    ];
  }
  if (found.state === "foreign") {
    return [
      "It is deleted at once. Its holder may still be at work and is not notified: two orders and two charges are possible.",
      "Look for the order and the payment first, and free it only when the developers say that nothing uses such locks any more.",
    ];
  }
  if (now) {
    const isEndless = found.expiresInMs === Number.POSITIVE_INFINITY;
    return [
      "--now: the next order can start at once, although the holder may still be at work: two orders and two charges are possible.",
      `Do this only with a developer who has stopped that process.${isEndless ? "" : ` Without --now the user waits ${wait}.`}`,
    ];
  }
  if (found.state === "held" && stateOf(found) === "unknown") {
    return [
      `${plainFreeOf(found)} Its holder may still be at work.`,
      "Look for the order and the payment first. Use --now only when the developers say that its process is gone.",
    ];
  }
  return [
    stateOf(found) === "silent"
      ? `The lock ends by itself in ${wait}. Freeing it will not help the user sooner; it only stops the process from renewing it.`
      : `Its process will be asked to stop, and the user's next order has to wait until then: ${wait} at most.`,
    "free undoes nothing that the order has done: look for the order and the payment first.",
  ];
}

/** How long `free` keeps others out, in milliseconds. */
function keptOutMs(found: Found, now: boolean): number {
  if (now || found.state === "cooldown" || found.state === "foreign") return 0;
  // It is cut to the holder's ttlMs, which is not known here.
  return found.state === "held" && found.clockSetBack
    ? Number.POSITIVE_INFINITY
    : found.expiresInMs;
}

export function dryRunText(user: string, found: Found, now: boolean): string[] {
  const ms = keptOutMs(found, now);
  const wait = ms === Number.POSITIVE_INFINITY ? "ttlMs" : duration(ms);
  const effect = ms === 0 ? "let the next order start at once" : `keep others out for ${wait}`;
  return [`Would free user ${user} (${labelOf(found)}) and ${effect}. Nothing was changed.`];
}

export function freedText(user: string, by: string, reason: string, freeInMs: number): string[] {
  const when = freeInMs === 0 ? "now" : `in ${duration(freeInMs)}`;
  return [`Freed by ${by} (${reason}). User ${user} can order again ${when}.`];
}

export function alreadyFreedText(user: string, found: FreedInspection): string[] {
  const { by, reason, expiresInMs } = found;
  return [
    `Already freed by ${by} (${reason}). User ${user} can order again in ${duration(expiresInMs)}. Nothing was changed.`,
  ];
}

/** For an id that is not the one of the lock. */
export function changedText(found: Found, showCommand: string): string[] {
  return [
    `Nothing was changed: this is not the id of the lock's holder (${labelOf(found)}). It was mistyped, or a newer order has begun: leave that one alone.`,
    `Look again: ${showCommand}`,
  ];
}

/** The lock in a few words. */
function labelOf(found: Found): string {
  const held =
    found.state === "held" && found.heldMs !== undefined ? `, for ${duration(found.heldMs)}` : "";
  return `${found.id}, ${stateOf(found)}${held}`;
}
