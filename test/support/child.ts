import { type ChildProcess, execFile, fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { atExit } from "./at-exit.ts";
import { compiled } from "./compiled.ts";

export interface Ended {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** The address of a source file of the package, for an `import` in the code of `runChild`. */
export function sourceUrl(path: string): string {
  return new URL(`../../src/${path}`, import.meta.url).href;
}

/** Runs an ES module of TypeScript in a process of its own; at most 25 s. */
export async function runChild(code: string, env: Record<string, string> = {}): Promise<Ended> {
  const args = [await compiled({ code })];
  const options = { env: { ...process.env, ...env }, timeout: 25_000 };
  return new Promise((resolve) => {
    execFile(process.execPath, args, options, (error, stdout, stderr) => {
      resolve({ code: error === null ? 0 : Number(error.code ?? -1), stdout, stderr });
    });
  });
}

const running = new Set<ChildProcess>();
atExit(() => {
  for (const child of running) child.kill("SIGKILL");
});

export interface ChildOptions {
  /** Flags of Node. */
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
    running.add(this.#child);
    this.#child.stderr?.on("data", (chunk: Buffer) => {
      this.#errors = `${this.#errors}${chunk}`.slice(-20_000);
    });
    this.exit = once(this.#child, "close").then(([code, signal]) => {
      running.delete(this.#child);
      return { code, signal };
    });
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

  /** The next message; rejects with what it wrote on its standard error if it ends before, or is silent. */
  async next(patienceMs = 100_000): Promise<From> {
    const over = new AbortController();
    const late = setTimeout(() => this.signal("SIGKILL"), patienceMs);
    try {
      const message = once(this.#child, "message", over);
      const ended = this.exit.then(({ code, signal }) => {
        throw new Error(
          `${this.#child.spawnargs.join(" ")} ended: ${code ?? signal}\n${this.#errors}`,
        );
      });
      return (await Promise.race([message, ended]))[0];
    } finally {
      clearTimeout(late);
      over.abort();
    }
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

  /** SIGKILL. */
  async kill(): Promise<void> {
    if (!this.hasEnded) this.signal("SIGKILL");
    await this.exit;
  }
}
