import { setTimeout as sleep } from "node:timers/promises";
import type { Cluster, Redis } from "ioredis";
import { answerOf, type Client, type Connection, type PrefixedLock, redisOf } from "./connect.ts";
import { CliError, exitCode, UsageError } from "./failure.ts";
import type { Context } from "./main.ts";
import { type Found, type LockState, lockStates, renewalsOf, stateOf } from "./show.ts";
import {
  count,
  duration,
  json,
  type Paint,
  plural,
  program,
  quoted,
  type Tone,
  visibleInspection,
  visibleUser,
} from "./terminal.ts";

/** `submit-lock list` */
export async function list({ args, terminal, open }: Context): Promise<number> {
  const wanted = wantedStates(args.text("state"));
  const olderMs = args.duration("older", 0);
  const budgetMs = args.duration("budget", 10_000);
  const limit = args.count("limit", 100);
  const hidesIds = args.has("no-ids");
  const connection = await open();
  const client = clientOf(connection, "list");
  const progress = (looked: number) => {
    if (terminal.showsProgress) terminal.progress(`looked at ${count(looked)} keys`);
  };
  const all: Listed[] = [];
  for (const prefixed of connection.locks) {
    const listed = await findLocks(connection, client, prefixed, budgetMs, progress);
    const locks = listed.locks
      .filter(({ found }) => wanted.includes(stateOf(found)) && ageOf(found) >= olderMs)
      .sort((one, other) => ageOf(other.found) - ageOf(one.found));
    all.push({ ...listed, locks });
  }
  if (terminal.showsProgress) terminal.progress("");
  if (args.has("json")) terminal.print([json(asJson(all, limit, hidesIds))]);
  else {
    const { address } = connection;
    const view = { address, redis: redisOf(connection), limit, hidesIds, paint: terminal.paint };
    terminal.print(all.flatMap((each, at) => [...(at === 0 ? [] : [""]), ...listText(each, view)]));
  }
  return exitCode.done;
}

function wantedStates(typed: string | undefined): readonly LockState[] {
  if (typed === undefined) return lockStates;
  return typed.split(",").map((name) => {
    const state = lockStates.find((each) => each === name.trim());
    if (state !== undefined) return state;
    throw new UsageError(`--state: expected any of ${lockStates.join(", ")}, got "${name}"`);
  });
}

/** For how long it has been held. An unknown age counts as old. */
function ageOf(found: Found): number {
  if (found.state === "foreign") return Number.MAX_VALUE;
  return found.state === "held" ? (found.heldMs ?? Number.MAX_VALUE) : 0;
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

/** The locks of one prefix. */
export interface Listed {
  readonly keyPrefix: string;
  readonly locks: readonly { readonly user: string; readonly found: Found }[];
  /** About how many keys Redis has looked at. */
  readonly looked: number;
  /** The number of keys of all prefixes; `undefined` without +dbsize. */
  readonly total: number | undefined;
  readonly isComplete: boolean;
  readonly tookMs: number;
}

/** Redis serves no other client during a batch: 0.8 ms were measured for 1 000 of 812 000 keys. */
const batch = 500;

/** Between two batches, for other clients. */
const pauseMs = 5;

/** More than a person can use, and little enough for the memory of a shell. */
const mostLocks = 100_000;

/** Inspections at a time: a script call has up to 100. */
const asked = 100;

/** Scans every master until it has seen all keys or has used up the budget. */
export async function findLocks(
  connection: Connection,
  client: Client,
  { keyPrefix, lock }: PrefixedLock,
  budgetMs: number,
  progress?: (looked: number) => void,
): Promise<Listed> {
  const startedAt = performance.now();
  const { clientPrefix } = connection;
  // Escaped, so that the prefix is not read as a pattern.
  const pattern = `${(clientPrefix + keyPrefix).replace(/[*?[\]\\^]/g, "\\$&")}*`;
  // A Set, because SCAN may return a key twice, and a Cluster may move one during the scan.
  const users = new Set<string>();
  const total = await countKeys(connection, client);
  let looked = 0;
  let isComplete = true;
  for (const node of mastersOf(client)) {
    let cursor = "0";
    do {
      if (performance.now() - startedAt > budgetMs || users.size >= mostLocks) {
        isComplete = false;
        break;
      }
      if (looked > 0) await sleep(pauseMs);
      const scanned = node.scan(cursor, "MATCH", pattern, "COUNT", batch);
      const [next, keys] = await answerOf(connection, scanned).catch((error: unknown) => {
        throw withPermission(error, connection);
      });
      for (const key of keys) {
        const user = userOf(keyPrefix, key.slice(clientPrefix.length));
        // A key that no user id is encoded to does not lock anyone.
        if (user !== undefined && clientPrefix + lock.keyFor(user) === key) users.add(user);
      }
      looked = Math.min(looked + batch, total ?? Number.POSITIVE_INFINITY);
      progress?.(looked);
      cursor = next;
    } while (cursor !== "0");
  }
  const tookMs = performance.now() - startedAt;
  // A batch has only about as many keys as COUNT says.
  if (isComplete && total !== undefined) looked = total;

  const locks: { user: string; found: Found }[] = [];
  const ids = [...users];
  for (let at = 0; at < ids.length; at += asked) {
    const inspections = ids.slice(at, at + asked).map(async (user) => {
      const found = await answerOf(connection, lock.inspect(user));
      if (found.state !== "free") locks.push({ user, found });
    });
    await Promise.all(inspections);
  }
  return { keyPrefix, locks, looked, total, isComplete, tookMs };
}

function withPermission(error: unknown, { address, user = "<user>" }: Connection): unknown {
  if (!/\bNOPERM\b/.test(String(error))) return error;
  return new CliError(
    `list needs +scan, which ${address} does not permit this user. Permit it with: ACL SETUSER ${user} +scan. show, free and watch work without it`,
    exitCode.notPermitted,
  );
}

async function countKeys(connection: Connection, client: Client): Promise<number | undefined> {
  const sizes = mastersOf(client).map((node) => answerOf(connection, node.dbsize()));
  return await Promise.all(sizes).then(
    (all) => all.reduce((sum, size) => sum + Number(size), 0),
    () => undefined,
  );
}

/** Each server that has keys of its own. */
export function mastersOf(client: Client): readonly Redis[] {
  return client.isCluster ? (client as Cluster).nodes("master") : [client as Redis];
}

/** Decodes the user id of a key; `undefined` for a record, or for another program's key. */
export function userOf(keyPrefix: string, key: string): string | undefined {
  const encoded = key.slice(keyPrefix.length);
  // A record has the prefix of its lock where the client's prefix has a hash tag.
  if (encoded === "" || encoded.includes(":")) return undefined;
  try {
    return decodeURIComponent(encoded);
  } catch {
    return undefined;
  }
}

/** `list` and `doctor` need more commands than a lock does. */
export function clientOf({ client }: Connection, command: string): Client {
  if (client !== undefined) return client;
  throw new UsageError(
    `${command} needs the client as well. Add \`export { redis }\` to the module of --config, or use --url`,
  );
}

export interface ListView {
  readonly address: string;
  /** The address with its database. */
  readonly redis: string;
  readonly limit: number;
  readonly hidesIds: boolean;
  readonly paint: Paint;
}

export function listText(listed: Listed, view: ListView): string[] {
  const { address, redis, limit, hidesIds, paint } = view;
  const { keyPrefix, locks, looked, total, isComplete, tookMs } = listed;
  const lines = [paint("bold", summary(listed, address))];
  if (locks.length === 0) {
    lines.push(
      `No such lock under ${keyPrefix} in ${redis}. If a customer still cannot order: ${program} show <user>`,
    );
  } else lines.push(...table(listed, limit, hidesIds, paint));
  if (locks.length > limit) {
    lines.push(`and ${count(locks.length - limit)} more: --limit ${locks.length}`);
  }
  if (isComplete) {
    lines.push(
      `looked at ${count(looked)} keys in ${duration(tookMs)} (SCAN, ${batch} at a time, ${pauseMs} ms apart)`,
    );
  } else {
    const of = total === undefined ? "" : ` of ${count(total)}`;
    lines.push(
      paint(
        "yellow",
        `Not complete: after ${duration(tookMs)} about ${count(looked)}${of} keys had been looked at. Give it longer: --budget ${longerBudget(listed)}`,
      ),
    );
  }
  return lines;
}

function summary({ keyPrefix, locks }: Listed, address: string): string {
  const states = locks.map(({ found }) => stateOf(found));
  const parts = lockStates.flatMap((state) => {
    const number = states.filter((each) => each === state).length;
    return number === 0 ? [] : [`${count(number)} ${state}`];
  });
  const ages = locks.flatMap(({ found }) => (found.state === "held" ? (found.heldMs ?? []) : []));
  const oldest = ages.length === 0 ? "" : `, the oldest held for ${duration(Math.max(...ages))}`;
  const all = parts.length === 0 ? "" : ` (${parts.join(", ")})`;
  return `${keyPrefix} on ${address}: ${plural(locks.length, "lock")}${all}${oldest}`;
}

/** A budget for all keys, and a quarter more; in whole seconds or minutes. */
function longerBudget({ looked, total = 0, tookMs }: Listed): string {
  const seconds = Math.ceil((1.25 * tookMs * Math.max(total / Math.max(looked, 1), 2)) / 1_000);
  return seconds <= 120 ? `${seconds}s` : `${Math.ceil(seconds / 60)}min`;
}

const head = ["USER", "STATE", "HELD", "RENEWED", "FREE IN", "HOLDER"];

/** The columns of numbers. */
const isRight = [false, false, true, true, true, false];

const tones: Partial<Record<string, Tone>> = { silent: "yellow", foreign: "red" };

function table({ locks }: Listed, limit: number, hidesIds: boolean, paint: Paint): string[] {
  const first = hidesIds ? 1 : 0;
  const rows = locks.slice(0, limit).map(({ user, found }) => {
    const state = stateOf(found);
    const [held, renewed, freeIn, holder] = cellsOf(visibleInspection(found));
    const remedy = state === "foreign" && !hidesIds ? `: ${program} show ${quoted(user)}` : "";
    return [visibleUser(user), state, held, renewed, freeIn, holder + remedy];
  });
  const all = [head, ...rows];
  const widths = head.map((_, at) => Math.max(...all.map((row) => row[at]?.length ?? 0)));
  return all.map((row, line) =>
    row
      .map((cell, at) => {
        const width = at === head.length - 1 ? 0 : (widths[at] ?? 0);
        const padded = isRight[at] ? cell.padStart(width) : cell.padEnd(width);
        const tone = line > 0 && at === 1 ? tones[cell] : undefined;
        return tone === undefined ? padded : paint(tone, padded);
      })
      .slice(first)
      .join("   "),
  );
}

function cellsOf(found: Found): [held: string, renewed: string, freeIn: string, holder: string] {
  const isEndless = found.expiresInMs === Number.POSITIVE_INFINITY;
  const freeIn = isEndless ? "never" : duration(found.expiresInMs);
  if (found.state === "freed") return ["-", "-", freeIn, `freed by ${found.by} (${found.reason})`];
  if (found.state === "cooldown") return ["-", "-", freeIn, "-"];
  if (found.state === "foreign") {
    return ["?", "-", freeIn, found.notText ? "no text, so no lock" : "another lock"];
  }
  const { heldMs, renewedMs = 0, endsInMs = 0, holder } = found;
  const held = heldMs === undefined ? "?" : duration(heldMs);
  const where = holder === "" ? "-" : holder;
  const renewals = renewalsOf(found);
  if (renewals === undefined) return [held, "?", freeIn, where];
  const { missed } = renewals;
  if (missed > 0) return [held, `${duration(renewedMs)} (${missed})`, freeIn, where];
  // A holder that is alive renews until its work is done.
  return [held, duration(renewedMs), `≤ ${duration(endsInMs)}`, where];
}
