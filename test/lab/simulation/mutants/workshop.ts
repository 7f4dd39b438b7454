import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { acquireMutations } from "./mutations/acquire.ts";
import { connectionMutations } from "./mutations/connections.ts";
import { leaseMutations } from "./mutations/lease.ts";
import { onceMutations } from "./mutations/once.ts";

/** One rule of the protocol, broken by a change of the text. */
export interface Mutation extends Edit {
  readonly name: string;
  /** The place in docs/internals/protocol.md: the number of the rule, or the script. */
  readonly rule: string;
  /** Most seeds need more than 5,000 schedules to notice it. `--short` leaves it out. */
  readonly isRare?: true;
  /** A second change. */
  readonly also?: Edit;
}

/**
 * One change of `src`. Neither the file nor the formatting belongs to it, so that a mutant survives
 * when code moves.
 */
interface Edit {
  /** The top-level declaration that has the text, where other declarations have it, too. */
  readonly in?: string;
  /** Has to be in `src` exactly once: a patch that no longer applies proves nothing. White space of any length is equal. */
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
export function changed(sources: Sources, { name, also, ...first }: Mutation): Sources {
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

function placeOf(sources: Sources, { find, in: declared }: Edit, name: string) {
  const escaped = find.trim().replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const pattern = new RegExp(escaped.replace(/\s+/g, "\\s+"), "g");
  const places = [...sources].flatMap(([file, text]) => {
    const [begin, end] = declared === undefined ? [0, text.length] : boundsOf(text, declared);
    return [...text.matchAll(pattern)]
      .map(({ index, 0: found }) => ({ file, from: index, to: index + found.length }))
      .filter(({ from }) => from >= begin && from < end);
  });
  const [place] = places;
  if (place !== undefined && places.length === 1) return place;
  const where = places.map(({ file }) => file).join(", ");
  throw new Error(
    `the mutant "${name}" no longer applies: its text is in src ${places.length} times (${where || "nowhere"}): ${find}`,
  );
}

/** A top-level declaration: from its first line to the next one at the margin that declares something. */
function boundsOf(text: string, name: string): [number, number] {
  const declares = (what: string) =>
    new RegExp(`^(?:export )?(?:abstract )?(?:const|function|class) ${what}\\b`, "gm");
  const begin = declares(name).exec(text)?.index;
  if (begin === undefined) return [0, 0];
  const next = declares("\\w+");
  next.lastIndex = begin + 1;
  return [begin, next.exec(text)?.index ?? text.length];
}

/** Every mutant that does not fit the sources any more, before any of them is hunted. */
export async function misfits(): Promise<string[]> {
  const texts = await sources();
  return mutations.flatMap((mutation) => {
    try {
      changed(texts, mutation);
      return [];
    } catch (error) {
      return (error as Error).message;
    }
  });
}
