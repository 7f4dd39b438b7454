import { fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { compiled } from "../../support/compiled.ts";
import type { HuntPlan, HuntResult } from "./hunt.ts";

/** @param texts of source files, in place of what is in them. */
export async function huntElsewhere(
  plan: HuntPlan,
  texts?: ReadonlyMap<string, string>,
): Promise<HuntResult> {
  const file = fileURLToPath(new URL("./hunt-process.ts", import.meta.url));
  const program = await compiled({ file, texts });
  return new Promise((resolve, reject) => {
    const child = fork(program, [JSON.stringify(plan)], {
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
