import { afterEach, describe, expect, test } from "vitest";
import { type LockRequest, type LockStore, MemoryStore } from "../../src/index.ts";
import { asking } from "../support/asking.ts";
import { record } from "../support/channels.ts";
import { freshUser } from "../support/ids.ts";
import { acquired, closeLocks, openLock, roomyTimes } from "../support/locks.ts";
import { until } from "../support/until.ts";

afterEach(closeLocks);

const inMs = 300;

/**
 * A store whose every answer hides an earlier write that may still take effect for 300 ms, as those
 * of a client that has re-sent after a reconnect.
 */
function doubtful(): LockStore & { releases: number } {
  const store = new MemoryStore();
  const unclean = <Reply extends { kind: string }>(
    copy: LockRequest<Reply>,
  ): LockRequest<Reply> => ({
    command: copy.command,
    // What the store stamps is of no interest.
    deadlineMs: undefined,
    answer(reply) {
      copy.deadlineMs = performance.now() + inMs;
      copy.answer("clean" in reply ? { ...reply, clean: false } : reply);
    },
  });
  return {
    releases: 0,
    acquire: (copy) => store.acquire(unclean(copy)),
    extend: (copy) => store.extend(unclean(copy)),
    release(copy) {
      this.releases++;
      store.release(unclean(copy));
    },
    attach: () => store.attach(),
  };
}

describe("rule 2: an answer that is not clean leaves its copy open", () => {
  test("the lock is acquired, counts as confirmed, and is retired at its release", async () => {
    const store = doubtful();
    const lock = openLock({ store });
    const from = performance.now();
    const { lease, confirmed } = acquired(await lock.acquire(freshUser()));
    expect(confirmed).toBe(true);
    const { messages, stop } = record("submit-lock:retire", lease.key);
    expect(await lease.release()).toBe("released");
    await until(() => messages.length > 0, { what: "the owner id to be retired" });
    expect(messages[0]?.outcome).toBe("final");
    expect(performance.now() - from).toBeGreaterThanOrEqual(inMs);
    expect(store.releases).toBeGreaterThan(2);
    stop();
  });

  test("a verdict of contended is retired as well", async () => {
    const store = doubtful();
    const lock = openLock({ store });
    const user = freshUser();
    await lock.acquire(user);
    const { messages, stop } = record("submit-lock:retire", `lock:submit:${user}`);
    expect((await lock.acquire(user)).outcome).toBe("contended");
    await until(() => messages.length > 0, { what: "the owner id to be retired" });
    expect(store.releases).toBeGreaterThan(2);
    stop();
  });

  test("gone from an unclean answer means that the release before it did it", async () => {
    const store = doubtful();
    const lock = openLock({ store });
    const { lease } = acquired(await lock.acquire(freshUser()));
    // The hidden first write of the release.
    const { key, ownerId } = lease;
    await asking(store).release({ key, ownerId, times: roomyTimes }).reply;
    expect(await lease.release()).toBe("released");
  });
});
