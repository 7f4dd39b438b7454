import { afterEach, describe, expect, test } from "vitest";
import { record } from "../support/channels.ts";
import { freshUser } from "../support/ids.ts";
import { leaseOf } from "../support/locks.ts";
import { until } from "../support/until.ts";
import {
  closeFixtures,
  isAcquire,
  isRelease,
  openFixture,
  openHeld,
  openWithHeldCopy,
  outcomeOf,
  patient,
} from "./fixture.ts";

afterEach(closeFixtures);

const quick = { acquireTimeoutMs: 1_000, commandTimeoutMs: 50 } as const;

describe("rule 5, P3: an ending with an open copy retires its owner id", () => {
  test("unavailable: the copy that Redis had applied is deleted as soon as Redis answers", async () => {
    const { lock, proxy, redis } = await openFixture(quick);
    const user = freshUser();
    const retire = record("submit-lock:retire", `lock:submit:${user}`);
    proxy.holdReplies();
    expect((await lock.acquire(user)).outcome).toBe("unavailable");
    proxy.releaseHeld();
    expect(await outcomeOf(retire)).toBe("final");
    expect(await redis.exists(`lock:submit:${user}`)).toBe(false);
  });

  test("contended: an earlier copy of the same attempt may still be on its way", async () => {
    const { lock, proxy, redis, user, lease } = await openHeld(quick);
    const retire = record("submit-lock:retire", lease.key);
    const held = proxy.holdRequestOnce(isAcquire);
    expect((await lock.acquire(user)).outcome).toBe("contended");
    await held;
    // The holder's key is not the retired owner id's to delete.
    expect(await redis.ownerOf(lease.key)).toBe(lease.ownerId);
    await lease.release();
    proxy.releaseHeld();
    expect(await outcomeOf(retire)).toBe("final");
    expect(await redis.exists(lease.key)).toBe(false);
  });

  test("acquired: not before its release", async () => {
    const { proxy, redis, lease, retired } = await openWithHeldCopy(quick);
    expect(await redis.ownerOf(lease.key)).toBe(lease.ownerId);
    expect(proxy.commands.filter(isRelease)).toEqual([]);
    expect(await lease.release()).toBe("released");
    expect(await retired()).toBe("final");
    expect(await redis.exists(lease.key)).toBe(false);
  });

  test("without open copies a release is one call, and nothing follows", async () => {
    const { lock, proxy } = await openFixture(patient);
    const leases = [await leaseOf(lock, freshUser()), await leaseOf(lock, freshUser())];
    await leases[0]?.release();
    expect(proxy.commands.filter(isRelease)).toHaveLength(1);
    // 50 ms later a retire would have asked again: the second release comes after that.
    const at = performance.now() + 120;
    await until(() => performance.now() > at, { what: "two rounds of the retire loop" });
    await leases[1]?.release();
    expect(proxy.commands.filter(isRelease)).toHaveLength(2);
  });
});
