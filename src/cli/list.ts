import type { ServerPort } from "../stores/redis/clients/port.ts";
import { performance, sleep } from "../time.ts";
import { answerOf, redisOf } from "./connect.ts";
import type { Arguments, CliLock, CliTarget, Context } from "./context.ts";
import { CliError, exitCode } from "./failure.ts";
import { type Found, lockStates, renewalsOf, stateOf } from "./show.ts";
import {
  count,
  duration,
  json,
  type Paint,
  plural,
  program,
  quoted,
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
  const lines: string[] = [];
  const prefixes: object[] = [];
  for (const lock of connection.locks) {
    const { locks: all, ...scan } = await findLocks(connection, lock, budgetMs, (looked) =>
      terminal.progress(`looked at ${count(looked)} keys`),
    );
    const locks = all
      .filter(({ found }) => wanted.includes(stateOf(found)) && ageOf(found) >= olderMs)
      .sort((one, other) => ageOf(other.found) - ageOf(one.found));
    if (lines.length > 0) lines.push("");
    lines.push(...listText({ ...scan, locks }, redisOf(connection), args, terminal.paint));
    const { keyPrefix, looked, partial, tookMs } = scan;
    const isComplete = partial === undefined;
    const shown = locks.slice(0, Number(limit)).map(({ user, found }) => ({
      ...(!args.has("no-ids") && { userId: user }),
      ...found,
      missedRenewals: renewalsOf(found)?.missed,
    }));
    const counts = { count: locks.length, keysLookedAt: looked, isComplete };
    prefixes.push({ keyPrefix, locks: shown, ...counts, tookMs: Math.round(tookMs) });
  }
  terminal.progress("");
  terminal.print(args.has("json") ? [json({ prefixes })] : lines);
}

/** How long a lock has been held, in ms: the longest if that is unknown, 0 without a holder. */
function ageOf(found: Found): number {
  if (found.state === "foreign") return Number.MAX_VALUE;
  return found.state === "held" ? (found.heldMs ?? Number.MAX_VALUE) : 0;
}

export interface Listed {
  readonly keyPrefix: string;
  readonly locks: readonly { readonly user: string; readonly found: Found }[];
  readonly looked: number;
  readonly total: number | undefined;
  /** Why the scan has not looked at all keys, as a sentence; `undefined` if it has. */
  readonly partial: string | undefined;
  readonly tookMs: number;
}

export function mastersOf({ client }: CliTarget): readonly ServerPort[] {
  if (client !== undefined) return client.servers();
  throw new CliError("list and doctor need `export { redis }` in the module of --config, too");
}

/** The COUNT of a SCAN, during which Redis serves no other client: 1 000 took 0.8 ms of 812 000. */
const batch = 500;
/** The pause between two SCANs, in ms: Redis serves other clients. */
const pauseMs = 5;
/** More than a person can use, and few enough for the memory. */
const mostLocks = 100_000;
/** The inspections that are sent at a time: one script call has up to 100. */
const asked = 100;

export async function findLocks(
  connection: CliTarget,
  lock: CliLock,
  budgetMs: number,
  progress?: (looked: number) => void,
): Promise<Listed> {
  const startedAt = performance.now();
  const { clientPrefix, user: login = "<user>" } = connection;
  const { keyPrefix } = lock;
  // Characters of a pattern are escaped in the prefix.
  const pattern = `${(clientPrefix + keyPrefix).replace(/[*?[\]\\^]/g, "\\$&")}*`;
  // A Set, because SCAN may return a key twice, and a Cluster may move one during the scan.
  const users = new Set<string>();
  const masters = mastersOf(connection);
  const sizes = masters.map((node) => answerOf(connection.address, node.ask(["dbsize"])));
  const counted = await Promise.all(sizes).catch(() => undefined);
  const total = counted?.reduce((sum: number, size) => sum + Number(size), 0);
  let looked = 0;
  let partial: string | undefined;
  const locks: { user: string; found: Found }[] = [];
  // Between two SCANs, so that the budget bounds both, and what it allows is shown.
  const inspect = async (ids: readonly string[]): Promise<void> => {
    for (let at = 0; at < ids.length; at += asked) {
      const inspections = ids.slice(at, at + asked).map(async (user) => {
        users.add(user);
        const found = await answerOf(connection.address, lock.inspect(user));
        if (found.state !== "free") locks.push({ user, found });
      });
      await Promise.all(inspections);
    }
  };
  for (const node of masters) {
    const { address } = node;
    let cursor = "0";
    do {
      if (users.size >= mostLocks) partial = `The scan stops at ${count(mostLocks)} locks`;
      else if (performance.now() - startedAt > budgetMs) partial = "Use a longer --budget";
      if (partial !== undefined) break;
      if (looked > 0) await sleep(pauseMs);
      const scanned = node.ask(["scan", cursor, "MATCH", pattern, "COUNT", `${batch}`]);
      const reply = await answerOf(address, scanned).catch((error: unknown) => {
        if (!/\bNOPERM\b/.test(String(error))) throw error;
        const text = `list needs +scan, which ${address} does not permit this user. Permit it with: ACL SETUSER ${login} +scan. show, free and watch work without it`;
        throw new CliError(text, exitCode.notPermitted);
      });
      const [next, keys] = reply as [cursor: string, keys: string[]];
      const found = new Set(keys.map((key) => userOf(lock, key.slice(clientPrefix.length))));
      await inspect(
        [...found].filter((user) => user !== undefined && !users.has(user)) as string[],
      );
      looked = Math.min(looked + batch, total ?? Number.POSITIVE_INFINITY);
      progress?.(looked);
      cursor = next;
    } while (cursor !== "0");
  }
  const tookMs = performance.now() - startedAt;
  // `looked` is a sum of COUNTs, and a SCAN looks at only about so many keys.
  if (partial === undefined && total !== undefined) looked = total;
  return { keyPrefix, locks, looked, total, partial, tookMs };
}

/** Decodes the user id of a key; `undefined` for a record, or for another program's key. */
export function userOf(lock: CliLock, key: string): string | undefined {
  try {
    const user = decodeURIComponent(key.slice(lock.keyPrefix.length));
    // A key that `keyFor` never makes does not lock any user.
    return lock.keyFor(user) === key ? user : undefined;
  } catch {
    return undefined;
  }
}

export function listText(listed: Listed, redis: string, args: Arguments, paint: Paint): string[] {
  const { keyPrefix, locks, looked, total, partial, tookMs } = listed;
  const limit = Number(args.text("limit") ?? 100);
  const number = (state: string) => locks.filter(({ found }) => stateOf(found) === state).length;
  const numbers = lockStates.filter(number).map((state) => `${count(number(state))} ${state}`);
  const ages = locks.flatMap(({ found }) => (found.state === "held" ? (found.heldMs ?? []) : []));
  const oldest = ages.length === 0 ? "" : `, the oldest held for ${duration(Math.max(...ages))}`;
  const summary = numbers.length === 0 ? "" : ` (${numbers.join(", ")})${oldest}`;
  const headline = `${keyPrefix} on ${redis}: ${plural(locks.length, "lock")}${summary}`;
  const lines = [paint("bold", headline)];
  if (locks.length === 0) lines.push(`If a customer still cannot order: ${program} show <user>`);
  else lines.push(...table(locks.slice(0, limit), args.has("no-ids"), paint));
  if (locks.length > limit) lines.push(`and ${count(locks.length - limit)} more (see --limit)`);
  const of = total === undefined ? "" : ` of ${count(total)}`;
  const took = duration(tookMs);
  const looks = `after ${took} about ${count(looked)}${of} keys had been looked at`;
  const whole = `looked at ${count(looked)} keys in ${took} (SCAN, ${batch} at a time, ${pauseMs} ms apart)`;
  const end = partial && paint("yellow", `Not complete: ${looks}. ${partial}.`);
  return [...lines, end ?? whole];
}

function table(locks: Listed["locks"], hidesIds: boolean, paint: Paint): string[] {
  const head = ["USER", "STATE", "HELD", "RENEWED", "FREE IN", "HOLDER"];
  const rows = locks.map(({ user, found }) => {
    const state = stateOf(found);
    const remedy = state === "foreign" && !hidesIds ? `: ${program} show ${quoted(user)}` : "";
    const [held, renewed, freeIn, holder] = cellsOf(visibleTexts(found));
    return [visibleUser(user), state, held, renewed, freeIn, holder + remedy];
  });
  const all = [head, ...rows];
  const widths = head.map((_, at) => Math.max(...all.map((row) => row[at]?.length ?? 0)));
  return all.map((row) => {
    const cells = row.map((cell, at) => cell.padEnd(widths[at] ?? 0));
    const line = cells.slice(hidesIds ? 1 : 0).join("   ");
    if (row[1] === "silent") return paint("yellow", line.trimEnd());
    return row[1] === "foreign" ? paint("red", line.trimEnd()) : line.trimEnd();
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
  // The latest end, because a holder that is alive renews the key until its work is done.
  return [held, duration(renewedMs), `≤ ${duration(endsInMs)}`, holder];
}
