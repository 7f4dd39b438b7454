import { cp, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Mutation } from "./mutation.ts";

const home = fileURLToPath(new URL("../../../../", import.meta.url));

/** A copy of the sources and of the simulation, in which one thing is changed. */
export interface Workshop {
  /** Its own copy of `hunt-process.ts`. */
  readonly program: string;
  remove(): Promise<void>;
}

export async function openWorkshop(mutation: Mutation | undefined): Promise<Workshop> {
  const folder = await mkdtemp(join(tmpdir(), "submit-lock-mutant-"));
  for (const part of ["src", "test/lab/simulation", "package.json"]) {
    await cp(join(home, part), join(folder, part), { recursive: true });
  }
  await symlink(join(home, "node_modules"), join(folder, "node_modules"), "dir");
  if (mutation !== undefined) {
    const file = join(folder, mutation.file);
    await writeFile(file, await changed(file, mutation));
  }
  return {
    program: join(folder, "test/lab/simulation/hunt-process.ts"),
    remove: () => rm(folder, { recursive: true, force: true }),
  };
}

/** The text with one thing changed. Loud if that is not there: such a mutant would prove nothing. */
async function changed(file: string, { name, find, replace, also }: Mutation): Promise<string> {
  let text = await readFile(file, "utf8");
  for (const edit of [{ find, replace }, ...(also === undefined ? [] : [also])]) {
    const parts = text.split(edit.find);
    if (parts.length !== 2) {
      throw new Error(
        `the mutant "${name}" no longer applies: its text is there ${parts.length - 1} times in ${file}`,
      );
    }
    text = parts.join(edit.replace);
  }
  return text;
}

/** Every mutant that does not fit the sources any more, before any of them is hunted. */
export async function misfits(mutations: readonly Mutation[]): Promise<string[]> {
  const results = await Promise.allSettled(
    mutations.map((mutation) => changed(join(home, mutation.file), mutation)),
  );
  return results.flatMap((result) =>
    result.status === "rejected" ? (result.reason as Error).message : [],
  );
}
