import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { atExit } from "../../support/at-exit.ts";
import { setting } from "../service/laboratory.ts";
import { Random } from "../simulation/time/random.ts";

/**
 * `npm run lab -- stryker`: mutants that no rule has in mind, in some places of `src/lock` and
 * `src/http`. `STRYKER_PLACES` (40) says how many, of four lines each, and `STRYKER_SEED` which.
 */
const report = "node_modules/.cache/stryker.json";
const version = "10.1.1";
const places = setting("STRYKER_PLACES", 40);
const seed = setting("STRYKER_SEED", 1);

interface Report {
  readonly files: Record<string, { readonly source: string; readonly mutants: readonly Mutant[] }>;
}

interface Mutant {
  readonly mutatorName: string;
  readonly replacement?: string;
  readonly status: string;
  readonly location: Record<"start" | "end", { readonly line: number; readonly column: number }>;
}

function sampled(): string[] {
  const random = new Random(seed);
  const lines = ["src/lock", "src/http"].flatMap((folder) =>
    readdirSync(folder).flatMap((file) => {
      const path = `${folder}/${file}`;
      const { length } = readFileSync(path, "utf8").split("\n");
      return Array.from(
        { length: Math.floor(length / 4) },
        (_, at) => `${path}:${4 * at + 1}-${4 * at + 4}`,
      );
    }),
  );
  return Array.from({ length: places }, () => random.pick(lines));
}

function page({ files }: Report): string {
  const all = Object.values(files).flatMap(({ mutants }) => mutants);
  const count = (...statuses: string[]) =>
    all.filter(({ status }) => statuses.includes(status)).length;
  const caught = count("Killed", "Timeout");
  const tried = caught + count("Survived", "NoCoverage");
  const rows = Object.entries(files).flatMap(([file, { source, mutants }]) =>
    mutants
      .filter(({ status }) => status === "Survived" || status === "NoCoverage")
      .map(({ location: { start, end }, replacement = "", status }) => {
        const text = source.split("\n")[start.line - 1] ?? "";
        const was = text.slice(
          start.column - 1,
          start.line === end.line ? end.column - 1 : undefined,
        );
        const code = (part: string) =>
          `\`${part.replace(/\s+/g, " ").replaceAll("|", "\\|").slice(0, 60)}\``;
        return `| ${file}:${start.line} | ${code(was)} | ${code(replacement)} | ${status} |`;
      }),
  );
  return `# Mutants of Stryker

Written by \`npm run lab -- stryker\`: ${places} places of \`src/lock\` and \`src/http\`, seed ${seed}, Stryker ${version}. It changes operators, conditions, blocks and literals, not texts. The tests of \`test/lab/stryker/vitest.config.ts\` caught **${caught} of ${tried}** mutants.

| place | code | mutant | |
|---|---|---|---|
${rows.join("\n")}
`;
}

const packages = [
  "node@24",
  `@stryker-mutator/core@${version}`,
  `@stryker-mutator/vitest-runner@${version}`,
];
const folder = mkdtempSync(join(tmpdir(), "submit-lock-stryker-"));
/** Stryker kills a late runner by SIGKILL, which leaves its servers: on Linux they are found. */
function endServers(): void {
  for (const pid of existsSync("/proc") ? readdirSync("/proc") : []) {
    try {
      if (readlinkSync(`/proc/${pid}/cwd`).startsWith(folder)) process.kill(Number(pid));
    } catch {
      // No process, one of another user, or one that has just ended.
    }
  }
  rmSync(folder, { recursive: true, force: true });
}

const run = spawn(
  "npx",
  [
    "-y",
    ...packages.flatMap((name) => ["-p", name]),
    "-c",
    `stryker run test/lab/stryker/stryker.json --mutate "${sampled().join(",")}"`,
  ],
  { stdio: "inherit", env: { ...process.env, TMPDIR: folder } },
);
atExit(() => {
  run.kill();
  endServers();
});
const [code] = await once(run, "close");
if (code !== 0) process.exit(1);
writeFileSync(
  "test/lab/stryker/results.md",
  page(JSON.parse(readFileSync(report, "utf8")) as Report),
);
