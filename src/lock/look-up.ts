import { within } from "../within.ts";
import type { StoredAnswer } from "./answer.ts";
import { decodeRecord } from "./record.ts";
import type { AcquireReply, LockCommand, LockStore } from "./store.ts";

/** What is known of a submission. */
export type LookUp =
  /** Nobody is at work on it, and no answer is kept. */
  | { readonly outcome: "none" }
  /** Somebody is at work on it. */
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
      store.acquire({ command, deadlineMs: undefined, onlyLooks: true, answer }),
    ),
  );
  switch (reply?.kind) {
    case "completed": {
      const decoded = decodeRecord(reply.record);
      if (decoded === undefined) return { outcome: "unknown" };
      const ageMs = Math.max(0, reply.storeTimeMs - decoded.createdMs);
      return { outcome: "completed", answer: decoded.answer, ageMs };
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
