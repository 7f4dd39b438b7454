import type { StoredAnswer } from "../lock/record.ts";
import { invalidOption } from "../validation.ts";

/**
 * Which answers are kept, and repeated to a retry; after any other one, a retry runs.
 *
 * - `"success"`: 2xx and 3xx.
 * - `"final"`: 4xx, too, but 401, 403, 407, 408, 409, 421, 423, 425 and 429, which speak of the
 *   moment or of who asked.
 * - A function that returns whether to keep this answer. It is not asked about 5xx, which is never
 *   kept: nobody knows what was done.
 */
export type StorePolicy = "success" | "final" | ((answer: StoredAnswer) => boolean);

const passing = new Set([401, 403, 407, 408, 409, 421, 423, 425, 429]);

/** @throws InvalidOptionError where a function returns no boolean, and what it throws itself. */
export function isStored(policy: StorePolicy, answer: StoredAnswer): boolean {
  const { status } = answer;
  // 1xx is no answer yet.
  if (status < 200 || status >= 500) return false;
  if (policy === "success") return status < 400;
  if (policy === "final") return !passing.has(status);
  const verdict: unknown = policy(answer);
  // A promise is truthy, and would keep whatever it was asked about.
  if (typeof verdict !== "boolean") {
    throw invalidOption("idempotency.store", "a function that returns true or false", verdict);
  }
  return verdict;
}
