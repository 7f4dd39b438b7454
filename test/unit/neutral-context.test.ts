import { expect, test } from "vitest";
import { runChild, sourceUrl } from "../support/child.ts";

// Which context a call of the store has: test/redis/redis-context.test.ts.
test("a request that has ended does not stay in memory with its asynchronous context", async () => {
  const { stdout } = await runChild(
    `
    import { AsyncLocalStorage } from "node:async_hooks";
    import { setTimeout as sleep } from "node:timers/promises";
    const { MemoryStore, SubmitLock } = await import(${JSON.stringify(sourceUrl("index.ts"))});
    const context = new AsyncLocalStorage();
    const lock = new SubmitLock({ store: new MemoryStore() });
    let kept;
    await (async () => {
      const request = { large: new Uint8Array(1024) };
      kept = new WeakRef(request);
      await context.run(request, async () => {
        const { lease } = await lock.acquire("42");
        await lease.release();
      });
    })();
    for (let round = 0; round < 50 && kept.deref() !== undefined; round++) {
      await sleep(20);
      globalThis.gc();
    }
    console.log(kept.deref() === undefined ? "collected" : "kept");
    await lock.close();`,
    { NODE_OPTIONS: "--expose-gc" },
  );
  expect(stdout.trim()).toBe("collected");
});

// As `jest --detectOpenHandles` counts them.
test("a process that has used a lock has no open handle of the package", async () => {
  const { stdout } = await runChild(`
    import { createHook } from "node:async_hooks";
    const open = new Map();
    const hook = createHook({
      init: (id, type) => open.set(id, type),
      destroy: (id) => open.delete(id),
    }).enable();
    const { MemoryStore, SubmitLock } = await import(${JSON.stringify(sourceUrl("index.ts"))});
    const lock = new SubmitLock({ store: new MemoryStore() });
    const { lease } = await lock.acquire("42");
    await lease.release();
    await lock.close();
    await new Promise((resolve) => setTimeout(resolve, 50));
    hook.disable();
    console.log([...open.values()].filter((type) => type === "submit-lock").length);`);
  expect(stdout.trim()).toBe("0");
});
