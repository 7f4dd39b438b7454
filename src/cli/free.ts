import { isSubmitLockError } from "../errors.ts";
import type { FreeResult } from "../lock/store.ts";
import { strandedScript } from "../stores/redis/commands/on-call.ts";
import { answerOf, redisOf } from "./connect.ts";
import type { Context } from "./context.ts";
import { CliError, exitCode, toCliError } from "./failure.ts";
import { refuseNodeOfCluster, scanKeys, scanText, userOf } from "./scan.ts";
import {
  describeLock,
  effectOfFree,
  type Found,
  longestWait,
  longestWaitMs,
  stateOf,
} from "./show.ts";
import {
  count,
  duration,
  json,
  personOf,
  plural,
  visible,
  visibleTexts,
  visibleUser,
} from "./terminal.ts";

export async function free(context: Context): Promise<number> {
  const { args, terminal, open } = context;
  if (args.has("stranded")) return await freeStranded(context);
  const wrong = ["value", "life", "older", "budget"].find((name) => args.has(name));
  if (wrong !== undefined) throw new CliError(`--${wrong} is an option of free --stranded`);
  const now = args.has("now");
  const missing = ["id", "reason"].filter((name) => !args.has(name)).map((name) => `--${name}`);
  if (missing.length > 0 && !args.has("dry-run") && !terminal.canAsk) {
    const text = `without a terminal, free needs ${missing.join(" and ")}`;
    throw new CliError(`${text}. This prints the id and the command: ${args.suggest("show")}`);
  }
  const { address, database, locks } = await open();
  const [lock] = locks;
  const user = visibleUser(args.user);
  const look = async () => visibleTexts(await answerOf(address, lock.inspect(args.user)));
  const wrongId = (found: Found) => {
    const text = `Nothing was changed: the id that was given is not that of the user's lock (${labelOf(found)}). It was mistyped, a newer order has begun, or another program's lock was renewed: leave another program's lock alone. Look again: ${args.suggest("show")}`;
    return ended(context, { outcome: "changed" }, text);
  };

  const found = await look();
  const alreadyFree = { outcome: "already-free" } as const;
  if (found.state === "free") {
    return ended(context, alreadyFree, `User ${user} is free already. Nothing was changed.`);
  }
  const isSame = (args.text("id")?.toLowerCase() ?? found.id).startsWith(found.id);
  if (found.state === "freed" && !now && isSame) {
    const text = `Already freed by ${found.by} (${found.reason}). User ${user} can order again in ${duration(found.expiresInMs)}${found.clockSetBack ? ", or 5 min after the next click" : ""}. Nothing was changed.`;
    return ended(context, { outcome: "freed", freeInMs: found.expiresInMs }, text);
  }
  if (args.has("dry-run")) {
    if (!isSame) return wrongId(found);
    const isAtOnce = now || found.state === "cooldown" || found.state === "foreign";
    const freeInMs = isAtOnce ? 0 : longestWaitMs(found);
    const wait = `let the next order start in ${longestWait(found)} at most`;
    const text = `Would free user ${user} (${labelOf(found)}) and ${isAtOnce ? "let the next order start at once" : wait}. Nothing was changed.`;
    return ended(context, { outcome: "freed", freeInMs }, text);
  }

  const { id, reason } = await idAndReason(context, found);
  const by = args.text("by") ?? personOf(terminal.env);
  const asked = lock.free(args.user, { id, by, reason, now });
  const result = await answerOf(address, asked).catch((error: unknown) => {
    const failure = toCliError(error, address);
    // If the cause is an error of this package, too, Redis may have executed the request.
    const isKnown = isSubmitLockError(error) && !isSubmitLockError(error.cause);
    const look = `Whether the user was freed is not known. Look again: ${args.suggest("show")}`;
    const outcome = isKnown ? "Nothing was changed." : look;
    const { exitCode, message } = failure;
    throw new CliError(`${message.replace(/[^.?!)]$/, "$&.")} ${outcome}`, exitCode);
  });
  let text = `User ${user} is free by now.`;
  if (result.outcome === "changed") {
    const current = await look();
    return current.state === "free" ? ended(context, alreadyFree, text) : wrongId(current);
  }
  if (result.outcome === "freed") {
    const when = result.freeInMs === 0 ? "now" : `in ${duration(result.freeInMs)}`;
    text = `Freed by ${visible(by)} (${visible(reason)}). User ${user} can order again ${when}.`;
  }
  ended(context, result, text);
  const audit = {
    ...{ event: "submit-lock free", time: new Date().toISOString(), userId: args.user },
    ...{ id, reason, by, now, state: found.state, ...result },
    ...{ redis: address, database, key: lock.keyFor(args.user) },
  };
  terminal.warn([json(audit)]);
  return exitCode.done;
}

async function idAndReason({ args, terminal }: Context, found: Found) {
  const now = args.has("now");
  const given = args.text("id")?.toLowerCase();
  // On a terminal, `--now` asks for the id even where `--id` gave it.
  const asksId = terminal.canAsk && (given === undefined || now);
  const user = visibleUser(args.user);
  // With --now or a foreign lock the holder may go on: warn even if there is nothing to ask.
  if (asksId || now || found.state === "foreign") {
    const risk = `--now lets the next order start at once, although the holder may still be at work: two orders and two charges are possible. Do this only with a developer who has stopped that process. Without --now the next order can start in ${longestWait(found)} at most.`;
    const hasHolder = found.state === "held" || found.state === "freed";
    terminal.warn([...describeLock(user, found), now && hasHolder ? risk : effectOfFree(found)]);
  }
  const reason = await reasonOf({ args, terminal });
  const id = given ?? found.id;
  if (!asksId) return { id, reason };
  const typed = await prompt(
    terminal,
    `Type the lock's id (${visible(id)}) to free user ${user}: `,
  );
  if (typed.toLowerCase() === id) return { id, reason };
  throw new CliError("that is not the id. Nothing was changed");
}

export async function reasonOf({
  args,
  terminal,
}: Pick<Context, "args" | "terminal">): Promise<string> {
  const question = "Why, for the audit line (such as a ticket's number): ";
  return args.text("reason") ?? (await prompt(terminal, question));
}

async function prompt(terminal: Context["terminal"], question: string): Promise<string> {
  const typed = await terminal.ask(question);
  if (typed) return typed;
  throw new CliError("nothing was typed. Nothing was changed");
}

function ended({ args, terminal }: Context, result: FreeResult, text: string): number {
  const isChanged = result.outcome === "changed";
  if (args.has("json")) {
    const dryRun = args.has("dry-run") && result.outcome !== "already-free";
    terminal.print([json({ userId: args.user, ...result, ...(dryRun && { dryRun }) })]);
  } else if (isChanged) terminal.warn([text]);
  else terminal.print([text]);
  return isChanged ? exitCode.found : exitCode.done;
}

function labelOf(found: Found): string {
  const isKnown = found.state === "held" && found.heldMs !== undefined;
  return `${found.id}, ${stateOf(found)}${isKnown ? `, for ${duration(found.heldMs)}` : ""}`;
}

/** Why {@link strandedScript} leaves a lock alone: the script's code, the name in JSON, a text. */
const leftAlone = [
  [-1, "younger", "younger"],
  [-3, "otherValue", "with another value"],
  [-4, "endless", "without an expiry, for which --life is not true"],
  [-5, "longer", "with more time left than --life"],
] as const;

/**
 * Deletes the locks that an older program has left. A lock's age is its full life less the life
 * that is left.
 */
async function freeStranded(context: Context): Promise<number> {
  const { args, terminal, open } = context;
  const wrong = ["id", "now"].find((name) => args.has(name));
  if (args.takesUser || wrong !== undefined) {
    const what = wrong === undefined ? "no user id" : `no --${wrong}`;
    throw new CliError(`free --stranded takes ${what}: it looks at the locks of all users`);
  }
  const value = args.text("value");
  const missing = ["value", "life", "older"].filter((name) => !args.has(name));
  if (value === undefined || missing.length > 0) {
    throw new CliError(`free --stranded needs ${missing.map((name) => `--${name}`).join(" and ")}`);
  }
  if (/^(freed:|cooldown:)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-/.test(value)) {
    throw new CliError(
      "--value: that is a lock of submit-lock. free with a user id takes one of those away",
    );
  }
  const [lifeMs, olderMs] = [args.duration("life", 0), args.duration("older", 0)];
  if (olderMs <= 0 || olderMs >= lifeMs) {
    const came = `${args.text("older")} with ${args.text("life")}`;
    throw new CliError(`--older: expected a time above 0 and below --life, got ${came}`);
  }
  const budgetMs = args.duration("budget", 600_000);
  const isDry = args.has("dry-run");
  const connection = await open();
  await refuseNodeOfCluster(connection);
  const common = {
    ...{ event: "submit-lock free --stranded", reason: args.text("reason") ?? "stranded" },
    by: args.text("by") ?? personOf(terminal.env),
    ...{ redis: connection.address, database: connection.database, value, lifeMs, olderMs },
  };
  const lines: string[] = [];
  const prefixes: object[] = [];
  for (const lock of connection.locks) {
    const { keyPrefix } = lock;
    const numbers = new Map<number, number>();
    let freed = 0;
    const free = async (key: string) => {
      const audit = { ...common, time: new Date().toISOString(), key, userId: userOf(lock, key) };
      const call = { keys: [key], args: [value, lifeMs, lifeMs - olderMs, isDry ? 0 : 1] };
      const asked = Promise.resolve(connection.client?.eval(strandedScript, call));
      // The lock may have been deleted, so its audit line says that the outcome is unknown.
      const failed = (error: unknown) => {
        if (!isDry) terminal.warn([json({ ...audit, outcome: "unknown" })]);
        throw toCliError(error, connection.address);
      };
      const code = Number(await answerOf(connection.address, asked).catch(failed));
      numbers.set(code, (numbers.get(code) ?? 0) + 1);
      if (code < 0) return;
      freed++;
      const ageMs = lifeMs - code;
      if (!isDry) terminal.warn([json({ ...audit, ageMs, outcome: "freed" })]);
      else if (!args.has("json")) lines.push(`would free ${visible(key)}, ${duration(ageMs)} old`);
    };
    const each = async (keys: readonly string[]): Promise<undefined> => {
      // Wait for all, even if one fails: each deletion writes its audit line.
      const ended = await Promise.allSettled([...new Set(keys)].map(free));
      const failed = ended.find((one) => one.status === "rejected");
      if (failed !== undefined) throw failed.reason;
    };
    const scan = await scanKeys(connection, keyPrefix, budgetMs, each, (looked) =>
      terminal.progress(
        `looked at ${count(looked)} keys, ${isDry ? "would free" : "freed"} ${freed}`,
      ),
    );
    const numberOf = (code: number) => numbers.get(code) ?? 0;
    const others = leftAlone
      .filter(([code]) => numberOf(code) > 0)
      .map(([code, , text]) => `${count(numberOf(code))} ${text}`);
    const left = others.length === 0 ? "" : `; left alone: ${others.join(", ")}`;
    const verb = isDry ? "would free" : "freed";
    lines.push(
      `${visible(keyPrefix)} on ${redisOf(connection)}: ${verb} ${plural(freed, "lock")} older than ${duration(olderMs)}${left}`,
      scanText(scan),
    );
    const counts = Object.fromEntries(leftAlone.map(([code, name]) => [name, numberOf(code)]));
    const { looked: keysLookedAt, partial, tookMs } = scan;
    const whole = { keysLookedAt, isComplete: partial === undefined, tookMs: Math.round(tookMs) };
    prefixes.push({ keyPrefix, freed, ...counts, ...whole });
  }
  terminal.progress("");
  terminal.print(args.has("json") ? [json({ prefixes, ...(isDry && { dryRun: true }) })] : lines);
  return exitCode.done;
}
