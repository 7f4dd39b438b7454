import { afterEach, describe, expect, test } from "vitest";
import { type LockStore, MemoryStore, type Submission, type UserId } from "../../src/index.ts";
import { VirtualFixture } from "../lab/simulation/virtual-fixture.ts";
import { runChild, sourceUrl } from "../support/child.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, leaseOf, openLock } from "../support/locks.ts";

afterEach(closeLocks);

const submission: Submission = { id: "cart 7" };
const never = () => expect.fail("it ran");

describe("once is refused, and nothing runs, for", () => {
  test("a user id that is an object", async () => {
    const lock = openLock({ store: new MemoryStore() });
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

describe("rule 14: close", () => {
  test("it ends within its bounds when Redis is silent", async () => {
    const fixture = new VirtualFixture({ acquireTimeoutMs: 300 });
    await fixture.pass(10);
    const held = await fixture.run(() => leaseOf(fixture.lock, "held"));
    const released = await fixture.run(() => leaseOf(fixture.lock, "released"));
    const signal = fixture.look(() => held.signal);
    fixture.server.machine.pause(1_000_000);
    const from = fixture.now;
    await fixture.run(() => {
      void released.release();
      return fixture.lock.close({ timeoutMs: 100 });
    });
    // What is held has 100 ms, and what is retired as long as any of its requests could be late.
    expect(fixture.now - from).toBeGreaterThanOrEqual(699);
    expect(fixture.now - from).toBeLessThan(720);
    expect(fixture.look(() => signal.reason)).toMatchObject({ reason: "closed" });
  });

  test("a lease that nobody released keeps no process alive", async () => {
    const { code, stdout } = await runChild(`
      const { MemoryStore, SubmitLock } = await import(${JSON.stringify(sourceUrl("index.ts"))});
      await new SubmitLock({ store: new MemoryStore() }).acquire("42");
      console.log("held");`);
    expect({ code, stdout }).toEqual({ code: 0, stdout: "held\n" });
  });
});
