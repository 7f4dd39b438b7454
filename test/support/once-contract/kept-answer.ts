import { expect } from "vitest";
import type { AcquireReply, LockCommand } from "../../../src/index.ts";
import type { Asking } from "../asking.ts";
import { commandOf } from "../locks.ts";
import { onceOf, recordOf } from "../submissions.ts";

/** An owner whose answer a store keeps, and the store's own time, by which it keeps it. */

/** The same submission by another process. */
export function rivalOf({ key, submission }: LockCommand): LockCommand {
  return commandOf({ key, submission });
}

/** An owner whose answer is kept, for a minute unless another time is given. */
export async function completed(
  store: Asking,
  given: Partial<LockCommand> = {},
  expiresAtMs?: number,
) {
  const mine = onceOf(given);
  const storeTimeMs = timeOf(await store.acquire(mine).reply);
  const plan = {
    record: recordOf(mine),
    expiresAtMs: expiresAtMs ?? Math.ceil(storeTimeMs) + 60_000,
  };
  expect(await store.complete(mine, plan).reply).toMatchObject({ kind: "recorded" });
  return { mine, plan };
}

/** By the store's clock, so many milliseconds from now on. */
export async function timeAfter(store: Asking, inMs: number): Promise<number> {
  const reply = await store.acquire(commandOf()).reply;
  return Math.ceil(timeOf(reply)) + inMs;
}

/** The store's time of an answer. */
export function timeOf(reply: AcquireReply): number {
  if ("storeTimeMs" in reply) return reply.storeTimeMs;
  throw new Error(`no answer: ${reply.kind}`);
}
