import { AsyncLocalStorage } from "node:async_hooks";
import { afterEach, expect, test } from "vitest";
import { type LockStore, MemoryStore } from "../../src/index.ts";
import { runChild, sourceUrl } from "../support/child.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, leaseOf, openLock } from "../support/locks.ts";
import { until } from "../support/until.ts";

afterEach(closeLocks);

test("an extend never runs in the asynchronous context of another request", async () => {
  const context = new AsyncLocalStorage<string>();
  const memory = new MemoryStore();
  const extends_: { key: string; context: string | undefined }[] = [];
  const store: LockStore = {
    acquire: (request) => memory.acquire(request),
    extend: (request) => {
      extends_.push({ key: request.command.key, context: context.getStore() });
      memory.extend(request);
    },
    release: (request) => memory.release(request),
    attach: () => memory.attach(),
  };
  const lock = openLock({ store, ttlMs: 1_500 });
  // The first request arms the timers of the lock.
  await context.run("first request", async () => {
    await (await leaseOf(lock, freshUser())).release();
  });
  const lease = await context.run("second request", () => leaseOf(lock, freshUser()));
  await until(() => extends_.length >= 3, { what: "three extends" });
  await lease.release();
  expect(extends_.map(({ key }) => key)).toContain(lease.key);
  expect(extends_.map((each) => each.context)).not.toContain("first request");
});

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
