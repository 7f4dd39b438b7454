import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";

/** Where a name that a module uses comes from. */
interface Origin {
  /** A file of the package, or the name of another package. */
  readonly from: string;
  readonly name: string;
}

/** A name of the package, found in the module that declares it. */
export interface Declaration {
  readonly id: string;
  readonly name: string;
  /** Without `export` and `declare`; several for overloads. */
  readonly texts: string[];
  /** The names of the package that the texts mention. */
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
export class Declarations {
  readonly #folder: string;
  readonly #modules = new Map<string, Module>();
  readonly #resolved = new Map<string, Declaration>();

  constructor(folder: string) {
    this.#folder = folder;
  }

  /** What an entry point exports, by name. */
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
