import { execFile } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readFileSync, symlinkSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { Ended } from "../support/child.ts";
import { until } from "../support/until.ts";

const exec = promisify(execFile);
const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const PROJECTS = fileURLToPath(new URL("./projects", import.meta.url));
const RECIPES = fileURLToPath(new URL("../lab/recipes", import.meta.url));
const OWN = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
// npm is a .cmd file on Windows, which only a shell starts.
const SHELL = { shell: process.platform === "win32" };

interface Manifest {
  readonly type: "module" | "commonjs";
  readonly packages: Record<string, string>;
  /** Whether npm runs the install scripts of these packages. @defaultValue false */
  readonly scripts?: boolean;
}

/** What `npm pack --json` prints of a tarball. */
interface Packed {
  readonly filename: string;
  readonly files: readonly { readonly path: string }[];
  readonly unpackedSize: number;
}

/**
 * Projects in a temporary folder that install the packed tarball, as its users do. Those with the
 * same packages share an install, because it takes longer than most of their tests.
 */
export class Consumers {
  readonly #folder: string;
  readonly #tarball: string;
  /** The paths of what is in the tarball. */
  readonly files: ReadonlySet<string>;
  /** In bytes. */
  readonly unpackedSize: number;
  /** The folder of the project that has installed these packages. */
  readonly #installs = new Map<string, Promise<string>>();

  private constructor(folder: string, packed: Packed) {
    this.#folder = folder;
    this.#tarball = join(folder, packed.filename);
    this.files = new Set(packed.files.map(({ path }) => path));
    this.unpackedSize = packed.unpackedSize;
  }

  /** Packs what the last build left in `dist`. */
  static async pack(): Promise<Consumers> {
    if (!existsSync(join(ROOT, "dist/cjs/package.json"))) {
      throw new Error("There is no build to pack: run `npm run build` first.");
    }
    const folder = await mkdtemp(join(tmpdir(), "submit-lock-consumers-"));
    // Without scripts: `prepack` would empty `dist` under the tests that run beside this one.
    const args = ["pack", "--ignore-scripts", "--json", "--pack-destination", folder];
    const { stdout } = await exec("npm", args, { cwd: ROOT, ...SHELL });
    return new Consumers(folder, JSON.parse(stdout)[0]);
  }

  /** A project with the files of `projects/<name>`, the tarball and these packages, in a folder of its own. */
  async install(name: string, manifest: Manifest, as: string = name): Promise<Project> {
    const folder = join(this.#folder, as);
    cpSync(join(PROJECTS, name), folder, { recursive: true });
    cpSync(join(PROJECTS, "shared"), folder, { recursive: true });
    return await this.#installed(folder, name, manifest);
  }

  /** A project with the files of these folders of `test/lab/recipes` and these packages. */
  async installRecipe(
    folders: readonly string[],
    manifest: Manifest,
    name: string = folders.at(-1) as string,
  ): Promise<Project> {
    const folder = join(this.#folder, name);
    for (const each of folders) cpSync(join(RECIPES, each), folder, { recursive: true });
    return await this.#installed(folder, name, manifest);
  }

  /**
   * A project with the files of `projects/<name>` and the unpacked tarball, which finds these packages
   * of this repository and no others. It costs no install.
   *
   * @param packages their names in the project, and here
   */
  async link(
    name: string,
    type: Manifest["type"],
    packages: Readonly<Record<string, string>> = {},
  ): Promise<Project> {
    const folder = join(this.#folder, name);
    cpSync(join(PROJECTS, name), folder, { recursive: true });
    cpSync(join(PROJECTS, "shared"), folder, { recursive: true });
    await writeFile(join(folder, "package.json"), JSON.stringify({ name, private: true, type }));
    const unpacked = join(folder, "node_modules/submit-lock");
    mkdirSync(unpacked, { recursive: true });
    await exec("tar", ["-xzf", this.#tarball, "-C", unpacked, "--strip-components=1"]);
    for (const [as, own] of Object.entries({ uuid: "uuid", ...packages })) {
      const link = join(folder, "node_modules", as);
      mkdirSync(dirname(link), { recursive: true });
      symlinkSync(join(ROOT, "node_modules", own), link, "junction");
    }
    return new Project(folder);
  }

  async #installed(folder: string, name: string, manifest: Manifest): Promise<Project> {
    const dependencies = { "submit-lock": `file:${this.#tarball}`, ...manifest.packages };
    const { type, scripts = false } = manifest;
    await writeFile(
      join(folder, "package.json"),
      JSON.stringify({ name, private: true, type, dependencies }),
    );
    const packages = JSON.stringify([dependencies, scripts]);
    const shared = this.#installs.get(packages);
    if (shared === undefined) {
      const install = npmInstall(folder, scripts);
      this.#installs.set(packages, install);
      await install;
    } else {
      symlinkSync(join(await shared, "node_modules"), join(folder, "node_modules"), "junction");
    }
    return new Project(folder);
  }

  remove(): Promise<void> {
    return rm(this.#folder, { recursive: true, force: true });
  }
}

/** @returns the folder */
async function npmInstall(folder: string, scripts: boolean): Promise<string> {
  const quiet = ["--no-audit", "--no-fund", "--no-package-lock"];
  if (!scripts) quiet.push("--ignore-scripts");
  await exec("npm", ["install", "--prefer-offline", ...quiet], { cwd: folder, ...SHELL });
  return folder;
}

export class Project {
  readonly folder: string;

  constructor(folder: string) {
    this.folder = folder;
  }

  has(packageName: string): boolean {
    return existsSync(join(this.folder, "node_modules", packageName));
  }

  /** Runs the install scripts of these packages, which npm leaves out unless they are approved. */
  async rebuild(packages: readonly string[]): Promise<void> {
    await exec("npm", ["rebuild", ...packages], { cwd: this.folder, ...SHELL });
  }

  /**
   * Runs a file with Node and resolves with what it printed; rejects with its errors.
   *
   * @param version of Node, from the registry. @defaultValue this one
   */
  async node(args: string[], env: Record<string, string> = {}, version?: string): Promise<string> {
    const options = { cwd: this.folder, env: { ...process.env, ...env } };
    const other = ["-y", "-p", `node@${version}`, "node", ...args];
    const run =
      version === undefined
        ? exec(process.execPath, args, options)
        : exec("npx", other, { ...options, ...SHELL });
    const { stdout } = await run.catch((error) => {
      throw new Error(`node ${args.join(" ")}\n${error.stdout}${error.stderr}`);
    });
    return stdout;
  }

  /** Runs a program of `node_modules/.bin`, as npx does. */
  bin(name: string, args: readonly string[], env: Record<string, string> = {}): Promise<Ended> {
    return this.#run(join(this.folder, "node_modules/.bin", name), args, { env, ...SHELL });
  }

  /** Runs a command of the package, as npx does where npm has installed it. */
  submitLock(args: readonly string[], env: Record<string, string> = {}): Promise<Ended> {
    if (this.has(".bin/submit-lock")) return this.bin("submit-lock", args, env);
    const linked = "node_modules/submit-lock/dist/esm/cli/index.js";
    return this.#run(process.execPath, [linked, ...args], { env });
  }

  /**
   * Runs it again while Redis has not answered in time, as it says itself on a busy machine: by its
   * exit code, and `doctor` by a finding.
   */
  answered(args: readonly string[], env: Record<string, string>): Promise<Ended> {
    return until(
      async () => {
        const ran = await this.submitLock(args, env);
        return ran.code !== 3 && !/FAIL .*no answer/.test(ran.stdout) && ran;
      },
      // Beside other programs a command has taken 15 s.
      { what: `an answer to ${args[0]}`, boundMs: 120_000 },
    );
  }

  #run(
    program: string,
    args: readonly string[],
    { env, ...more }: { readonly env: Record<string, string>; readonly shell?: boolean },
  ): Promise<Ended> {
    const options = { cwd: this.folder, env: { ...process.env, ...env }, ...more };
    return exec(program, args, options).then(
      ({ stdout, stderr }) => ({ code: 0, stdout, stderr }),
      ({ code, stdout, stderr }) => ({ code: Number(code), stdout, stderr }),
    );
  }
}

/** The versions that this package is developed with, so that an install finds them in npm's cache. */
export function ownVersions(...names: string[]): Record<string, string> {
  return Object.fromEntries(names.map((name) => [name, OWN.devDependencies[name]]));
}
