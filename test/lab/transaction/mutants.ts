import { spawnSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import {
  changed,
  type Mutation,
  mutationsOf,
  type Outcome,
  sources,
} from "../simulation/mutants/workshop.ts";

const tree = fileURLToPath(new URL("../../..", import.meta.url));

/** Each rule of `submit-lock/sql`, broken. Its `rule` also names the file whose tests must be red. */
export const sqlMutations: readonly Mutation[] = mutationsOf(
  new URL("mutants.diff", import.meta.url),
);

export async function runBroken(words: readonly string[]): Promise<Outcome> {
  const chosen = sqlMutations.filter(({ rule, name }) =>
    words.every((word) => `sql ${rule} ${name}`.includes(word)),
  );
  if (chosen.length === 0) return { tried: 0, survivors: 0 };
  let survivors = 0;
  const copy = mkdtempSync(join(tmpdir(), "submit-lock-mutants-"));
  try {
    for (const each of ["src", "test", "package.json", "tsconfig.json", "vitest.config.ts"]) {
      cpSync(join(tree, each), join(copy, each), { recursive: true });
    }
    symlinkSync(join(tree, "node_modules"), join(copy, "node_modules"));
    const texts = await sources();
    const files = [...new Set(chosen.map(testOf))];
    const [red] = files.flatMap((file) => failed(copy, file));
    // A test that is red in any case notices nothing.
    if (red !== undefined) throw new Error(`the sources as they are break ${red}`);
    for (const mutation of chosen) {
      const written = changed(texts, mutation);
      const write = (path: string, text = "") =>
        writeFileSync(join(copy, relative(tree, path)), text);
      for (const [path, text] of written) write(path, text);
      const [test = "SURVIVED"] = failed(copy, testOf(mutation));
      for (const path of written.keys()) write(path, texts.get(path));
      if (test === "SURVIVED") survivors++;
      console.log(`sql, ${mutation.rule}: ${mutation.name}\n  ${test}`);
    }
  } finally {
    rmSync(copy, { recursive: true, force: true });
  }
  console.log(`${chosen.length - survivors} of ${chosen.length} broken rules were noticed.`);
  return { tried: chosen.length, survivors };
}

const testOf = ({ rule }: Mutation) => rule.split(", ")[1] as string;

/** The first test of a file that is red in the copy. */
function failed(copy: string, file: string): string[] {
  const report = join(copy, "report.json");
  rmSync(report, { force: true });
  const options = ["--bail", "1", "--testTimeout", "120000", "--reporter", "json"];
  const args = ["vitest", "run", file, ...options, "--outputFile", report];
  const { stderr } = spawnSync("npx", args, { cwd: copy, encoding: "utf8" });
  const { testResults } = JSON.parse(readFileSync(report, "utf8")) as Report;
  const all = testResults.flatMap(({ assertionResults }) => assertionResults);
  // A file that cannot be loaded proves nothing.
  if (all.length === 0) throw new Error(`${file} did not run: ${stderr}`);
  return all.filter(({ status }) => status === "failed").map(({ fullName }) => fullName);
}

interface Report {
  readonly testResults: readonly {
    readonly assertionResults: readonly { readonly fullName: string; readonly status: string }[];
  }[];
}
