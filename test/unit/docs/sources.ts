import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { ROOT } from "../../docs/page.ts";

/** Every file of `src`, one after the other. */
const sources: string = readdirSync(join(ROOT, "src"), { recursive: true, encoding: "utf8" })
  .filter((file) => file.endsWith(".ts"))
  .map((file) => readFileSync(join(ROOT, "src", file), "utf8"))
  .join("\n");

/** What matches in the sources, each once and in order of the alphabet. */
export function inSources(pattern: RegExp): string[] {
  return [...new Set([...sources.matchAll(pattern)].map(([match]) => match))].sort();
}

/** The members of an interface, without its comments. */
export function membersOf(name: string): string[] {
  const body = new RegExp(`interface ${name}\\b[^{]*{(.*?)^}`, "ms").exec(sources)?.[1];
  if (body === undefined) throw new Error(`no interface ${name}`);
  return [...body.matchAll(/^ {2}readonly (\w+)\??:/gm)].map(([, member]) => member as string);
}

/** The first text that a pattern finds in the sources, by its first group. */
export function foundInSources(pattern: RegExp): string {
  return pattern.exec(sources)?.[1] ?? "";
}
