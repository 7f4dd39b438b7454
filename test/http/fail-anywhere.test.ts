import { expect, test } from "vitest";
import { cast, story } from "../lab/nets/nets.ts";

// `npm run lab -- fail-anywhere` takes more programs, and every major of a framework.
test("P1 and P5: each foreign call fails in each way, and strands nobody", async () => {
  const haul = await cast("fail-anywhere", { runs: 200, seed: 20_260_101, isStrict: false });
  if (haul.failure !== undefined) expect.fail(story("fail-anywhere", haul));
});
