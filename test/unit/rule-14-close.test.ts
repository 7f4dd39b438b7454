import { afterEach, describe, expect, test } from "vitest";
import { MemoryStore } from "../../src/index.ts";
import { VirtualFixture } from "../lab/simulation/virtual-fixture.ts";
import { runChild, sourceUrl } from "../support/child.ts";
import { closeLocks, leaseOf, openLock } from "../support/locks.ts";

afterEach(closeLocks);

describe("rule 14: close", () => {
  test("it ends within its bounds when Redis is silent", async () => {
    const fixture = new VirtualFixture({ acquireTimeoutMs: 300 });
    await fixture.pass(10);
    const held = await fixture.run(() => leaseOf(fixture.lock, "held"));
    const released = await fixture.run(() => leaseOf(fixture.lock, "released"));
    const { signal } = fixture.look(() => held);
    fixture.server.machine.pause(1_000_000);
    const from = fixture.now;
    await fixture.run(() => {
      void released.release();
      return fixture.lock.close({ timeoutMs: 100 });
    });
    // What is held has 100 ms, and what is retired as long as any of its requests could be late.
    expect(fixture.now - from).toBeGreaterThanOrEqual(699);
    expect(fixture.now - from).toBeLessThan(720);
    expect(signal.reason).toMatchObject({ reason: "closed" });
  });

  test("it takes a bound, and checks it", async () => {
    const lock = openLock({ store: new MemoryStore() });
    for (const timeoutMs of [-1, 0.5, 600_001, Number.NaN]) {
      await expect(lock.close({ timeoutMs })).rejects.toMatchObject({
        code: "SUBMIT_LOCK_INVALID_OPTION",
      });
    }
    await expect(lock.close({ timeout: 1 } as object)).rejects.toThrow(/unknown option "timeout"/);
    // Nothing of that has closed it.
    await lock.check();
  });

  test("a lease that nobody released keeps no process alive", async () => {
    const { code, stdout } = await runChild(`
      const { MemoryStore, SubmitLock } = await import(${JSON.stringify(sourceUrl("index.ts"))});
      await new SubmitLock({ store: new MemoryStore() }).acquire("42");
      console.log("held");`);
    expect({ code, stdout }).toEqual({ code: 0, stdout: "held\n" });
  });
});
