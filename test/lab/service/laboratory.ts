import { writeFileSync } from "node:fs";
import { serverBinary, serverVersion } from "../../support/server-binary.ts";
import type { Holding } from "../ledger.ts";

/** The number of an environment variable, if it is set. */
export function setting(name: string, otherwise: number): number {
  return Number(process.env[name] ?? otherwise);
}

/** The seed of an environment variable, or a random one. */
export function seedOf(name: string): number {
  return setting(name, Math.floor(Math.random() * 2 ** 32));
}

/** The file of `--history FILE`, if it was given. */
function historyFile(): string | undefined {
  const at = process.argv.indexOf("--history");
  return at === -1 ? undefined : process.argv[at + 1];
}

/** Collects what was to be seen and was not. */
export class Misses {
  readonly found: string[] = [];

  expect(isMet: boolean, what: string): void {
    if (!isMet) this.found.push(what);
  }

  /** @param named none of these is to be there */
  expectNone(named: Iterable<string>, what = ""): void {
    for (const each of new Set(named)) this.found.push(what + each);
  }
}

/**
 * A scenario as `npm run lab` runs it: on the server's binary, with its misses printed and its exit
 * code set.
 */
export async function runLaboratory(
  what: string,
  play: (binary: string) => Promise<readonly string[]>,
): Promise<void> {
  const binary = serverBinary();
  console.log(`${what}; ${serverVersion(binary)}, Node ${process.version}`);
  const from = performance.now();
  const missed = await play(binary);
  for (const miss of missed.slice(0, 20)) console.log(`MISSED: ${miss}`);
  const seconds = Math.round((performance.now() - from) / 1_000);
  console.log(`${seconds} s: ${missed.length} misses.`);
  process.exitCode = missed.length === 0 ? 0 : 1;
}

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
