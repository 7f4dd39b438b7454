import type { LockStore } from "../../src/index.ts";
import { findsSubmissions } from "./once-contract/acquire.ts";
import { keepsRecords } from "./once-contract/complete.ts";
import { leavesCooldowns } from "./once-contract/cooldown.ts";
import { raisesFencingTokens } from "./once-contract/fencing-token.ts";

/** What the lock relies on where a store keeps answers. */
export function keepsAnswers(openStore: () => LockStore): void {
  findsSubmissions(openStore);
  keepsRecords(openStore);
  leavesCooldowns(openStore);
  raisesFencingTokens(openStore);
}
