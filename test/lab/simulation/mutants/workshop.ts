import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { acquireMutations } from "./mutations/acquire.ts";
import { connectionMutations } from "./mutations/connections.ts";
import { leaseMutations } from "./mutations/lease.ts";
import { onceMutations } from "./mutations/once.ts";

/** A change of the sources that must be noticed. */
export interface Change extends Edit {
  readonly name: string;
  /** A second change. */
  readonly also?: Edit;
}

/** One rule of the protocol, broken by a change of the text. */
export interface Mutation extends Change {
  /** The place in docs/internals/protocol.md: the number of the rule, or the script. */
  readonly rule: string;
  /** Most seeds need more than 5,000 schedules to notice it. `--short` leaves it out. */
  readonly isRare?: true;
}

/**
 * One change of `src`, pinned by a name and a few words. The file, the lines around the words and the
 * formatting may change: moved code keeps its mutants.
 */
interface Edit {
  /** The function, method, class, constant or Lua function that has the words; `#` left out. */
  readonly in: string;
  /** Must be there exactly once: an edit that no longer applies proves nothing. White space of any length is equal. */
  readonly find: string;
  readonly replace: string;
}

/*
 * Not in the list, because nothing can notice them:
 * - an extend that may shorten: every extend of one owner id gives the same life, counted from its
 *   execution, so a later execution never gives less than an earlier one;
 * - nothing that is retired after a complete: for as long as a late copy may take effect it finds the
 *   record, because of rule 11, and takes nothing;
 * - a second connection that re-sends: `maxRetriesPerRequest: 0` has settled its commands before.
 *
 * Too rare for these schedules (not met by 50 000 of them), and held by tests on a real Redis:
 * - another's tombstone that is taken for one's own, and a lease that was freed and is retired at the
 *   end of its handler only (test/redis/rule-19-freed.test.ts);
 * - another's record that is looked at before the expiry (test/redis/rule-15-once.test.ts);
 * - a complete that is given up and deletes its lock (test/redis/rule-14-close.test.ts).
 */

/** Every mutant, by the subject that it breaks. */
export const mutations: readonly Mutation[] = [
  ...acquireMutations,
  ...leaseMutations,
  ...connectionMutations,
  ...onceMutations,
];

/** Texts by the path of their file. */
type Sources = ReadonlyMap<string, string>;

export async function sources(): Promise<Sources> {
  const src = fileURLToPath(new URL("../../../../src", import.meta.url));
  const files = (await readdir(src, { recursive: true })).filter((file) => file.endsWith(".ts"));
  const read = files.map(async (file) => {
    const path = join(src, file);
    return [path, await readFile(path, "utf8")] as const;
  });
  return new Map(await Promise.all(read));
}

/** The files that a mutation changes. Loud if its text is not there: such a mutant would prove nothing. */
export function changed(sources: Sources, { name, also, ...first }: Change): Sources {
  const all = new Map(sources);
  const written = new Map<string, string>();
  for (const edit of [first, ...(also === undefined ? [] : [also])]) {
    const { file, from, to } = placeOf(all, edit, name);
    const text = all.get(file) as string;
    all.set(file, text.slice(0, from) + edit.replace + text.slice(to));
    written.set(file, all.get(file) as string);
  }
  return written;
}

function placeOf(sources: Sources, { find, in: name }: Edit, mutant: string) {
  const escaped = find.trim().replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const words = new RegExp(escaped.replace(/\s+/g, "\\s+"), "g");
  const places = [...sources].flatMap(([file, text]) => {
    const found = [...text.matchAll(words)];
    const bodies = found.length === 0 ? [] : declarations(text, name);
    return found
      .map(({ index, 0: { length } }) => ({ file, from: index, to: index + length }))
      .filter(({ from }) => bodies.some(([begin, end]) => begin <= from && from < end));
  });
  const [place] = places;
  if (place !== undefined && places.length === 1) return place;
  const others = [...sources].filter(([, text]) => text.search(words) >= 0).map(([file]) => file);
  throw new Error(
    `the mutant "${mutant}" no longer fits: ${places.length} times in "${name}": ${find} (the words are in: ${others.join(", ") || "no file"})`,
  );
}

/** The bounds of everything of this name: each ends at the next declaration that is not inside it. */
function declarations(text: string, name: string): [begin: number, end: number][] {
  return [...text.matchAll(declares(name, " *"))].map(({ index, groups }) => {
    const { indent = "" } = groups ?? {};
    const next = declares("\\w+", `(?: {0,${indent.length}})`);
    next.lastIndex = text.indexOf("\n", index);
    return [index, next.exec(text)?.index ?? text.length];
  });
}

/** At the margin a keyword has to be there, because calls and Lua statements are there as well. */
function declares(name: string, indent: string): RegExp {
  const modifiers = "(?:(?:export|abstract|override|protected|static|readonly|async|get|local) )*";
  const declared = "(?:const|function|class) ";
  const member = "(?! )(?!(?:if|for|while|switch|return|else)\\b)";
  return new RegExp(
    `^(?:${modifiers}${declared}|(?<indent>${indent})(?<= )${member}${modifiers}(?:${declared})?)#?${name}\\b(?=[(<:]| =| extends| implements| \\{)`,
    "gm",
  );
}

/** Every mutant that does not fit the sources any more, before any of them is hunted. */
export async function misfits(changes: readonly Change[] = mutations): Promise<string[]> {
  const texts = await sources();
  return changes.flatMap((change) => {
    try {
      changed(texts, change);
      return [];
    } catch (error) {
      return (error as Error).message;
    }
  });
}
