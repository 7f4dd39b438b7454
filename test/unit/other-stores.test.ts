import { channel } from "node:diagnostics_channel";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, test } from "vitest";
import {
  type AcquireRequest,
  type Lease,
  type LockRequest,
  type LockStore,
  MemoryStore,
  type OwnedReply,
  type ReleaseRequest,
} from "../../src/index.ts";
import { asking } from "../support/asking.ts";
import { freshUser } from "../support/ids.ts";
import { acquired, causeOf, closeLocks, commandOf, leaseOf, openLock } from "../support/locks.ts";
import { answer, foundBy, submissionOf, submit } from "../support/submissions.ts";
import { until } from "../support/until.ts";

afterEach(closeLocks);

type Method = "acquire" | "extend" | "release";

/** A store that answers at once, as a third party may write it; some of its methods throw for a while. */
class OddStore extends MemoryStore implements LockStore {
  readonly throwing = new Map<Method, number>();
  connectionCameUp: () => void = () => {};
  extends = 0;

  override acquire(copy: AcquireRequest): void {
    this.#mayThrow("acquire");
    super.acquire(copy);
  }

  override extend(copy: LockRequest<OwnedReply>): void {
    this.extends++;
    this.#mayThrow("extend");
    super.extend(copy);
  }

  override release(copy: ReleaseRequest): void {
    this.#mayThrow("release");
    super.release(copy);
  }

  override attach(onReady?: () => void): () => Promise<void> {
    this.connectionCameUp = onReady ?? (() => {});
    return super.attach();
  }

  #mayThrow(method: Method): void {
    const left = this.throwing.get(method) ?? 0;
    this.throwing.set(method, left - 1);
    if (left > 0) throw new Error(`${method} threw`);
  }
}

describe("a store that throws counts as one that does not know", () => {
  test("an acquire that threw once is confirmed, and retired at its release", async () => {
    const store = new OddStore();
    const lock = openLock({ store });
    store.throwing.set("acquire", 1);
    const { lease, confirmed } = acquired(await lock.acquire(freshUser()));
    expect(confirmed).toBe(true);
    expect(await lease.release()).toBe("released");
  });

  test("one that always throws is unavailable within its budget, and leaves nothing behind", async () => {
    const store = new OddStore();
    const lock = openLock({ store, ttlMs: 400, acquireTimeoutMs: 100 });
    const user = freshUser();
    store.throwing.set("acquire", Number.POSITIVE_INFINITY);
    store.throwing.set("release", 3);
    const cause = causeOf(await lock.acquire(user));
    expect(cause.message).toContain("acquire threw");
    store.throwing.clear();
    const lease = await leaseOf(lock, user);
    await lease.release();
  });

  test("a release that threw is tried again, and the lease of an extend that threw goes on", async () => {
    const store = new OddStore();
    const lock = openLock({ store, ttlMs: 1_500 });
    const lease = await leaseOf(lock, freshUser());
    store.throwing.set("extend", 1);
    await until(() => store.extends > 2, { what: "the watchdog to try again" });
    expect(lease.signal.aborted).toBe(false);
    store.throwing.set("release", 1);
    expect(await lease.release()).toBe("released");
  });
});

describe("a store that answers at once", () => {
  test("a subscriber who hears of the release finds the lease released, and releases it no second time", async () => {
    const lock = openLock({ store: new MemoryStore() });
    const [user, other] = [freshUser(), freshUser()];
    const kept = await leaseOf(lock, other);
    const lease = await leaseOf(lock, user);
    const remaining: number[] = [];
    const listener = () => {
      remaining.push(lease.remainingMs());
      void lease.release();
    };
    channel("submit-lock:release").subscribe(listener);
    expect(await lease.release()).toBe("released");
    channel("submit-lock:release").unsubscribe(listener);
    expect(remaining).toEqual([0]);
    // A lease that was counted as gone twice would let close pass over the one that is still held.
    let closed = false;
    const closing = lock.close({ timeoutMs: 10_000 }).then(() => {
      closed = true;
    });
    await sleep(20);
    expect(closed).toBe(false);
    await kept.release();
    await closing;
  });

  test("a subscriber who hears of the complete finds the lease completed, and ends it no second time", async () => {
    const lock = openLock({ store: new MemoryStore() });
    const user = freshUser();
    const kept = await leaseOf(lock, freshUser());
    const lease = await submissionOf(lock, user);
    const endings: Promise<unknown>[] = [];
    const listener = () => {
      endings.push(lease.complete({ status: 500 }), lease.release());
    };
    channel("submit-lock:complete").subscribe(listener);
    expect(await lease.complete(answer)).toBe("recorded");
    channel("submit-lock:complete").unsubscribe(listener);
    expect(await Promise.all(endings)).toEqual(["recorded", "released"]);
    expect(foundBy(await submit(lock, user))).toBe("order 7");
    let closed = false;
    const closing = lock.close({ timeoutMs: 10_000 }).then(() => {
      closed = true;
    });
    await sleep(20);
    expect(closed).toBe(false);
    await kept.release();
    await closing;
  });

  test("a lease that is released while others are extended is extended no more", async () => {
    const store = new OddStore();
    const lock = openLock({ store, ttlMs: 1_500 });
    const lost = await leaseOf(lock, freshUser());
    const leases: Lease[] = [await leaseOf(lock, freshUser()), await leaseOf(lock, freshUser())];
    lost.signal.addEventListener("abort", () => {
      for (const lease of leases) void lease.release();
    });
    const { key, ownerId } = lost;
    await asking(store).release(commandOf({ key, ownerId })).reply;
    const before = store.extends;
    store.connectionCameUp();
    expect(lost.signal.aborted).toBe(true);
    expect(store.extends).toBe(before + 1);
  });
});
