import { quoted } from "./arguments.ts";
import { program } from "./commands.ts";
import { count, duration } from "./durations.ts";
import { type Found, lockStates, renewalsOf, stateOf } from "./lock-state.ts";
import type { Paint, Tone } from "./terminal.ts";
import { visibleInspection, visibleUser } from "./visible.ts";

export interface ListedLock {
  readonly user: string;
  readonly found: Found;
}

/** The locks of one prefix. */
export interface Listed {
  readonly keyPrefix: string;
  /** In the order in which they are shown. */
  readonly locks: readonly ListedLock[];
  readonly looked: number;
  readonly total: number | undefined;
  readonly isComplete: boolean;
  readonly tookMs: number;
}

export interface ListView {
  readonly address: string;
  /** The same with its database. */
  readonly redis: string;
  readonly limit: number;
  readonly hidesIds: boolean;
  readonly paint: Paint;
}

const head = ["USER", "STATE", "HELD", "RENEWED", "FREE IN", "HOLDER"];

/** The columns of numbers. */
const isRight = [false, false, true, true, true, false];

const tones: Partial<Record<string, Tone>> = { silent: "yellow", foreign: "red" };

export function listText(listed: Listed, view: ListView): string[] {
  const { locks } = listed;
  const { limit, hidesIds, paint } = view;
  const shown = locks.slice(0, limit);
  const rows = shown.map(({ user, found }) =>
    rowOf({ user, found: visibleInspection(found) }, hidesIds),
  );
  const without = hidesIds ? 1 : 0;
  return [
    paint("bold", summary(listed, view.address)),
    ...(rows.length === 0
      ? [
          `No such lock under ${listed.keyPrefix} in ${view.redis}. If a customer still cannot order: ${program} show <user>`,
        ]
      : table([head, ...rows], without, paint)),
    ...(locks.length > limit
      ? [`and ${count(locks.length - limit)} more: --limit ${locks.length}`]
      : []),
    ...ending(listed, paint),
  ];
}

function summary({ keyPrefix, locks }: Listed, address: string): string {
  const states = locks.map(({ found }) => stateOf(found));
  const parts = lockStates.flatMap((state) => {
    const of = states.filter((each) => each === state).length;
    return of === 0 ? [] : [`${count(of)} ${state}`];
  });
  const ages = locks.flatMap(({ found }) => (found.state === "held" ? (found.heldMs ?? []) : []));
  const oldest = ages.length === 0 ? "" : `, the oldest held for ${duration(Math.max(...ages))}`;
  const number = `${count(locks.length)} lock${locks.length === 1 ? "" : "s"}`;
  return `${keyPrefix} on ${address}: ${number}${parts.length === 0 ? "" : ` (${parts.join(", ")})`}${oldest}`;
}

function rowOf({ user: id, found }: ListedLock, hidesIds: boolean): string[] {
  const user = visibleUser(id);
  const state = stateOf(found);
  const freeIn = duration(found.expiresInMs);
  switch (found.state) {
    case "held": {
      const renewals = renewalsOf(found);
      const missed = renewals === undefined || renewals.missed === 0 ? "" : ` (${renewals.missed})`;
      const renewed = renewals === undefined ? "?" : `${duration(found.renewedMs ?? 0)}${missed}`;
      const held = found.heldMs === undefined ? "?" : duration(found.heldMs);
      // A holder that is alive renews until its work is done.
      const last = state === "working" ? `≤ ${duration(found.endsInMs ?? 0)}` : neverOr(freeIn);
      return [user, state, held, renewed, last, found.holder === "" ? "-" : found.holder];
    }
    case "freed":
      return [user, state, "-", "-", freeIn, `freed by ${found.by} (${found.reason})`];
    case "cooldown":
      return [user, state, "-", "-", freeIn, "-"];
    case "foreign": {
      const what = found.notText ? "no text, so no lock" : "another lock";
      const remedy = hidesIds ? "" : `: ${program} show ${quoted(id)}`;
      return [user, state, "?", "-", neverOr(freeIn), `${what}${remedy}`];
    }
  }
}

function neverOr(freeIn: string): string {
  return freeIn === "for ever" ? "never" : freeIn;
}

function table(rows: readonly string[][], without: number, paint: Paint): string[] {
  const kept = rows.map((row) => row.slice(without));
  const widths =
    kept[0]?.map((_, at) => Math.max(...kept.map((row) => row[at]?.length ?? 0))) ?? [];
  return kept.map((row, line) =>
    row
      .map((cell, at) => {
        const width = at === row.length - 1 ? 0 : (widths[at] ?? 0);
        const padded = isRight[at + without] ? cell.padStart(width) : cell.padEnd(width);
        const tone = line > 0 && at + without === 1 ? tones[cell] : undefined;
        return tone === undefined ? padded : paint(tone, padded);
      })
      .join("   "),
  );
}

/** What would have been enough for all keys, and a quarter more; in whole seconds or minutes. */
function longerBudget({ looked, total = 0, tookMs }: Listed): string {
  const seconds = Math.ceil((1.25 * tookMs * Math.max(total / Math.max(looked, 1), 2)) / 1_000);
  return seconds <= 120 ? `${seconds}s` : `${Math.ceil(seconds / 60)}min`;
}

function ending(listed: Listed, paint: Paint): string[] {
  const { looked, total, isComplete, tookMs } = listed;
  if (isComplete)
    return [
      `looked at ${count(looked)} keys in ${duration(tookMs)} (SCAN, 500 at a time, 5 ms apart)`,
    ];
  const of = total === undefined ? "" : ` of ${count(total)}`;
  return [
    paint(
      "yellow",
      `Not complete: after ${duration(tookMs)} about ${count(looked)}${of} keys had been looked at. Give it longer: --budget ${longerBudget(listed)}`,
    ),
  ];
}
