import { afterAll, describe, expect, test } from "vitest";
import { submitGuard } from "../../src/fetch/index.ts";
import { MemoryStore, SubmitLock } from "../../src/index.ts";
import { freshUser } from "../support/ids.ts";
import { acquired } from "../support/locks.ts";

const store = new MemoryStore();
const lock = new SubmitLock({ store });
const otherProcess = new SubmitLock({ store });
afterAll(async () => {
  await lock.close({ timeoutMs: 0 });
  await otherProcess.close({ timeoutMs: 0 });
});

type Run = (user: string, work: () => Promise<unknown>) => Promise<unknown>;

let ids = 0;
const calls: [name: string, run: Run][] = [
  ["withLock", (user, work) => lock.withLock(user, work)],
  ["withLock that waits", (user, work) => lock.withLock(user, { waitMs: 30 }, work)],
  ["once", (user, work) => lock.once(user, { id: `${++ids}` }, work)],
];

const holders: [name: string, run: Run][] = [
  ...calls,
  [
    "a guarded request",
    async (user, work) => {
      let error: unknown;
      const guard = submitGuard({ lock, userId: () => user });
      const handler = guard.protect(async () => {
        await work().catch((thrown: unknown) => {
          error = thrown;
        });
        return new Response();
      });
      await handler(new Request("http://shop.test/orders", { method: "POST" }));
      if (error !== undefined) throw error;
    },
  ],
  [
    "acquire",
    async (user, work) => {
      const { lease } = acquired(await lock.acquire(user));
      await work().finally(() => lease.release());
    },
  ],
];

const ours = "in this process. If that is the request or the work that asks, use the lease it has";

test("once inside of once for the same submission says so, too", async () => {
  const [user, submission] = [freshUser(), { id: "the cart" }];
  const again = () => lock.once(user, submission, async () => 7, { waitMs: 0 });
  await expect(lock.once(user, submission, again)).rejects.toMatchObject({
    sameSubmission: true,
    message: expect.stringMatching(new RegExp(`^the same submission is in flight ${ours}`)),
  });
});

describe.each(holders)("inside %s", (_holder, hold) => {
  test.each(calls)("%s for the same user says that the holder is near", async (_name, call) => {
    const user = freshUser();
    const refused = hold(user, () => call(user, async () => 7));
    await expect(refused).rejects.toMatchObject({
      code: "SUBMIT_LOCK_CONTENDED",
      message: expect.stringContaining(ours),
    });
  });

  test.each(calls)("%s for another user runs", async (_name, call) => {
    await hold(freshUser(), () => call(freshUser(), async () => 7));
  });
});

test.each(calls)("%s says nothing of the kind where another process holds", async (_name, call) => {
  const user = freshUser();
  acquired(await otherProcess.acquire(user));
  const refused = await call(user, async () => 7).catch(String);
  expect(refused).toMatch(/has another holder$|is in flight$/);
});

test.each(calls)("%s says nothing of the kind in a cooldown", async (_name, call) => {
  const user = freshUser();
  await acquired(await lock.acquire(user)).lease.release({ cooldownMs: 5_000 });
  expect(await call(user, async () => 7).catch(String)).toContain("cooldown");
});
