import { execFile } from "node:child_process";
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

/** Runs an ES module in a process of its own that understands TypeScript; at most 25 s. */
export async function runChild(code: string, env: Record<string, string> = {}): Promise<Ended> {
  const args = [await compiled({ code })];
  const options = { env: { ...process.env, ...env }, timeout: 25_000 };
  return new Promise((resolve) => {
    execFile(process.execPath, args, options, (error, stdout, stderr) => {
      resolve({ code: error === null ? 0 : Number(error.code ?? -1), stdout, stderr });
    });
  });
}
