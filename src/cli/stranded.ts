import { strandedScript } from "../stores/redis/commands/on-call.ts";
import { answerOf, redisOf } from "./connect.ts";
import type { Context } from "./context.ts";
import { CliError, exitCode, toCliError } from "./failure.ts";
import { refuseNodeOfCluster, scanKeys, scanText, userOf } from "./scan.ts";
import { count, duration, json, personOf, plural, visible } from "./terminal.ts";

/** Why {@link strandedScript} leaves a lock alone: its code, the name in JSON, and a text. */
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
export async function freeStranded(context: Context): Promise<number> {
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
    throw new CliError("--older: expected a time above 0 and below --life");
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
