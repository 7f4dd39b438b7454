import type { LockStore } from "../../src/index.ts";
import { endsEveryCall } from "./once-call/endings.ts";
import { keepsValues } from "./once-call/values.ts";
import { waitsForTheSame } from "./once-call/waiting.ts";

/** `lock.once`, on any store that keeps records. */
export function runsOnce(openStore: () => LockStore): void {
  keepsValues(openStore);
  endsEveryCall(openStore);
  waitsForTheSame(openStore);
}
