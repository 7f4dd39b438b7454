import { writeFileSync } from "node:fs";
import type { Holding } from "../ledger.ts";
import { historyFile } from "./laboratory.ts";

/** A line of a history: an operation is invoked, or it completes. */
interface Line {
  readonly process: number;
  readonly type: "invoke" | "ok" | "info";
  readonly f: "acquire" | "release";
  readonly user: string;
  readonly token: number | undefined;
  readonly at: number;
}

/**
 * Who held which lock and when, as a history of Jepsen: a line an operation, in EDN, whose value is
 * the user and the fencing token.
 *
 * Each holding is a process of its own. Its acquire is invoked when the request comes, and completes
 * when the work begins. Its release is invoked when the holder stops believing in its lease: the
 * work is done, the holder was told that the lease is lost, its validity has run out, or it died.
 * From then on somebody else may have the lock; when the key is gone, its holder does not see. So
 * every release ends as `:info`. Submits that were not granted held nothing, and have no line.
 */
export function historyOf(holdings: readonly Holding[]): string {
  const lines: Line[] = holdings.flatMap((holding, process) => {
    const { askedAt, believedUntil = Number.POSITIVE_INFINITY, from, user } = holding;
    const about = { process, user, token: holding.fencingToken };
    const until = Math.max(from, Math.min(holding.until, believedUntil));
    const acquire = { ...about, f: "acquire" } as const;
    const release = { ...about, f: "release", at: until } as const;
    const granted: Line[] = [
      { ...acquire, type: "invoke", at: askedAt ?? from, token: undefined },
      { ...acquire, type: "ok", at: from },
    ];
    if (until === Number.POSITIVE_INFINITY) return granted;
    return [...granted, { ...release, type: "invoke" }, { ...release, type: "info" }];
  });
  return lines
    .sort((one, other) => one.at - other.at)
    .map(({ at, f, process, token, type, user }, index) => {
      const value = `[${JSON.stringify(user)} ${token ?? "nil"}]`;
      const time = Math.round(at * 1e6);
      return `{:index ${index}, :time ${time}, :process ${process}, :type :${type}, :f :${f}, :value ${value}}\n`;
    })
    .join("");
}

/** Writes the history to the file of `--history FILE`, if there is one. */
export function writeHistory(holdings: readonly Holding[]): void {
  const file = historyFile();
  if (file === undefined) return;
  writeFileSync(file, historyOf(holdings));
  console.log(`Written: ${file}, ${holdings.length} holdings.`);
}
