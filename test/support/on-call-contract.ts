import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import type { LockStore, SubmitLock, SubmitLockOptions } from "../../src/index.ts";
import { asking } from "./asking.ts";
import { freshUser } from "./ids.ts";
import { commandOf, leaseOf, openLock } from "./locks.ts";
import { answer, foundBy, onceOf, submissionOf, submit } from "./submissions.ts";
import { until } from "./until.ts";

const anna = { by: "anna@ops-1", reason: "ticket 4711: 100 %, ja" };
const brief = { ttlMs: 4_000, acquireTimeoutMs: 2_000, commandTimeoutMs: 200 } as const;

/** What a person sees of a lock and does to it, whatever store it is on. */
export function isSeenAndFreed(open: () => LockStore): void {
  const lockWith = (options: Omit<SubmitLockOptions, "store"> = {}) =>
    openLock({ store: open(), ...options });

  const idOf = async (lock: SubmitLock, user: string) => {
    const found = await lock.inspect(user);
    if (found.state === "free") throw new Error(`no id: ${found.state}`);
    return found.id;
  };

  test("a lock that is held tells who holds it and since when, and not its owner id", async () => {
    const [lock, user] = [lockWith({ holder: "web 3: näh%" }), freshUser()];
    const lease = await leaseOf(lock, user);
    await sleep(30);
    const found = await lock.inspect(user);
    if (found.state !== "held") throw new Error(found.state);
    expect(found).toMatchObject({ id: lease.ownerId.slice(0, 8), holder: "web 3: näh%" });
    expect(JSON.stringify(found)).not.toContain(lease.ownerId.slice(0, 12));
    const { expiresInMs, renewedMs = -1, heldMs = -1, endsInMs = -1 } = found;
    expect(heldMs).toBeGreaterThanOrEqual(29);
    expect(expiresInMs + renewedMs).toBe(10_000);
    expect(heldMs + endsInMs).toBe(60_000);
    expect([heldMs, renewedMs, expiresInMs, endsInMs].every(Number.isInteger)).toBe(true);
    await lease.release();
    expect(await lock.inspect(user)).toEqual({ state: "free" });
  });

  test("a renewal shows", async () => {
    const [store, lock] = [asking(open()), lockWith()];
    const user = freshUser();
    const mine = commandOf({ key: lock.keyFor(user) });
    await store.acquire(mine).reply;
    await sleep(50);
    await store.extend(mine).reply;
    const found = await lock.inspect(user);
    if (found.state !== "held") throw new Error(found.state);
    expect(found.heldMs ?? -1).toBeGreaterThan(found.renewedMs ?? Number.POSITIVE_INFINITY);
  });

  test("rule 19: an order that outlives its lock is seen until it ends, and keeps nobody out", async () => {
    const times = { ttlMs: 800, maxHoldMs: 800, acquireTimeoutMs: 400, commandTimeoutMs: 200 };
    const [lock, user] = [lockWith({ ...times, holder: "web-3:4711" }), freshUser()];
    const other = lockWith({ ttlMs: 40_000, acquireTimeoutMs: 20_000 });
    const [lease, inTime] = [await leaseOf(lock, user), await leaseOf(lock, `${user}-2`)];
    await until(() => inTime.signal.aborted, { what: "the loss" });
    await inTime.release();
    const outlived = async () => (await other.inspect(user)).outlived;
    const [order] = (await until(outlived, { what: "a trace" })) ?? [];
    const { takenMs = 0, endedMs, ...told } = order ?? {};
    expect(told).toEqual({ holder: "web-3:4711", reason: "max-hold" });
    expect(takenMs).toBeGreaterThan(750);
    expect(endedMs).toBeLessThan(takenMs);
    const next = await leaseOf(other, user);
    const beside = { state: "held", outlived: [{ reason: "max-hold" }] };
    expect(await other.inspect(user)).toMatchObject(beside);
    await next.release();
    expect(await other.inspect(user)).toMatchObject({ state: "free", outlived: [told] });
    expect(await lease.release()).toBe("gone");
    await until(async () => (await outlived()) === undefined, { what: "its end" });
    expect(await other.inspect(user)).toEqual({ state: "free" });
    // One that stops when it is told leaves no trace.
    expect(await other.inspect(`${user}-2`)).toEqual({ state: "free" });
  });

  test("rule 19: free tells the holder, and keeps everybody out until it must have heard", async () => {
    const [lock, user] = [lockWith(brief), freshUser()];
    const lease = await leaseOf(lock, user);
    const { signal } = lease;
    const id = await idOf(lock, user);
    const freedAt = performance.now();
    const result = await lock.free(user, { id, ...anna });
    if (result.outcome !== "freed") throw new Error(result.outcome);
    expect(result.freeInMs).toBeGreaterThan(0);
    expect(result.freeInMs).toBeLessThanOrEqual(brief.ttlMs);
    expect(await lock.inspect(user)).toMatchObject({ state: "freed", id, ...anna });
    // One loop, so that what is seen first is what came first.
    await until(
      async () => {
        const attempt = await lock.acquire(user);
        if (attempt.outcome !== "acquired") return false;
        expect(signal.aborted).toBe(true);
        return true;
      },
      { what: "the user to be free" },
    );
    // A round-trip and the machine's haste come on top.
    expect(performance.now() - freedAt).toBeGreaterThanOrEqual(result.freeInMs - 5);
    expect(signal.reason).toMatchObject({ code: "SUBMIT_LOCK_LOST", reason: "freed" });
    expect(lease.remainingMs()).toBe(0);
  });

  test("rule 19: a second free answers as the first, and changes nothing", async () => {
    const [lock, user] = [lockWith(), freshUser()];
    await leaseOf(lock, user);
    const id = await idOf(lock, user);
    const first = await lock.free(user, { id, ...anna });
    const second = await lock.free(user, { id, by: "somebody else", reason: "the same" });
    if (first.outcome !== "freed" || second.outcome !== "freed") throw new Error(second.outcome);
    expect(second.freeInMs).toBeLessThanOrEqual(first.freeInMs);
    expect(second.freeInMs).toBeGreaterThan(0);
    expect(await lock.inspect(user)).toMatchObject({ state: "freed", id, ...anna });
  });

  test("free of another id than the one that is there changes nothing", async () => {
    const [lock, user] = [lockWith(), freshUser()];
    const lease = await leaseOf(lock, user);
    const before = await idOf(lock, user);
    const other = before.startsWith("0") ? "11111111" : "00000000";
    for (const now of [false, true]) {
      expect(await lock.free(user, { id: other, ...anna, now })).toEqual({ outcome: "changed" });
    }
    expect(await idOf(lock, user)).toBe(before);
    expect(await lock.free(user, { id: before, ...anna })).toMatchObject({ outcome: "freed" });
    expect(await lock.free(user, { id: other, ...anna })).toEqual({ outcome: "changed" });
    expect(await lock.inspect(user)).toMatchObject({ state: "freed" });
    await lease.release();
  });

  test("free of a user whom nothing locks says so", async () => {
    const [lock, user] = [lockWith(), freshUser()];
    const id = "0f8fad5b";
    expect(await lock.free(user, { id, ...anna })).toEqual({ outcome: "already-free" });
  });

  test("free with now deletes at once, and its holder finds out by itself", async () => {
    const [lock, user] = [lockWith(brief), freshUser()];
    const lease = await leaseOf(lock, user);
    const { signal } = lease;
    const id = await idOf(lock, user);
    const result = await lock.free(user, { id, ...anna, now: true });
    expect(result).toEqual({ outcome: "freed", freeInMs: 0 });
    const next = await leaseOf(lock, user);
    await until(() => signal.aborted, { what: "the holder to be told" });
    expect(signal.reason).toMatchObject({ reason: "overtaken" });
    await next.release();
  });

  test("free with now deletes a tombstone, too", async () => {
    const [lock, user] = [lockWith(), freshUser()];
    await leaseOf(lock, user);
    const id = await idOf(lock, user);
    await lock.free(user, { id, ...anna });
    expect(await lock.free(user, { id, ...anna, now: true })).toMatchObject({ freeInMs: 0 });
    expect(await lock.inspect(user)).toEqual({ state: "free" });
  });

  test("a cooldown is shown, and freed at once: nobody holds it", async () => {
    const [lock, user] = [lockWith(), freshUser()];
    await (await leaseOf(lock, user)).release({ cooldownMs: 30_000 });
    const found = await lock.inspect(user);
    if (found.state !== "cooldown") throw new Error(found.state);
    expect(found.expiresInMs).toBeGreaterThan(0);
    // Both its start and its end are rounded up.
    expect(found.expiresInMs).toBeLessThanOrEqual(30_001);
    const result = await lock.free(user, { id: found.id, ...anna });
    expect(result).toEqual({ outcome: "freed", freeInMs: 0 });
    expect(await lock.inspect(user)).toEqual({ state: "free" });
  });

  test("rule 19: a lease that was freed is released as freed, and its tombstone stays", async () => {
    for (const options of [undefined, { cooldownMs: 30_000 }]) {
      const [lock, user] = [lockWith(), freshUser()];
      const lease = await leaseOf(lock, user);
      const id = await idOf(lock, user);
      await lock.free(user, { id, ...anna });
      expect(await lease.release(options)).toBe("freed");
      expect(await lock.inspect(user)).toMatchObject({ state: "freed", id });
    }
  });

  test("rule 19: a complete of a lease that was freed is recorded, and the tombstone stays", async () => {
    const [lock, user] = [lockWith(), freshUser()];
    const lease = await submissionOf(lock, user);
    const id = await idOf(lock, user);
    await lock.free(user, { id, ...anna });
    expect((await submit(lock, user, { id: "another cart" })).outcome).toBe("contended");
    expect(await lease.complete(answer, { cooldownMs: 30_000 })).toBe("late");
    expect(await lock.inspect(user)).toMatchObject({ state: "freed", id });
    expect(foundBy(await submit(lock, user))).toBe("order 7");
  });

  test("rule 19: a tombstone is foreign to everybody but whom it names", async () => {
    const store = asking(open());
    const [mine, other] = [onceOf(), onceOf()];
    const rival = { ...other, key: mine.key };
    await store.acquire(mine).reply;
    const given = { id: mine.ownerId.slice(0, 8), by: "anna", reason: "4711", now: false };
    const result = await store.free(mine, given).reply;
    expect(result).toMatchObject({ kind: "answered", result: { outcome: "freed" } });
    const kinds = async (of: typeof mine) => {
      const replies = [store.extend(of), store.release(of), store.release(of, 1e15)];
      return (await Promise.all(replies.map((each) => each.reply))).map(({ kind }) => kind);
    };
    expect(await kinds(mine)).toEqual(["freed", "freed", "freed"]);
    expect(await kinds(rival)).toEqual(["foreign", "foreign", "foreign"]);
    // Its own late request, and another's.
    expect(await store.acquire(mine).reply).toMatchObject({ kind: "contended" });
    expect(await store.acquire(rival).reply).toMatchObject({ kind: "contended" });
    const inspected = await store.inspect(mine).reply;
    expect(inspected).toMatchObject({ found: { state: "freed", by: "anna", reason: "4711" } });
  });
}
