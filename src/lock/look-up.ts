import { within } from "../within.ts";
import { completedOf, type StoredAnswer } from "./record.ts";
import { write } from "./runtime.ts";
import type { AcquireReply, LockCommand, LockStore } from "./store.ts";

/** The state of a submission. */
export type LookUp =
  /** It is not being processed, and no answer is kept. */
  | { readonly outcome: "none" }
  /** It is being processed. */
  | { readonly outcome: "in-flight" }
  | { readonly outcome: "completed"; readonly answer: StoredAnswer; readonly ageMs: number }
  | { readonly outcome: "mismatched"; readonly inFlight: boolean }
  /** The store did not say. */
  | { readonly outcome: "unknown" };

/** One request that takes nothing. Settles within `commandTimeoutMs`. */
export async function lookUp(store: LockStore, command: LockCommand): Promise<LookUp> {
  const reply = await within(
    command.times.commandTimeoutMs,
    new Promise<AcquireReply>((answer) =>
      write(store, "acquire", { command, deadlineMs: undefined, onlyLooks: true, answer }),
    ),
  );
  switch (reply?.kind) {
    case "completed": {
      const completed = completedOf(reply);
      return completed === undefined
        ? { outcome: "unknown" }
        : { outcome: "completed", ...completed };
    }
    case "mismatched":
      return { outcome: "mismatched", inFlight: reply.inFlight };
    case "contended":
      return { outcome: reply.sameSubmission === true ? "in-flight" : "none" };
    case "outOfWindow":
      return { outcome: "none" };
    default:
      return { outcome: "unknown" };
  }
}
