import { openSync, readFileSync, writeSync } from "node:fs";
import { now } from "../shop/protocol.ts";

/*
 * Who ran which order and who was shown which answer, in a file of each process. An entry is in the
 * kernel before the order counts as placed, or the answer as given: a killed process loses none.
 */

const entryBytes = 16;

/** An order's number has the index of the process that ran it above these bits. */
export const ofProcess = 2 ** 24;

export class LedgerFile {
  readonly #file: number;
  readonly #bytes = Buffer.allocUnsafe(entryBytes * 8_192);
  #length = 0;
  #written: Promise<void> | undefined;

  constructor(path: string) {
    this.#file = openSync(path, "a");
  }

  /** @param placed the number under which it ran, or that its customer was shown. */
  append(kind: "ran" | "shown", order: number, placed: number): Promise<void> {
    const at = this.#length;
    this.#bytes.writeUInt32LE(order, at);
    this.#bytes.writeUInt32LE(placed, at + 4);
    this.#bytes.writeDoubleLE(kind === "ran" ? now() : -now(), at + 8);
    this.#length += entryBytes;
    // All of one turn are one write, as a database commits a group.
    this.#written ??= new Promise((written) =>
      setImmediate(() => {
        writeSync(this.#file, this.#bytes, 0, this.#length);
        this.#length = 0;
        this.#written = undefined;
        written();
      }),
    );
    return this.#written;
  }
}

interface Entry {
  readonly order: number;
  readonly placed: number;
  readonly isRun: boolean;
  readonly at: number;
}

function* entriesOf(files: readonly string[]): Iterable<Entry> {
  for (const file of files) {
    const bytes = readFileSync(file);
    for (let at = 0; at + entryBytes <= bytes.length; at += entryBytes) {
      const time = bytes.readDoubleLE(at + 8);
      const [order, placed] = [bytes.readUInt32LE(at), bytes.readUInt32LE(at + 4)];
      yield { order, placed, isRun: time > 0, at: Math.abs(time) };
    }
  }
}

export interface Faults {
  /** The processes that were killed. */
  readonly killed: ReadonlySet<number>;
  /** When Redis was killed. */
  readonly restarts: readonly number[];
  readonly retainMs: number;
}

/** @param orders how many were given out: each has to be placed and shown. */
export function checked(files: readonly string[], orders: number, faults: Faults) {
  const runs = new Uint8Array(orders);
  const shown = new Uint8Array(orders);
  const placedAs = new Uint32Array(orders);
  for (const { isRun, order, placed } of entriesOf(files)) {
    const of = isRun ? runs : shown;
    of[order] = Math.min(255, (of[order] ?? 0) + 1);
    if (isRun) placedAs[order] = placed;
  }
  const count = { orders, shown: 0, neverRan: 0, neverShown: 0, shownAnother: 0 };
  const twice = new Map<number, Entry[]>();
  for (let order = 0; order < orders; order++) {
    if (runs[order] === 0) count.neverRan++;
    if (shown[order] === 0) count.neverShown++;
    if ((runs[order] ?? 0) > 1) twice.set(order, []);
  }
  for (const entry of entriesOf(files)) {
    if (!entry.isRun) count.shown++;
    const all = twice.get(entry.order);
    if (all !== undefined) all.push(entry);
    else if (!entry.isRun && entry.placed !== placedAs[entry.order]) count.shownAnother++;
  }
  return { ...count, ...ofThoseThatRanTwice([...twice.values()], faults) };
}

/** Why there was a second run: only `ranAgain` is what the package promises never to do. */
function ofThoseThatRanTwice(twice: readonly (readonly Entry[])[], faults: Faults) {
  const { killed, restarts, retainMs } = faults;
  const count = { behindKilledProcess: 0, askedTooLate: 0, lostByRedis: 0, ranAgain: 0 };
  const examples: string[] = [];
  for (const entries of twice) {
    const sorted = entries.toSorted((one, other) => one.at - other.at);
    const runs = sorted.filter(({ isRun }) => isRun);
    for (const [at, run] of runs.slice(1).entries()) {
      const before = runs[at] as Entry;
      const wasShown = sorted.find(({ isRun, at }) => !isRun && at < run.at);
      const sure = wasShown?.at ?? before.at;
      // While its file is written to the disk, a Redis holds back what it has answered, a lock or a
      // record, and a kill loses it; the work may have begun a second before the order was placed.
      const isLost = restarts.some(
        (kill) => kill > before.at - 1_000 && kill < run.at && sure > kill - 3_000,
      );
      if (wasShown === undefined && killed.has(Math.floor(before.placed / ofProcess))) {
        count.behindKilledProcess++;
      } else if (run.at >= before.at + retainMs) count.askedTooLate++;
      else {
        count[isLost ? "lostByRedis" : "ranAgain"]++;
        const kills = restarts.map((at) => Math.round(at - sure));
        const all = sorted.map((each) => ({ ...each, at: Math.round(each.at - sure) }));
        examples.push(JSON.stringify({ isLost, kills, all }));
      }
    }
  }
  return { ...count, examples };
}
