import { serverBinary, serverVersion } from "../../support/server-binary.ts";

/** The number of an environment variable, if it is set. */
export function setting(name: string, otherwise: number): number {
  return Number(process.env[name] ?? otherwise);
}

/** The seed of an environment variable, or a random one. */
export function seedOf(name: string): number {
  return setting(name, Math.floor(Math.random() * 2 ** 32));
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
