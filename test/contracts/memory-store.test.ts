import { afterEach, describe } from "vitest";
import { MemoryStore } from "../../src/index.ts";
import { carriesALock } from "../support/lock-contract.ts";
import { closeLocks } from "../support/locks.ts";
import { isSeenAndFreed } from "../support/on-call-contract.ts";
import { runsOnce } from "../support/once-call.ts";
import { keepsAnswers } from "../support/once-contract.ts";
import { keepsTheContract } from "../support/store-contract.ts";

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
