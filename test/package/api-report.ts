import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

/** Where a name that a module uses comes from. */
interface Origin {
  /** A file of the package, or the name of another package. */
  readonly from: string;
  readonly name: string;
}

/** A name of the package, found in the module that declares it. */
interface Declaration {
  readonly id: string;
  readonly name: string;
  /** Without `export` and `declare`; several for overloads. */
  readonly texts: string[];
  readonly uses: readonly Declaration[];
  /** The names of other packages that they mention, by package. */
  readonly foreign: readonly Origin[];
}

interface Module {
  readonly declared: Map<string, string[]>;
  readonly origins: Map<string, Origin>;
  readonly exported: Map<string, Origin>;
  readonly globals: string[];
  /** The files whose types it exports all. */
  readonly stars: string[];
}

/**
 * The declarations that `tsc --removeComments` wrote into a folder. Its output is so regular that
 * lines are enough: a statement begins at the margin, and what continues it is indented or a brace.
 */
class Declarations {
  readonly #folder: string;
  readonly #modules = new Map<string, Module>();
  readonly #resolved = new Map<string, Declaration>();

  constructor(folder: string) {
    this.#folder = folder;
  }

  exportsOf(entry: string): Map<string, Declaration> {
    const names = [...this.#module(entry).exported.keys()].sort();
    return new Map(names.map((name) => [name, this.#exported(entry, name)]));
  }

  /** What importing an entry point adds to the global types, in whichever of its modules. */
  globalsOf(entry: string): Declaration[] {
    const loaded = new Set([entry]);
    for (const file of loaded) {
      const { origins, exported } = this.#module(file);
      for (const { from } of [...origins.values(), ...exported.values()]) {
        if (from.endsWith(".d.ts")) loaded.add(from);
      }
    }
    return [...loaded].flatMap((file) =>
      this.#module(file).globals.map((text, at) => this.#declaration(file, `global ${at}`, [text])),
    );
  }

  #exported(file: string, name: string): Declaration {
    const origin = this.#module(file).exported.get(name);
    if (origin === undefined) throw new Error(`${file} does not export ${name}`);
    return origin.from === file
      ? this.#local(file, origin.name)
      : this.#exported(origin.from, origin.name);
  }

  #local(file: string, name: string): Declaration {
    const texts = this.#module(file).declared.get(name);
    if (texts === undefined) throw new Error(`${file} does not declare ${name}`);
    return this.#declaration(file, name, texts);
  }

  #declaration(file: string, name: string, texts: string[]): Declaration {
    const id = `${file}#${name}`;
    const known = this.#resolved.get(id);
    if (known !== undefined) return known;
    const uses: Declaration[] = [];
    const foreign: Origin[] = [];
    const made: Declaration = { id, name, texts, uses, foreign };
    // Before its uses, which may lead back to it.
    this.#resolved.set(id, made);
    const { declared, origins } = this.#module(file);
    for (const used of mentioned(texts.join("\n"))) {
      const origin = origins.get(used);
      if (used === name) continue;
      if (declared.has(used)) uses.push(this.#local(file, used));
      else if (origin?.from.endsWith(".d.ts")) uses.push(this.#exported(origin.from, origin.name));
      else if (origin !== undefined) foreign.push(origin);
    }
    return made;
  }

  #module(file: string): Module {
    const known = this.#modules.get(file);
    if (known !== undefined) return known;
    const module = parse(file, readFileSync(join(this.#folder, file), "utf8"));
    this.#modules.set(file, module);
    for (const from of module.stars) {
      for (const name of this.#module(from).exported.keys()) {
        module.exported.set(name, { from, name });
      }
    }
    return module;
  }
}

const LIST = /^(import|export) (?:type )?\{([^}]*)\}(?: from "(.*)")?;$/;
const DECLARED =
  /^(export )?(?:declare )?((?:abstract )?class|interface|type|function|const|let) (\w+)/;

function parse(file: string, source: string): Module {
  const module: Module = {
    declared: new Map(),
    origins: new Map(),
    exported: new Map(),
    globals: [],
    stars: [],
  };
  for (const statement of source.trim().split(/\n(?=[^\s}])/)) {
    const text = statement.trim();
    const list = LIST.exec(text);
    const declared = DECLARED.exec(text);
    const [, star] = /^export (?:type )?\* from "(\..*)";$/.exec(text) ?? [];
    if (star !== undefined) module.stars.push(resolved(file, star));
    else if (list !== null) {
      const [, kind, names, specifier] = list;
      const from = specifier === undefined ? file : resolved(file, specifier);
      const into = kind === "import" ? module.origins : module.exported;
      for (const { name, as } of namesIn(names ?? "")) into.set(as, { from, name });
    } else if (declared !== null) {
      const [, isExported, , name = ""] = declared;
      const bare = text.replace(/^(export )?(declare )?/, "");
      module.declared.set(name, [...(module.declared.get(name) ?? []), bare]);
      if (isExported) module.exported.set(name, { from: file, name });
    } else if (/^declare (global|module) /.test(text)) {
      module.globals.push(text);
    } else {
      throw new Error(`${file}: a statement of an unknown kind: ${text}`);
    }
  }
  return module;
}

function resolved(file: string, specifier: string): string {
  if (!specifier.startsWith(".")) return specifier;
  return join(dirname(file), specifier.replace(/\.ts$/, ".d.ts"));
}

function namesIn(list: string): { name: string; as: string }[] {
  return [...list.matchAll(/(?:type )?(\w+)(?: as (\w+))?/g)].map(([, name = "", as]) => ({
    name,
    as: as ?? name,
  }));
}

/** The words of a declaration that can be names of types: neither in a string nor the name of a member. */
function mentioned(text: string): Set<string> {
  const words = text.replace(/"(?:[^"\\]|\\.)*"/g, '""').matchAll(/(?<![#.\w])\w+(?!\w|\??[:(])/g);
  return new Set([...words].map(([word]) => word));
}

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const REPORT = fileURLToPath(new URL("./api-report.md", import.meta.url));

/** The core first: what it exports, the others show as an import. */
const ENTRIES = {
  "submit-lock": "index.d.ts",
  "submit-lock/express": "express/index.d.ts",
  "submit-lock/koa": "koa/index.d.ts",
  "submit-lock/fastify": "fastify/index.d.ts",
  "submit-lock/fetch": "fetch/index.d.ts",
  "submit-lock/sql": "sql/index.d.ts",
  "submit-lock/browser": "browser/index.d.ts",
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
