import { fileURLToPath } from "node:url";
import { Program } from "../../support/child.ts";

const ROOT = fileURLToPath(new URL("../../..", import.meta.url));

/**
 * An example that runs as its reader would run it, on what `npm run build` left in `dist`.
 *
 * @param env what is set beside the environment of the tests.
 */
export function runExample(
  file: string,
  { args = [], env = {} }: { args?: string[]; env?: NodeJS.ProcessEnv } = {},
): Program {
  const { PORT: _p, REDIS_URL: _r, DATABASE_URL: _d, NODE_ENV: _n, ...inherited } = process.env;
  return new Program(process.execPath, ["--import", "tsx", file, ...args], {
    cwd: ROOT,
    env: { ...inherited, ...env },
    // It has servers of its own to end.
    endedBy: "SIGTERM",
  });
}
