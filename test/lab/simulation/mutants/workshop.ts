import { readFileSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** A change of the sources that must be noticed. */
export interface Change extends Edit {
  readonly name: string;
  /** A second change. */
  readonly also?: Edit | undefined;
}

/** What came of the flaws that were chosen by words. */
export interface Outcome {
  readonly tried: number;
  /** Flaws that no net noticed. */
  readonly survivors: number;
}

/** One rule of the protocol, broken by a change of the text. */
export interface Mutation extends Change {
  /** The place in docs/internals/protocol.md: the number of the rule, or the script; of SQL the test. */
  readonly rule: string;
  /**
   * The schedule of a seed that its hunt begins with. One of the next notices it with seed 1, which
   * spares the hunt thousands; where that is no longer so, it takes as long as from any other.
   */
  readonly from: number;
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

/** Every mutant of the protocol, by the subject that it breaks. */
export const mutations: readonly Mutation[] = mutationsOf(new URL("mutants.diff", import.meta.url));

export function mutationsOf(file: URL): readonly Mutation[] {
  const blocks = readFileSync(file, "utf8").split(/\n\n+/);
  return blocks.filter((block) => !block.startsWith("#")).map(mutationOf);
}

function mutationOf(block: string): Mutation {
  const [title = "", ...edits] = block.trimEnd().split("\n@ ");
  const [, rule, name, from = "0"] = /^\[(.+)\] (.+?)(?: \(from (\d+)\))?$/.exec(title) ?? [];
  const [first, also] = edits.map(editOf);
  if (rule === undefined || name === undefined || first === undefined) {
    throw new Error(`expected a mutant, got ${block}`);
  }
  return { ...first, also, rule, name, from: Number(from) };
}

function editOf(text: string): Edit {
  const [name = "", ...lines] = text.split("\n");
  const after = (sign: string) =>
    lines.flatMap((line) => (line.startsWith(sign) ? line.slice(1) : [])).join("\n");
  return { in: name, find: after("-"), replace: after("+") };
}

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
