import { randomUUID } from "node:crypto";
import { rmSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build, type Plugin } from "esbuild";
import { atExit } from "./at-exit.ts";

interface Source {
  /** Its path or address. */
  readonly file?: string | URL;
  readonly code?: string;
  /** @defaultValue a file below `node_modules`, where it finds its packages */
  readonly outfile?: string;
  /** Texts in place of those of these files. */
  readonly texts?: ReadonlyMap<string, string> | undefined;
  /** Its packages are in the file, too: for a program that is started again and again. */
  readonly withPackages?: true;
}

/** What packages in CommonJS call in an ES module. */
const REQUIRE = `import { createRequire } from "node:module";
const require = createRequire(import.meta.url);`;

/** By the text of their source, and whether their packages are in them. */
const programs = new Map<string, Promise<string>>();

/**
 * A TypeScript program as one file that Node runs by itself. A child process that starts from it
 * costs a tenth of the processor time that a loader takes. It is made once in a process.
 *
 * @returns its path
 */
export async function compiled(source: Source): Promise<string> {
  if (source.outfile !== undefined || source.texts !== undefined) return await bundle(source);
  const key = `${source.file ?? source.code} ${source.withPackages}`;
  const known = programs.get(key) ?? bundle(source);
  programs.set(key, known);
  return await known;
}

async function bundle({
  file,
  code = "",
  outfile = nextFile(),
  texts = new Map(),
  withPackages,
}: Source): Promise<string> {
  await build({
    ...(file === undefined
      ? { stdin: { contents: code, loader: "ts", resolveDir: process.cwd() } }
      : { entryPoints: [file instanceof URL ? fileURLToPath(file) : file] }),
    outfile,
    bundle: true,
    ...(withPackages
      ? { external: ["pg-native"], banner: { js: REQUIRE } }
      : { packages: "external" }),
    platform: "node",
    target: "node20",
    format: "esm",
    sourcemap: "inline",
    logLevel: "silent",
    plugins: [addresses, instead(texts)],
  });
  return outfile;
}

function nextFile(): string {
  const path = `../../node_modules/.cache/children/${randomUUID()}.mjs`;
  const file = fileURLToPath(new URL(path, import.meta.url));
  atExit(() => rmSync(file, { force: true }));
  return file;
}

/** `import`s of `file:` addresses. */
const addresses: Plugin = {
  name: "addresses of files",
  setup({ onResolve }) {
    onResolve({ filter: /^file:/ }, ({ path }) => ({ path: fileURLToPath(path) }));
  },
};

/** Texts in place of those of these files. */
export const instead = (texts: ReadonlyMap<string, string>): Plugin => ({
  name: "other texts",
  setup({ onLoad }) {
    onLoad({ filter: /\.ts$/ }, ({ path }) => {
      const contents = texts.get(path);
      return contents === undefined ? undefined : { contents, loader: "ts" };
    });
  },
});
