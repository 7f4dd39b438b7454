import { afterEach, describe, expect, test } from "vitest";
import { MemoryStore } from "../../src/index.ts";
import { runChild, sourceUrl } from "../support/child.ts";
import { closeLocks, openLock } from "../support/locks.ts";

afterEach(closeLocks);

describe("rule 14: close", () => {
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
