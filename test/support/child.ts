import { type ChildProcess, execFile, fork, spawn } from "node:child_process";
import { on, once } from "node:events";
import { fileURLToPath } from "node:url";
import { atExit } from "./at-exit.ts";
import { compiled } from "./compiled.ts";
import { until } from "./until.ts";

export interface Ended {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** The address of a source file of the package, for an `import` in the code of `runChild`. */
export function sourceUrl(path: string): string {
  return new URL(`../../src/${path}`, import.meta.url).href;
}

/** Runs an ES module of TypeScript in a process of its own; at most 120 s. */
export async function runChild(code: string, env: Record<string, string> = {}): Promise<Ended> {
  const args = [await compiled({ code })];
  const options = { env: { ...process.env, ...env }, timeout: 120_000 };
  return new Promise((resolve) => {
    execFile(process.execPath, args, options, (error, stdout, stderr) => {
      resolve({ code: error === null ? 0 : Number(error.code ?? -1), stdout, stderr });
    });
  });
}

const running = new Map<ChildProcess, NodeJS.Signals>();
atExit(endAll);

/** Ends what a failed test has left behind. */
export function endAll(): void {
  for (const [child, signal] of running) child.kill(signal);
}

/** Resolves when it has ended, and all that it printed was read. */
async function endOf(child: ChildProcess, signal: NodeJS.Signals = "SIGKILL") {
  running.set(child, signal);
  const [code, signalled] = await once(child, "close").finally(() => running.delete(child));
  return { code, signal: signalled } as { code: number | null; signal: NodeJS.Signals | null };
}

export interface ChildOptions {
  readonly flags?: readonly string[];
  readonly env?: NodeJS.ProcessEnv;
}

/** A program in a process of its own, with a channel; it ends when this process ends. */
export class Child<From extends object, To extends object = never> {
  /** Its code and signal, as soon as it has ended. */
  readonly exit: Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
  readonly #child: ChildProcess;
  #errors = "";

  /** @param program the address of a TypeScript file, or the path of what `compiled` has made */
  constructor(
    program: URL | string,
    args: readonly string[],
    { flags = [], env = {} }: ChildOptions = {},
  ) {
    const [path, loader] =
      typeof program === "string" ? [program, []] : [fileURLToPath(program), ["--import", "tsx"]];
    this.#child = fork(path, args, {
      execArgv: [...loader, ...flags],
      env: { ...process.env, ...env },
      stdio: ["ignore", "ignore", "pipe", "ipc"],
    });
    this.#child.stderr?.on("data", (chunk: Buffer) => {
      this.#errors = `${this.#errors}${chunk}`.slice(-20_000);
    });
    this.exit = endOf(this.#child);
  }

  get pid(): number {
    return this.#child.pid as number;
  }

  get hasEnded(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }

  onMessage(listener: (message: From) => void): void {
    this.#child.on("message", listener);
  }

  /**
   * The next message that is sought; rejects with what it wrote on its standard error if it ends
   * before, or is silent.
   */
  async next(patienceMs = 300_000, isSought = (_message: From) => true): Promise<From> {
    const over = new AbortController();
    const late = setTimeout(() => this.signal("SIGKILL"), patienceMs);
    try {
      const message = this.#sought(isSought, over);
      const ended = this.exit.then(({ code, signal }) => {
        throw new Error(
          `${this.#child.spawnargs.join(" ")} ended: ${code ?? signal}\n${this.#errors}`,
        );
      });
      return await Promise.race([message, ended]);
    } finally {
      clearTimeout(late);
      over.abort();
    }
  }

  async #sought(isSought: (message: From) => boolean, over: AbortController): Promise<From> {
    for await (const [message] of on(this.#child, "message", over)) {
      if (isSought(message)) return message;
    }
    throw new Error("its messages have ended");
  }

  /** @param lost called if the child has ended, also where its exit has not been heard of. */
  send(message: To, lost = () => {}): void {
    this.#child.send(message, (error) => {
      if (error) lost();
    });
  }

  signal(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  async kill(): Promise<void> {
    if (!this.hasEnded) this.signal("SIGKILL");
    await this.exit;
  }
}

export interface ProgramOptions {
  readonly cwd?: string | undefined;
  /** The whole environment. */
  readonly env?: NodeJS.ProcessEnv;
  /** For a program that has servers of its own to end. @defaultValue SIGKILL */
  readonly endedBy?: NodeJS.Signals;
}

/** Any program in a process of its own, and what it prints; it ends when this process ends. */
export class Program {
  /** The exit code, or the signal that ended it; rejects if there is no such program. */
  readonly ended: Promise<number | string>;
  readonly #child: ChildProcess;
  #output = "";

  constructor(
    program: string,
    args: readonly string[],
    { cwd, env = process.env, endedBy }: ProgramOptions = {},
  ) {
    this.#child = spawn(program, args, { cwd, env, stdio: ["ignore", "pipe", "pipe"] });
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      stream?.on("data", (chunk: Buffer) => {
        this.#output += chunk.toString();
      });
    }
    this.ended = endOf(this.#child, endedBy).then(({ code, signal }) => code ?? String(signal));
    // Heard by `until`, too.
    this.ended.catch((error: Error) => {
      this.#output += error.message;
    });
  }

  get hasEnded(): boolean {
    return !running.has(this.#child);
  }

  /** Everything that was printed so far. */
  output(): string {
    return this.#output;
  }

  /** Resolves with the match as soon as it was printed. */
  async prints(pattern: RegExp): Promise<RegExpExecArray> {
    return await this.until(() => pattern.exec(this.#output), `to print ${pattern}`);
  }

  /** Resolves as soon as `found` finds something; rejects with what was printed if it ends before. */
  async until<Found>(found: () => Found | Promise<Found>, what: string, boundMs = 300_000) {
    const look = async () => {
      const isOver = this.hasEnded;
      const seen = await found();
      if (isOver && !seen) throw new Error("it ended");
      return seen;
    };
    return await until(look, { what, boundMs, everyMs: 20 }).catch((error) => {
      const name = this.#child.spawnargs.join(" ");
      throw new Error(`waiting for ${name} ${what}: ${error.message}\n${this.#output}`);
    });
  }

  kill(signal: NodeJS.Signals = "SIGKILL"): void {
    this.#child.kill(signal);
  }
}
