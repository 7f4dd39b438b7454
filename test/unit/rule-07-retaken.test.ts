import { afterEach, expect, test } from "vitest";
import { type AcquireRequest, type LockStore, MemoryStore } from "../../src/index.ts";
import { asking } from "../support/asking.ts";
import { freshUser } from "../support/ids.ts";
import { acquired, closeLocks, commandOf, openLock } from "../support/locks.ts";
import { until } from "../support/until.ts";

afterEach(closeLocks);

/** A store whose first copy is held up, and whose clock lets that copy take effect much later. */
class SlowFirstCopy extends MemoryStore implements LockStore {
  landHeldCopy: (() => void) | undefined;
  connectionCameUp: () => void = () => {};

  override acquire(copy: AcquireRequest): void {
    if (this.landHeldCopy !== undefined) {
      super.acquire(copy);
      return;
    }
    copy.deadlineMs = Number.POSITIVE_INFINITY;
    this.landHeldCopy = () => super.acquire(copy);
  }

  override attach(onReady?: () => void): () => Promise<void> {
    this.connectionCameUp = onReady ?? (() => {});
    return super.attach();
  }
}

test("rule 7: a lease whose late copy takes the key again after a rival is lost all the same", async () => {
  const store = new SlowFirstCopy();
  const times = { ttlMs: 1_000, acquireTimeoutMs: 500, commandTimeoutMs: 20 };
  const [lock, user] = [openLock({ store, ...times }), freshUser()];
  const { lease } = acquired(await lock.acquire(user));
  // The process stands still beyond its lease, so that no timer of it runs.
  const from = performance.now();
  while (performance.now() - from < 1_100);
  const rival = commandOf({ key: lease.key });
  const found = [asking(store).acquire(rival).reply, asking(store).release(rival).reply];
  store.landHeldCopy?.();
  // The extend is answered before the timer that would have told of the loss.
  store.connectionCameUp();
  expect((await Promise.all(found)).map(({ kind }) => kind)).toEqual(["taken", "done"]);
  await until(() => lease.signal.aborted, { what: "the holder to be told", boundMs: 300 });
  expect(lease.remainingMs()).toBe(0);
});
