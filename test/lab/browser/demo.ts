import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { atExit } from "../../support/at-exit.ts";
import { until } from "../../support/until.ts";

const ROOT = fileURLToPath(new URL("../../..", import.meta.url));

/** `npm run demo`, without npm: what is ended is then the demo itself. */
export interface RunningDemo {
  readonly url: string;
  output(): string;
  end(): Promise<number | null>;
}

/** @param env what is set beside the environment of this process. */
export async function startDemo(
  file: string,
  env: Record<string, string | undefined> = {},
): Promise<RunningDemo> {
  const child: ChildProcess = spawn(process.execPath, ["--import", "tsx", file], {
    cwd: ROOT,
    env: { ...process.env, PORT: "0", REDIS_URL: "", DATABASE_URL: "", ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  // Not killed: it has a Redis and servers of its own to end.
  atExit(() => void child.kill("SIGTERM"));
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on("data", (chunk: Buffer) => {
      output += chunk.toString();
    });
  }
  await until(
    () => {
      if (child.exitCode !== null) throw new Error(`${file} ended:\n${output}`);
      return output.includes("it is your turn");
    },
    { what: `${file} to be ready`, boundMs: 120_000, everyMs: 50 },
  );
  const [, url] = /(http:\/\/127\.0\.0\.1:\d+)\n/.exec(output) ?? [];
  return {
    url: url as string,
    output: () => output,
    async end() {
      const ended = once(child, "exit");
      child.kill("SIGTERM");
      const [code] = await ended;
      return code;
    },
  };
}
