// @slow: begins first.

import { afterEach, describe } from "vitest";
import { MemoryStore } from "../../src/index.ts";
import { carriesALock } from "./lock-contract.ts";
import { closeLocks } from "./locks.ts";
import { isSeenAndFreed } from "./on-call-contract.ts";
import { runsOnce } from "./once-call.ts";
import { keepsAnswers } from "./once-contract.ts";
import { keepsTheContract } from "./store-contract.ts";

afterEach(closeLocks);

// Not among the unit tests, which nobody waits for: locks have to run out here.
describe("MemoryStore", () => {
  const store = new MemoryStore();
  keepsTheContract(() => store);
  carriesALock(() => store);
  keepsAnswers(() => store);
  isSeenAndFreed(() => store);
  runsOnce(() => store);
});
