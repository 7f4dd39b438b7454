import { fork } from "node:child_process";
import { createRequire } from "node:module";
import { fileURLToPath, pathToFileURL } from "node:url";
import type { HuntPlan, HuntResult } from "./hunt.ts";

const loader = pathToFileURL(createRequire(import.meta.url).resolve("tsx")).href;
const huntProcess = fileURLToPath(new URL("./hunt-process.ts", import.meta.url));

/** @param program another copy of `hunt-process.ts`, with sources of its own. */
export function huntElsewhere(plan: HuntPlan, program: string = huntProcess): Promise<HuntResult> {
  return new Promise((resolve, reject) => {
    const child = fork(program, [JSON.stringify(plan)], {
      execArgv: ["--import", loader],
      stdio: ["ignore", "ignore", "pipe", "ipc"],
    });
    let complaint = "";
    child.stderr?.on("data", (chunk) => {
      complaint += String(chunk);
    });
    let result: HuntResult | undefined;
    child.on("message", (message) => {
      result = message as HuntResult;
    });
    child.on("error", reject);
    child.on("close", (code) => {
      if (result === undefined) reject(new Error(`a hunt ended with ${code}: ${complaint}`));
      else resolve(result);
    });
  });
}

/** Splits the runs over several processes, each with a seed of its own. */
export async function huntInParallel(
  runs: number,
  seed: number,
  processes: number,
): Promise<HuntResult[]> {
  const share = Math.ceil(runs / processes);
  return await Promise.all(
    Array.from({ length: processes }, (_, index) =>
      huntElsewhere({ runs: share, seed: seed + index, shrinks: true }),
    ),
  );
}
