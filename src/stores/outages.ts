import type { LockRequest, NoAnswer } from "../lock/store.ts";
import { invalidOption, ownError } from "../validation.ts";

/**
 * An outage that {@link MemoryStore.play} plays.
 *
 * - `"silent"`: requests are not executed, and never answered.
 * - `"unreachable"`: requests are not sent, which the lock learns at once.
 * - `"replies-lost"`: requests are executed, and their replies are lost.
 */
export type Outage = "silent" | "unreachable" | "replies-lost";

const outages: readonly (Outage | "none")[] = ["silent", "unreachable", "replies-lost", "none"];

export function checkOutage(outage: Outage | "none"): Outage | "none" {
  if (outages.includes(outage)) return outage;
  throw invalidOption("outage", outages.map((each) => `"${each}"`).join(", "), outage);
}

/** Returns the request to execute; `undefined` where the outage lets no request through. */
export function through<Request extends LockRequest<never>>(
  outage: Outage | "none",
  request: Request,
): Request | undefined {
  // Every request is executed now or never, so none is in flight.
  request.deadlineMs = Number.NEGATIVE_INFINITY;
  if (outage === "none") return request;
  const fail = (reply: NoAnswer) => (request as LockRequest<NoAnswer>).answer(reply);
  const reason = "MemoryStore plays an outage";
  if (outage === "unreachable") fail({ kind: "unsent", reason });
  if (outage !== "replies-lost") return undefined;
  return { ...request, answer: () => fail({ kind: "unknown", cause: ownError(reason) }) };
}
