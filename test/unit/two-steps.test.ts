import { expect, test } from "vitest";
import type { AcquireReply, AcquireRequest, LockRequest } from "../../src/lock/store.ts";
import { type LookReply, TwoSteps } from "../../src/stores/redis/two-steps.ts";

const storeTimeMs = 1_800_000_000_000;
const contended = { kind: "contended", expiresInMs: 100, storeTimeMs } as const;
const outOfWindow = { kind: "outOfWindow", storeTimeMs } as const;
const unknown = { kind: "unknown", cause: new Error("the connection was lost") } as const;

/** What a request is told whose first half finds `locked`, and whose look at the record finds `found`. */
async function told(
  onlyLooks: boolean,
  locked: AcquireReply,
  found: LookReply,
): Promise<AcquireReply> {
  const lock = (request: LockRequest<AcquireReply>) => request.answer(locked);
  const never = () => expect.fail("neither is asked for");
  const look = (request: LockRequest<LookReply>) => request.answer(found);
  const steps = new TwoSteps(
    { acquire: lock, lookUp: lock, look, record: never, release: never },
    () => 1,
  );
  const times = { ttlMs: 1_000, maxHoldMs: 1_000, acquireTimeoutMs: 300, commandTimeoutMs: 60 };
  const command = { key: "lock:7", ownerId: "", times, holder: "", submission: undefined };
  return await new Promise((answer) => {
    const request: AcquireRequest = { command, onlyLooks, deadlineMs: undefined, answer };
    // The first write goes in one step, and its repetition in two.
    expect(steps.acquire(request)).toBe(false);
    expect(steps.acquire(request)).toBe(true);
  });
}

test("rule 16: a look-up in two steps does not call unread records absent", async () => {
  expect(await told(true, outOfWindow, unknown)).toBe(unknown);
  expect(await told(true, contended, unknown)).toBe(unknown);
  expect(await told(true, outOfWindow, { kind: "none" })).toBe(outOfWindow);
});

test("an acquire in two steps is contended, whether or not the record could be read", async () => {
  expect(await told(false, contended, unknown)).toBe(contended);
  expect(await told(false, contended, { kind: "none" })).toBe(contended);
});
