import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { atExit } from "../../support/at-exit.ts";
import { until } from "../../support/until.ts";

const ROOT = fileURLToPath(new URL("../../..", import.meta.url));

const running = new Set<ChildProcess>();
atExit(endAll);

/** Ends what a failed test has left behind. Meant for `afterAll`. */
export function endAll(): void {
  for (const child of running) child.kill("SIGKILL");
}

/** An example that runs as its reader would run it, on what `npm run build` left in `dist`. */
export interface Example {
  /** Everything that was printed so far. */
  output(): string;
  /** Resolves with the match as soon as it was printed. */
  prints(pattern: RegExp): Promise<RegExpExecArray>;
  kill(signal: NodeJS.Signals): void;
  /** The exit code, or the signal that ended it. */
  readonly ended: Promise<number | string>;
}

/** @param env what is set beside the environment of the tests. */
export function runExample(
  file: string,
  { args = [], env = {} }: { args?: string[]; env?: Record<string, string> } = {},
): Example {
  const { PORT: _p, REDIS_URL: _r, DATABASE_URL: _d, NODE_ENV: _n, ...inherited } = process.env;
  const child = spawn(process.execPath, ["--import", "tsx", file, ...args], {
    cwd: ROOT,
    env: { ...inherited, ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  running.add(child);
  let output = "";
  const note = (chunk: Buffer) => {
    output += chunk.toString();
  };
  child.stdout.on("data", note);
  child.stderr.on("data", note);
  const ended = once(child, "close").then(([code, signal]) => {
    running.delete(child);
    return code ?? signal;
  });
  return {
    output: () => output,
    async prints(pattern) {
      const printed = until(
        () => {
          if (child.exitCode !== null && !pattern.test(output)) {
            throw new Error(`${file} ended with ${child.exitCode}:\n${output}`);
          }
          return pattern.exec(output);
        },
        { what: `${file} to print ${pattern}`, boundMs: 90_000 },
      );
      return await printed;
    },
    kill: (signal) => void child.kill(signal),
    ended,
  };
}
