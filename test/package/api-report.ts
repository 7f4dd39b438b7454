import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { type Declaration, Declarations } from "./declarations.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const REPORT = fileURLToPath(new URL("./api-report.md", import.meta.url));

/** The core first: what it exports, the others show as an import. */
const ENTRIES = {
  "submit-lock": "index.d.ts",
  "submit-lock/express": "express/index.d.ts",
  "submit-lock/koa": "koa/index.d.ts",
  "submit-lock/fastify": "fastify/index.d.ts",
  "submit-lock/fetch": "fetch/index.d.ts",
  "submit-lock/opentelemetry": "opentelemetry/index.d.ts",
};

export const UPDATE = "npm run api-report";

/** The report that is checked in. */
export function recordedReport(): string {
  return readFileSync(REPORT, "utf8");
}

/** The report on the sources as they are. */
export function currentReport(): string {
  const folder = mkdtempSync(join(tmpdir(), "submit-lock-api-"));
  try {
    emit(folder);
    return report(new Declarations(folder));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The declarations as the build makes them, but without comments. */
function emit(folder: string): void {
  const tsc = join(ROOT, "node_modules/typescript/bin/tsc");
  const args = ["--emitDeclarationOnly", "--removeComments", "--outDir", folder];
  const { status, stdout } = spawnSync(process.execPath, [tsc, "-p", ROOT, ...args], {
    encoding: "utf8",
  });
  if (status !== 0) throw new Error(`tsc could not write the declarations:\n${stdout}`);
}

function report(declarations: Declarations): string {
  const core = new Map<string, string>();
  const sections = Object.entries(ENTRIES).map(([name, file]) => {
    const exported = declarations.exportsOf(file);
    const shown = section(exported, declarations.globalsOf(file), core);
    if (core.size === 0) for (const [as, { id }] of exported) core.set(id, as);
    return `## ${name}\n\n\`\`\`ts\n${shown}\n\`\`\`\n`;
  });
  return `# The public declarations

Every name that users of the package can reach, with its type. What has no \`export\` cannot be imported
and is shown because an exported name mentions it. Written by \`${UPDATE}\`; a test compares.

${sections.join("\n")}`;
}

function section(
  exported: Map<string, Declaration>,
  globals: Declaration[],
  core: Map<string, string>,
): string {
  const exportedIds = new Set([...exported.values()].map(({ id }) => id));
  const reached = new Set<Declaration>();
  const imports = new Map<string, Set<string>>();
  const use = (name: string, from: string): void => {
    imports.set(from, (imports.get(from) ?? new Set()).add(name));
  };
  const reach = (declaration: Declaration): void => {
    const inCore = core.get(declaration.id);
    if (inCore !== undefined) use(inCore, "submit-lock");
    if (inCore !== undefined || reached.has(declaration)) return;
    reached.add(declaration);
    for (const { name, from } of declaration.foreign) use(name, from);
    declaration.uses.forEach(reach);
  };
  globals.forEach(reach);
  for (const declaration of exported.values()) reach(declaration);

  const importLines = [...imports]
    .map(([from, names]) => `import { ${[...names].sort().join(", ")} } from "${from}";`)
    .sort();
  const texts = [...reached]
    .sort((one, other) => (one.name < other.name ? -1 : one.name > other.name ? 1 : 0))
    .flatMap(({ id, texts }) =>
      texts.map((text) => (exportedIds.has(id) ? `export ${text}` : text)),
    );
  return [...(importLines.length > 0 ? [importLines.join("\n")] : []), ...texts].join("\n\n");
}

if (process.argv[1] !== undefined && resolve(process.argv[1]) === fileURLToPath(import.meta.url)) {
  writeFileSync(REPORT, currentReport());
}
