import { Child } from "../../support/child.ts";
import { compiled } from "../../support/compiled.ts";
import type { HuntPlan, HuntResult } from "./hunt.ts";

/** @param texts of source files, in place of what is in them. */
export async function huntElsewhere(
  plan: HuntPlan,
  texts?: ReadonlyMap<string, string>,
): Promise<HuntResult> {
  const file = new URL("./hunt-process.ts", import.meta.url);
  const program = await compiled({ file, texts });
  const hours = 10 * 3_600_000;
  return await new Child<HuntResult>(program, [JSON.stringify(plan)]).next(hours);
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
