import { answerOf, type Connection, type PrefixedLock, redisOf } from "./connect.ts";
import type { Context } from "./context.ts";
import { count, parseDuration } from "./durations.ts";
import { CliError, exitCode, UsageError } from "./failure.ts";
import { type Listed, type ListedLock, listText } from "./list-text.ts";
import { type LockState, lockStates, renewalsOf, stateOf } from "./lock-state.ts";
import { clientOf, scan, userOf } from "./scan.ts";
import { json } from "./visible.ts";

/** So many keys are asked for at once: a script call has up to 100. */
const asked = 100;

/** `submit-lock list` */
export async function list({ args, terminal, open }: Context): Promise<number> {
  const wanted = wantedStates(args.text("state"));
  const older = args.text("older");
  const olderMs = older === undefined ? 0 : parseDuration("older", older);
  const budgetMs = parseDuration("budget", args.text("budget") ?? "10s");
  const limit = args.count("limit", 100);
  const connection = await open();
  const progress = (looked: number) => {
    if (terminal.showsProgress) terminal.progress(`looked at ${count(looked)} keys`);
  };
  const all: Listed[] = [];
  for (const prefixed of connection.locks) {
    all.push(await listed(connection, prefixed, budgetMs, progress));
  }
  if (terminal.showsProgress) terminal.progress("");
  const shown = all.map((each) => ({
    ...each,
    locks: each.locks.filter(
      ({ found }) => wanted.includes(stateOf(found)) && heldFor(found) >= olderMs,
    ),
  }));
  const hidesIds = args.has("no-ids");
  if (args.has("json")) terminal.print([json(asJson(shown, limit, hidesIds))]);
  else {
    const { paint } = terminal;
    const { address } = connection;
    const redis = redisOf(connection);
    terminal.print(
      shown.flatMap((each, at) => [
        ...(at === 0 ? [] : [""]),
        ...listText(each, { address, redis, limit, hidesIds, paint }),
      ]),
    );
  }
  return exitCode.done;
}

function wantedStates(text: string | undefined): readonly LockState[] {
  if (text === undefined) return lockStates;
  return text.split(",").map((name) => {
    const state = lockStates.find((each) => each === name.trim());
    if (state === undefined) {
      throw new UsageError(`--state: expected any of ${lockStates.join(", ")}, got "${name}"`);
    }
    return state;
  });
}

async function listed(
  connection: Connection,
  { keyPrefix, lock }: PrefixedLock,
  budgetMs: number,
  progress: (looked: number) => void,
): Promise<Listed> {
  const scanned = await scan(
    connection,
    clientOf(connection, "list"),
    keyPrefix,
    budgetMs,
    progress,
  ).catch((error: unknown) => {
    if (!/\bNOPERM\b/.test(String(error))) throw error;
    throw new CliError(
      `list needs +scan, which ${connection.address} does not permit this user: ACL SETUSER ${connection.user ?? "<user>"} +scan. show, free and watch work without it`,
      exitCode.notPermitted,
    );
  });
  // What is no user's key keeps nobody out.
  const users = scanned.keys.flatMap((key) => {
    const user = userOf(keyPrefix, key);
    return user !== undefined && lock.keyFor(user) === key ? [user] : [];
  });
  const locks: ListedLock[] = [];
  for (let at = 0; at < users.length; at += asked) {
    const inspected = users.slice(at, at + asked).map(async (user) => ({
      user,
      found: await answerOf(connection, lock.inspect(user)),
    }));
    for (const { user, found } of await Promise.all(inspected)) {
      if (found.state !== "free") locks.push({ user, found });
    }
  }
  locks.sort((one, other) => heldFor(other.found) - heldFor(one.found));
  const { looked, total, isComplete, tookMs } = scanned;
  return { keyPrefix, locks, looked, total, isComplete, tookMs };
}

/** For how long it has been held; where nobody knows, it counts as old. */
function heldFor(found: ListedLock["found"]): number {
  switch (found.state) {
    case "held":
      return found.heldMs ?? Number.MAX_VALUE;
    case "foreign":
      return Number.MAX_VALUE;
    default:
      return 0;
  }
}

function asJson(all: readonly Listed[], limit: number, hidesIds: boolean): object {
  return {
    prefixes: all.map(({ keyPrefix, locks, looked, isComplete, tookMs }) => ({
      keyPrefix,
      locks: locks.slice(0, limit).map(({ user, found }) => {
        const renewals = found.state === "held" ? renewalsOf(found) : undefined;
        return {
          ...(hidesIds ? {} : { userId: user }),
          ...found,
          ...(renewals && { missedRenewals: renewals.missed }),
        };
      }),
      count: locks.length,
      keysLookedAt: looked,
      isComplete,
      tookMs: Math.round(tookMs),
    })),
  };
}
