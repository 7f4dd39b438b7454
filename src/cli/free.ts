import type { FreeResult } from "../lock/on-call.ts";
import { type Arguments, suggestion } from "./arguments.ts";
import { answerOf, type Connection, theLock } from "./connect.ts";
import type { Context } from "./context.ts";
import { exitCode, UsageError } from "./failure.ts";
import {
  alreadyFreedText,
  beforeFreeing,
  changedText,
  dryRunText,
  freedText,
  keptOutMs,
} from "./free-text.ts";
import type { Found } from "./lock-state.ts";
import { personOf, type Terminal } from "./terminal.ts";
import { json, visible, visibleInspection, visibleUser } from "./visible.ts";

/** `submit-lock free <user>` */
export async function free(context: Context): Promise<number> {
  const { args, terminal, open } = context;
  const isDryRun = args.has("dry-run");
  if (!isDryRun && !terminal.canAsk) requireAnswers(args);
  const connection = await open();
  const found = visibleInspection(
    await answerOf(connection, theLock(connection).inspect(args.user)),
  );
  if (found.state === "free") {
    const text = `User ${visibleUser(args.user)} is free already. Nothing was changed.`;
    return told(context, { outcome: "already-free" }, [text]);
  }
  const given = args.text("id")?.toLowerCase() ?? found.id;
  if (found.state === "freed" && !args.has("now") && given.startsWith(found.id)) {
    const result = { outcome: "freed", freeInMs: found.expiresInMs } as const;
    const text = alreadyFreedText(visibleUser(args.user), found);
    return told(context, result, text, isDryRun ? true : undefined);
  }
  if (isDryRun) return dryRun(context, found, found.id);
  const { id, reason } = await answers(context, found, found.id);
  const by = args.text("by") ?? personOf(terminal.env).slice(0, 64);
  const now = args.has("now");
  const freeing = theLock(connection).free(args.user, { id, by, reason, now });
  const result = await answerOf(connection, freeing).catch((error: unknown) => {
    throw new UnknownOutcome(error, suggestion("show", args));
  });
  return await ended(context, connection, result, { id, by, reason, now, state: found.state });
}

/** Redis was asked to free the user, and did not say whether it has. */
export class UnknownOutcome extends Error {
  readonly showCommand: string;

  constructor(cause: unknown, showCommand: string) {
    super("free was not answered", { cause });
    this.showCommand = showCommand;
  }
}

/** Without a terminal nothing is asked. */
function requireAnswers(args: Arguments): void {
  const missing = ["id", "reason"].filter((name) => !args.has(name));
  if (missing.length === 0) return;
  const names = missing.map((name) => `--${name}`).join(" and ");
  throw new UsageError(
    `without a terminal, free needs ${names}: ${suggestion("free", args)} --id <id> --reason <text>. ${suggestion("show", args)} prints the id`,
  );
}

interface Answers {
  readonly id: string;
  readonly reason: string;
}

/** What was typed after the command, or is asked for. */
async function answers({ args, terminal }: Context, found: Found, there: string): Promise<Answers> {
  const now = args.has("now");
  const given = args.text("id")?.toLowerCase();
  // --now is confirmed once more where there is somebody to ask.
  const asksId = terminal.canAsk && (given === undefined || now);
  // What its holder is not told of is not done in silence.
  if (asksId || now || found.state === "foreign")
    terminal.warn(beforeFreeing(visibleUser(args.user), found, now));
  const reason =
    args.text("reason") ??
    (await ask(terminal, "Why, for the audit line (such as a ticket's number): "));
  if (!asksId) return { id: given as string, reason };
  const wanted = given ?? there;
  const typed = await ask(
    terminal,
    `Type the id (${visible(wanted)}) to free user ${visibleUser(args.user)}: `,
  );
  if (typed.toLowerCase() === wanted) return { id: wanted, reason };
  throw new UsageError(`that is not the id. Nothing was changed`);
}

async function ask(terminal: Terminal, question: string): Promise<string> {
  const typed = await terminal.ask(question);
  if (typed !== undefined && typed !== "") return typed;
  throw new UsageError("nothing was typed. Nothing was changed");
}

function dryRun(context: Context, found: Found, there: string): number {
  const { args } = context;
  const now = args.has("now");
  const given = args.text("id")?.toLowerCase();
  const isSame = given === undefined || given.startsWith(there);
  if (!isSame) return told(context, { outcome: "changed" }, changed(context, found), true);
  const freeInMs = keptOutMs(found, now);
  return told(
    context,
    { outcome: "freed", freeInMs },
    dryRunText(visibleUser(args.user), found, now),
    true,
  );
}

interface Audit extends Answers {
  readonly by: string;
  readonly now: boolean;
  readonly state: Found["state"];
}

async function ended(
  context: Context,
  connection: Connection,
  result: FreeResult,
  audit: Audit,
): Promise<number> {
  const { args } = context;
  const user = visibleUser(args.user);
  if (result.outcome === "changed") {
    // Only for the text.
    const found = await answerOf(connection, theLock(connection).inspect(args.user));
    if (found.state !== "free")
      return told(context, result, changed(context, visibleInspection(found)));
    return told(context, { outcome: "already-free" }, [`User ${user} is free by now.`]);
  }
  const text =
    result.outcome === "freed"
      ? freedText(user, visible(audit.by), visible(audit.reason), result.freeInMs)
      : // It ended by itself in between, or this command was executed and its first answer lost.
        [`User ${user} is free by now.`];
  const code = told(context, result, text);
  const { address: redis, database } = connection;
  const key = theLock(connection).keyFor(args.user);
  const time = new Date().toISOString();
  context.terminal.warn([
    json({
      event: "submit-lock free",
      time,
      userId: args.user,
      ...audit,
      ...result,
      redis,
      database,
      key,
    }),
  ]);
  return code;
}

function changed({ args }: Context, found: Found): string[] {
  return changedText(found, suggestion("show", args));
}

/** Prints the outcome, and gives the exit code. */
function told(
  { args, terminal }: Context,
  result: FreeResult,
  text: readonly string[],
  dryRun?: true,
): number {
  const { user } = args;
  if (args.has("json")) {
    terminal.print([json({ userId: user, ...result, ...(dryRun && { dryRun }) })]);
  } else if (result.outcome === "changed") terminal.warn(text);
  else terminal.print(text);
  return result.outcome === "changed" ? exitCode.found : exitCode.done;
}
