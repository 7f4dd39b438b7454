import { execFile } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { Program } from "../support/child.ts";
import { compiled } from "../support/compiled.ts";
import { ROOT } from "./page.ts";

const exec = promisify(execFile);

const packages = [
  "express",
  "express-session",
  "koa",
  "@koa/router",
  "@koa/bodyparser",
  "fastify",
  "hono",
  "@hono/node-server",
  "ioredis",
  "redis",
  "@opentelemetry/api",
  "@opentelemetry/exporter-prometheus",
  "@opentelemetry/sdk-metrics",
  "supertest",
  "@electric-sql/pglite",
  "@types/node",
  "@types/express",
  "@types/express-session",
  "@types/koa",
  "@types/supertest",
];

/** A project of somebody who copies from the documents. It uses what `npm run build` left in `dist`. */
export class ReaderProject {
  readonly folder: string;
  readonly #running = new Set<Program>();

  constructor() {
    if (!existsSync(join(ROOT, "dist/cjs/package.json"))) {
      throw new Error("There is no build to use: run `npm run build` first.");
    }
    this.folder = realpathSync(mkdtempSync(join(tmpdir(), "submit-lock-readme-")));
    this.#link("submit-lock", ROOT);
    for (const name of packages) this.#link(name, join(ROOT, "node_modules", name));
    this.write("package.json", JSON.stringify({ type: "module" }));
  }

  #link(name: string, target: string): void {
    const link = join(this.folder, "node_modules", name);
    mkdirSync(dirname(link), { recursive: true });
    // A junction needs no special right on Windows.
    symlinkSync(target, link, "junction");
  }

  write(file: string, text: string): void {
    writeFileSync(join(this.folder, file), text);
  }

  /** What the compiler says about every `.ts` file of the project; nothing, if all is well. */
  async typeErrors(): Promise<string> {
    const compilerOptions = {
      noEmit: true,
      target: "es2022",
      lib: ["es2023"],
      module: "nodenext",
      types: ["node"],
      strict: true,
      noUncheckedIndexedAccess: true,
      exactOptionalPropertyTypes: true,
      noImplicitReturns: true,
      allowImportingTsExtensions: true,
      skipLibCheck: true,
    };
    this.write("tsconfig.json", JSON.stringify({ compilerOptions, include: ["*.ts"] }));
    const tsc = join(ROOT, "node_modules/typescript/bin/tsc");
    return await exec(process.execPath, [tsc, "-p", this.folder]).then(
      () => "",
      (error: { stdout: string }) => error.stdout,
    );
  }

  /** Runs a file to its end and resolves with what it printed; rejects with its errors. */
  async run(file: string, env: Record<string, string> = {}): Promise<string> {
    const program = await this.#spawn(file, env);
    const code = await program.ended;
    if (code !== 0) throw new Error(`${file} ended with ${code}:\n${program.output()}`);
    return program.output();
  }

  /** Runs a file that serves until `remove` ends it. One that ends by itself says so in the log. */
  async start(file: string, env: Record<string, string>): Promise<void> {
    const program = await this.#spawn(file, env);
    void program.ended.then((code) => {
      if (code !== "SIGKILL") console.error(`${file} ended with ${code}:\n${program.output()}`);
    });
  }

  async #spawn(file: string, env: Record<string, string>): Promise<Program> {
    const path = join(this.folder, file);
    const module = file.endsWith(".ts")
      ? await compiled({ file: path, outfile: `${path}.mjs` })
      : path;
    const program = new Program(process.execPath, [module], {
      cwd: this.folder,
      env: { ...process.env, NODE_ENV: "test", ...env },
    });
    this.#running.add(program);
    return program;
  }

  remove(): void {
    for (const program of this.#running) program.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }
}
