import { afterEach, describe, expect, test } from "vitest";
import {
  type LockStore,
  MemoryStore,
  type OnceOptions,
  type Submission,
  type UserId,
} from "../../src/index.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, openLock } from "../support/locks.ts";

afterEach(closeLocks);

const submission: Submission = { id: "cart 7" };
const never = () => expect.fail("it ran");

describe("an argument of once is refused, and nothing runs:", () => {
  test.each<[what: string, options: unknown, said: string]>([
    ["a waitMs below 0", { waitMs: -1 }, "waitMs: expected a whole number of milliseconds from 0"],
    ["a waitMs above 30 000", { waitMs: 30_001 }, "to 30000, got 30001"],
    ["a waitMs that is a string", { waitMs: "1" }, "waitMs"],
    ["an unknown option", { wait: 1 }, 'the unknown option "wait"'],
    ["a function", never, "once options: expected an object, got a function"],
  ])("%s", async (_what, options, said) => {
    const lock = openLock({ store: new MemoryStore() });
    const call = lock.once(freshUser(), submission, never, options as OnceOptions);
    await expect(call).rejects.toMatchObject({ code: "SUBMIT_LOCK_INVALID_OPTION" });
    await expect(call).rejects.toThrow(said);
  });

  test.each<[what: string, submission: unknown, said: string]>([
    ["no submission", undefined, "submission options: expected an object, got undefined"],
    ["an empty id", { id: "" }, "submission.id"],
    ["an unknown member", { id: "a", key: "b" }, 'the unknown option "key"'],
    ["a retainMs of 0", { id: "a", retainMs: 0 }, "submission.retainMs"],
  ])("%s", async (_what, given, said) => {
    const lock = openLock({ store: new MemoryStore() });
    const call = lock.once(freshUser(), given as Submission, never);
    await expect(call).rejects.toMatchObject({ code: "SUBMIT_LOCK_INVALID_OPTION" });
    await expect(call).rejects.toThrow(said);
  });

  test("work that is no function, and a user id that is an object", async () => {
    const lock = openLock({ store: new MemoryStore() });
    const noWork = lock.once(freshUser(), submission, {} as never);
    await expect(noWork).rejects.toThrow("work: expected a function, got an object");
    const noUser = lock.once({} as UserId, submission, never);
    await expect(noUser).rejects.toMatchObject({ code: "SUBMIT_LOCK_INVALID_USER_ID" });
  });

  test("a store that keeps no records", async () => {
    const store: LockStore = Object.assign(new MemoryStore(), { complete: undefined });
    const call = openLock({ store }).once(freshUser(), submission, never);
    await expect(call).rejects.toMatchObject({ code: "SUBMIT_LOCK_INVALID_OPTION" });
    await expect(call).rejects.toThrow("expected a lock whose store keeps answers");
  });
});

test("withLock says whether a cooldown kept it out", async () => {
  const [lock, user] = [openLock({ store: new MemoryStore() }), freshUser()];
  await lock.withLock(user, async (lease) => {
    await lease.release({ cooldownMs: 5_000 });
  });
  const error = await lock.withLock(user, never).catch((reason: unknown) => reason);
  expect(error).toMatchObject({ code: "SUBMIT_LOCK_CONTENDED", isCooldown: true, hasEnded: false });
});
