import type { OutlivedOrder } from "../lock/store.ts";
import { answerOf, redisOf } from "./connect.ts";
import type { Arguments, CliLock, CliTarget, Context } from "./context.ts";
import { CliError } from "./failure.ts";
import {
  isNoLock,
  outlivedUserOf,
  refuseNodeOfCluster,
  type Scan,
  scanKeys,
  scanText,
  userOf,
} from "./scan.ts";
import { type Found, lockStates, renewalsOf, stateOf } from "./show.ts";
import {
  columns,
  count,
  duration,
  firstOf,
  json,
  type Paint,
  plural,
  visible,
  visibleTexts,
  visibleUser,
} from "./terminal.ts";

export async function list({ args, terminal, open }: Context): Promise<undefined> {
  const wanted = (args.text("state") ?? lockStates.join()).split(",").map((name) => name.trim());
  const wrong = wanted.find((name) => !(lockStates as readonly string[]).includes(name));
  if (wrong !== undefined) {
    throw new CliError(`--state: expected any of ${lockStates.join(", ")}, got "${wrong}"`);
  }
  const olderMs = args.duration("older", 0);
  const budgetMs = args.duration("budget", 10_000);
  const limit = args.text("limit") ?? "100";
  if (!/^[1-9]\d{0,8}$/.test(limit)) {
    throw new CliError(`--limit: expected a whole number from 1 on, got "${limit}"`);
  }
  const connection = await open();
  await refuseNodeOfCluster(connection);
  const lines: string[] = [];
  const prefixes: object[] = [];
  for (const lock of connection.locks) {
    const { locks: all, ...scan } = await findLocks(connection, lock, budgetMs, (looked) =>
      terminal.progress(`looked at ${count(looked)} keys`),
    );
    const long = longHeld(all);
    const isLong = ({ found }: { found: Found }) => Number(long.has(found));
    const locks = all
      .filter(({ found }) => wanted.includes(stateOf(found)) && ageOf(found) >= olderMs)
      .sort((one, other) => isLong(other) - isLong(one) || ageOf(other.found) - ageOf(one.found));
    if (lines.length > 0) lines.push("");
    lines.push(...listText({ ...scan, locks }, long, redisOf(connection), args, terminal.paint));
    const { keyPrefix, looked, partial, strange, tookMs } = scan;
    const isComplete = partial === undefined;
    const shown = locks.slice(0, Number(limit)).map(({ user, found }) => ({
      ...(!args.has("no-ids") && { userId: user }),
      ...found,
      missedRenewals: renewalsOf(found)?.missed,
      ...(long.has(found) && { isLong: true }),
    }));
    const otherKeys = strange.length;
    const outlived = scan.outlived
      .slice(0, Number(limit))
      .map(({ user, ...order }) => ({ ...(!args.has("no-ids") && { userId: user }), ...order }));
    const counts = { count: locks.length, otherKeys, keysLookedAt: looked, isComplete };
    prefixes.push({ keyPrefix, locks: shown, outlived, ...counts, tookMs: Math.round(tookMs) });
  }
  terminal.progress("");
  terminal.print(args.has("json") ? [json({ prefixes })] : lines);
}

/** How long a lock has been held, in ms: a very large number if unknown, 0 without a holder. */
function ageOf(found: Found): number {
  if (found.state === "foreign") return Number.MAX_VALUE;
  return found.state === "held" ? (found.heldMs ?? Number.MAX_VALUE) : 0;
}

export interface Listed extends Scan {
  readonly keyPrefix: string;
  readonly locks: readonly { readonly user: string; readonly found: Found }[];
  readonly outlived: readonly ({ readonly user: string } & OutlivedOrder)[];
  readonly strange: readonly string[];
}

/** The scan stops at this many locks: no person reads more, and they fit in the memory. */
const mostLocks = 100_000;
/** The inspections that are sent at a time: one script call has up to 100. */
const inspectionsAtOnce = 100;

export async function findLocks(
  connection: CliTarget,
  lock: CliLock,
  budgetMs: number,
  progress?: (looked: number) => void,
): Promise<Listed> {
  const { keyPrefix } = lock;
  // Sets: SCAN may return a key twice, and so may two nodes, if a Cluster moves it during the scan.
  const users = new Set<string>();
  const strange = new Set<string>();
  const locks: { user: string; found: Found }[] = [];
  const outlived: Listed["outlived"][number][] = [];
  // Inspects between two SCANs: if the budget ends early, the locks found by then can be shown.
  const inspect = async (keys: readonly string[]) => {
    const fresh = new Set<string>();
    for (const key of keys) {
      const user = outlivedUserOf(lock, key) ?? userOf(lock, key);
      if (user !== undefined && !users.has(user)) fresh.add(user);
      else if (user === undefined && !isNoLock(lock, key)) strange.add(key);
    }
    const ids = [...fresh];
    for (let at = 0; at < ids.length; at += inspectionsAtOnce) {
      const inspections = ids.slice(at, at + inspectionsAtOnce).map(async (user) => {
        users.add(user);
        const found = await answerOf(connection.address, lock.inspect(user));
        if (found.state !== "free") locks.push({ user, found });
        for (const order of found.outlived ?? []) outlived.push({ user, ...order });
      });
      await Promise.all(inspections);
    }
    const isFull = users.size + strange.size >= mostLocks;
    return isFull ? `The scan stops at ${count(mostLocks)} locks` : undefined;
  };
  const scan = await scanKeys(connection, keyPrefix, budgetMs, inspect, progress);
  return { ...scan, keyPrefix, locks, outlived, strange: [...strange] };
}

/** Locks that may hang: held for half of `maxHoldMs`, or 5 s and 10 times the others' median. */
export function longHeld(locks: Listed["locks"]): ReadonlySet<Found> {
  const working = locks.map(({ found }) => found).filter((found) => stateOf(found) === "working");
  const ages = working.map(ageOf).sort((one, other) => one - other);
  const isLong = (found: Found) => {
    const age = ageOf(found);
    // A lock that may hang is in the upper half, so this is the median of the others.
    const median = ages[Math.floor((ages.length - 2) / 2)];
    const isFarBeyond = median !== undefined && age >= Math.max(10 * median, 5_000);
    return isFarBeyond || (found.state === "held" && age >= (found.endsInMs ?? 0));
  };
  return new Set(working.filter(isLong));
}

export function listText(
  listed: Listed,
  long: ReadonlySet<Found>,
  redis: string,
  args: Arguments,
  paint: Paint,
): string[] {
  const { keyPrefix, locks, outlived, strange } = listed;
  const limit = Number(args.text("limit") ?? 100);
  const number = (state: string) => locks.filter(({ found }) => stateOf(found) === state).length;
  const numbers = lockStates.filter(number).map((state) => `${count(number(state))} ${state}`);
  const ages = locks.flatMap(({ found }) => (found.state === "held" ? (found.heldMs ?? []) : []));
  const oldest = ages.length === 0 ? "" : `, the oldest held for ${duration(Math.max(...ages))}`;
  const summary = numbers.length === 0 ? "" : ` (${numbers.join(", ")})${oldest}`;
  const headline = `${keyPrefix} on ${redis}: ${plural(locks.length, "lock")}${summary}`;
  const lines = [paint("bold", headline)];
  if (locks.length === 0) {
    const command = args.suggest("show", "USER", keyPrefix);
    lines.push(`If a customer still cannot order, put the id in place of USER: ${command}`);
  } else {
    const show = (user: string) => args.suggest("show", user, keyPrefix);
    lines.push(...lockTable(locks.slice(0, limit), long, show, args.has("no-ids"), paint));
  }
  if (locks.length > limit) lines.push(`and ${count(locks.length - limit)} more (see --limit)`);
  for (const { endedMs, holder, user } of outlived.slice(0, limit)) {
    const whose = args.has("no-ids") ? "a user" : `user ${visibleUser(user)}`;
    const at = `${visible(holder)}, ${duration(endedMs)} after its lock`;
    const text = `An order of ${whose} outlived its lock and may still be at work at ${at}`;
    lines.push(paint("yellow", text));
  }
  if (strange.length > 0) {
    const names = args.has("no-ids") ? "" : `: ${firstOf(strange)}`;
    const are = `${plural(strange.length, "key")} under this prefix ${strange.length === 1 ? "is" : "are"} of no user id, and may be locks of another program, or of a keyOf that hashes the id`;
    lines.push(paint("yellow", are + names));
  }
  const end = scanText(listed);
  return [...lines, listed.partial === undefined ? end : paint("yellow", end)];
}

function lockTable(
  locks: Listed["locks"],
  long: ReadonlySet<Found>,
  show: (user: string) => string,
  hidesIds: boolean,
  paint: Paint,
): string[] {
  const head = ["USER", "STATE", "HELD", "RENEWED", "FREE IN", "HOLDER"];
  const rows = locks.map(({ user, found }) => {
    const state = stateOf(found);
    const isLong = long.has(found);
    const remedy = (state === "foreign" || isLong) && !hidesIds ? `: ${show(user)}` : "";
    const [held, renewed, freeIn, holder] = cellsOf(visibleTexts(found));
    const mark = isLong ? " (long)" : "";
    return [visibleUser(user), state, held + mark, renewed, freeIn, holder + remedy];
  });
  const all = [head, ...rows];
  const lines = columns(all.map((row) => row.slice(hidesIds ? 1 : 0)));
  return all.map((row, at) => {
    const line = lines[at] ?? "";
    if (row[1] === "silent" || row[2]?.endsWith("(long)")) return paint("yellow", line);
    return row[1] === "foreign" ? paint("red", line) : line;
  });
}

function cellsOf(found: Found): [held: string, renewed: string, freeIn: string, holder: string] {
  const left = duration(found.expiresInMs);
  const freeIn = left === "forever" ? "never" : left;
  if (found.state === "freed") return ["-", "-", freeIn, `freed by ${found.by} (${found.reason})`];
  if (found.state === "cooldown") return ["-", "-", freeIn, "-"];
  if (found.state === "foreign")
    return ["?", "-", freeIn, found.notText ? "no text, so no lock" : "another lock"];
  const { heldMs, renewedMs = 0, endsInMs = 0 } = found;
  const held = heldMs === undefined ? "?" : duration(heldMs);
  const holder = found.holder || "-";
  const missed = renewalsOf(found)?.missed;
  if (missed === undefined) return [held, "?", freeIn, holder];
  if (missed > 0) return [held, `${duration(renewedMs)} (${missed})`, freeIn, holder];
  // A living holder renews the key until `maxHoldMs` at most, but the key may live longer.
  const most = Math.max(endsInMs, found.expiresInMs);
  return [held, duration(renewedMs), `≤ ${duration(most)}`, holder];
}
