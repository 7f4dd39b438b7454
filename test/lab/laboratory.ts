import { delimiter } from "node:path";
import { serverBinary, serverVersion } from "../support/server-binary.ts";

const clientNames = ["ioredis 5", "ioredis 6", "node-redis 6"] as const;

/** A Redis client as an application may have it. */
export type ClientName = (typeof clientNames)[number];

/** What the bounded forms of the labs use, where both can: one lock, two libraries. */
export const bothLibraries: readonly [ClientName, ClientName] = ["ioredis 5", "node-redis 6"];

/**
 * The clients of the two services, or of the two groups of callers, of a lab: both majors of ioredis;
 * with `LAB_CLIENT="node-redis 6"`, that one twice.
 */
export function labClients(): readonly [ClientName, ClientName] {
  const given = process.env["LAB_CLIENT"];
  if (given === undefined) return ["ioredis 6", "ioredis 5"];
  const name = clientNames.find((each) => each === given);
  if (name !== undefined) return [name, name];
  throw new Error(`LAB_CLIENT: expected ${clientNames.join(" or ")}, got ${given}`);
}

/** The servers that `REDIS_SERVER_BINS` names, or the one of the tests, with their versions. */
function servers(): { binary: string; version: string }[] {
  const named = (process.env["REDIS_SERVER_BINS"] ?? "").split(delimiter).filter(Boolean);
  return (named.length === 0 ? [serverBinary()] : named).map((binary) => {
    return { binary, version: (serverVersion(binary) ?? binary).replace(" server v=", " ") };
  });
}

/** A word of the command line chooses by a part of a name; a table that no word speaks of is whole. */
export function chosen<Row extends { readonly name: string }>(table: readonly Row[]): Row[] {
  const isIn =
    ({ name }: Row) =>
    (word: string) =>
      name.includes(word);
  const about = process.argv.slice(2).filter((word) => table.some((row) => isIn(row)(word)));
  return table.filter((row) => about.length === 0 || about.some(isIn(row)));
}

/** The number of an environment variable, if it is set. */
export function setting(name: string, otherwise: number): number {
  return Number(process.env[name] ?? otherwise);
}

/** The seed of an environment variable, or a random one. */
export function seedOf(name: string): number {
  return setting(name, Math.floor(Math.random() * 2 ** 32));
}

/** A result as a row of a table: whole numbers, and of a list how many there are. */
export function rowOf(result: object): object {
  const shown = (value: unknown) => {
    if (typeof value === "number") return Math.round(value);
    return Array.isArray(value) ? value.length : value;
  };
  return Object.fromEntries(Object.entries(result).map(([name, value]) => [name, shown(value)]));
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
 * A scenario as `npm run lab` runs it: on each of the servers, with its misses printed and its exit
 * code set.
 */
export async function runLaboratory(
  what: string,
  play: (binary: string) => Promise<readonly string[]>,
): Promise<void> {
  for (const { binary, version } of servers()) {
    console.log(`${what}; ${version}, Node ${process.version}`);
    const from = performance.now();
    const missed = await play(binary);
    for (const miss of missed.slice(0, 20)) console.log(`MISSED: ${miss}`);
    const seconds = Math.round((performance.now() - from) / 1_000);
    console.log(`${seconds} s: ${missed.length} misses.`);
    if (missed.length > 0) process.exitCode = 1;
  }
}
