import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { setTimeout as sleep } from "node:timers/promises";
import { format, inspect } from "node:util";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type Lease, MemoryStore, type SubmitLock } from "../../src/index.ts";
import { UserLease } from "../../src/lock/lease.ts";
import { collectGarbage } from "../support/garbage.ts";
import { freshUser } from "../support/ids.ts";
import { acquired, closeLocks, leaseOf, openLock } from "../support/locks.ts";

afterEach(closeLocks);

async function taken(): Promise<{ lease: Lease; key: string }> {
  const lock = openLock({ store: new MemoryStore() });
  return { lease: await leaseOf(lock, "42"), key: "lock:submit:42" };
}

/** Everything that plain JavaScript can name on a value, its classes included. */
function membersOf(value: object): PropertyKey[] {
  const prototype = Object.getPrototypeOf(value);
  const own = Reflect.ownKeys(value);
  return prototype === Object.prototype ? own : [...own, ...membersOf(prototype)];
}

describe("a lease in a user's hands", () => {
  test("has its public members and nothing else", async () => {
    const { lease } = await taken();
    const named = membersOf(lease).filter((name) => name !== "constructor");
    expect(new Set(named)).toEqual(
      new Set([
        ...["key", "ownerId", "signal", "fencingToken", "submission", "remainingMs"],
        ...["release", "complete", "toJSON", inspect.custom, Symbol.asyncDispose],
      ]),
    );
    expect(Object.keys(lease)).toEqual([]);
  });

  test("lets go of its request once it is completed, and before Redis has answered", async () => {
    const store = new MemoryStore();
    const lock = openLock({ store });
    const { lease } = acquired(await lock.acquire("42", { submission: { id: "cart 7" } }));
    const request = new WeakRef({ body: "large" });
    const notes = (held: object) => () => expect(held).toBeUndefined();
    UserLease.onLost(lease, notes(request.deref() as object));
    store.play("silent");
    void lease.complete({ status: 201 });
    await sleep(10);
    collectGarbage();
    expect(request.deref()).toBeUndefined();
    expect(lock.stats().retiring).toBe(1);
    store.play("none");
  });

  test("cannot be written to", async () => {
    const { lease, key } = await taken();
    for (const name of ["key", "ownerId", "signal"]) {
      expect(() => Reflect.set(lease, name, "another")).not.toThrow();
    }
    expect(lease.key).toBe(key);
    expect(lease.ownerId).not.toBe("another");
    expect(lease.signal).toBeInstanceOf(AbortSignal);
  });

  test("is logged with its key and its remaining time", async () => {
    const { lease, key } = await taken();
    const remainingMs = expect.any(Number);
    expect(JSON.parse(JSON.stringify({ lease }))).toEqual({ lease: { key, remainingMs } });
    expect(inspect(lease)).toMatch(/^Lease \{ key: 'lock:submit:42', remainingMs: \d+ \}$/);
    expect(inspect({ attempt: { lease } })).toContain(`Lease { key: '${key}', remainingMs: `);
  });

  test("is logged with no remaining time once it is released", async () => {
    const { lease, key } = await taken();
    await lease.release();
    expect(JSON.stringify(lease)).toBe(JSON.stringify({ key, remainingMs: 0 }));
  });

  test.each<[string, (lease: Lease) => string]>([
    ["JSON.stringify", (lease) => JSON.stringify([lease, { ...lease }])],
    ["util.inspect", (lease) => inspect({ lease }, { depth: null })],
    ["util.inspect with hidden members", (lease) => inspect(lease, { showHidden: true })],
    [
      "console.dir with hidden members",
      (lease) => inspect(lease, { showHidden: true, customInspect: false, depth: null }),
    ],
    ["util.format", (lease) => format("%s %o %O %j", lease, lease, lease, lease)],
    ["a template", (lease) => `${lease}`],
    ["a structured clone", (lease) => inspect(structuredClone({ ...lease }))],
    [
      "a loop over its members",
      (lease) => {
        const seen: string[] = [];
        for (const name in lease) seen.push(`${name} ${Reflect.get(lease, name)}`);
        return seen.join();
      },
    ],
    ["the inspected signal", (lease) => inspect(lease.signal, { showHidden: true, depth: null })],
  ])("does not show its owner id to %s", async (_name, print) => {
    const { lease } = await taken();
    expect(lease.ownerId).toMatch(/^[\da-f]{8}-[\da-f-]{27}$/);
    expect(print(lease)).not.toContain(lease.ownerId.slice(0, 8));
  });

  test("does not show its owner id in the error of its loss", async () => {
    const lock = openLock({ store: new MemoryStore() });
    const lease = await leaseOf(lock, "42");
    const { signal, ownerId } = lease;
    await lock.close({ timeoutMs: 0 });
    expect(signal.reason).toMatchObject({ code: "SUBMIT_LOCK_LOST" });
    const shown = inspect(signal.reason, { showHidden: true, depth: null });
    expect(shown).toContain("lock:submit:42");
    expect(`${shown}${JSON.stringify({ ...signal.reason })}`).not.toContain(ownerId.slice(0, 8));
  });

  test("does not show its owner id in its attempt, or in one that is contended", async () => {
    const lock = openLock({ store: new MemoryStore() });
    const attempt = acquired(await lock.acquire("42"));
    const error = await lock.withLock("42", {}, () => {}).catch((reason: unknown) => reason);
    const all = [attempt, await lock.acquire("42"), error];
    const shown = inspect(all, { showHidden: true, depth: 10 }) + JSON.stringify(all);
    expect(shown).not.toContain(attempt.lease.ownerId.slice(0, 8));
  });
});

describe("await using", () => {
  const outcomes = new Map<string, string[]>();
  const onRelease = (message: unknown) => {
    const { key, outcome } = message as { key: string; outcome: string };
    outcomes.set(key, [...(outcomes.get(key) ?? []), outcome]);
  };
  let lock: SubmitLock;
  beforeEach(() => {
    lock = openLock({ store: new MemoryStore() });
  });
  beforeAll(() => subscribe("submit-lock:release", onRelease));
  afterAll(() => void unsubscribe("submit-lock:release", onRelease));

  test("releases the lock at the end of the block", async () => {
    const user = freshUser();
    {
      await using lease = await leaseOf(lock, user);
      expect((await lock.acquire(user)).outcome).toBe("contended");
      expect(lease.remainingMs()).toBeGreaterThan(0);
    }
    expect(await lock.inspect(user)).toEqual({ state: "free" });
    expect(outcomes.get(lock.keyFor(user))).toEqual(["released"]);
  });

  test("releases it when the block throws, and passes the error on", async () => {
    const user = freshUser();
    const work = async () => {
      await using _lease = await leaseOf(lock, user);
      throw new Error("no stock");
    };
    await expect(work()).rejects.toThrow("no stock");
    expect(await lock.inspect(user)).toEqual({ state: "free" });
  });

  test("leaves the answer that the block has kept, and does not release twice", async () => {
    const user = freshUser();
    const submission = { id: "cart-7" };
    {
      await using lease = acquired(await lock.acquire(user, { submission })).lease;
      void lease.complete({ status: 201 });
    }
    expect(await lock.acquire(user, { submission })).toMatchObject({ outcome: "completed" });
    expect(outcomes.get(lock.keyFor(user))).toBeUndefined();
  });

  test("takes an attempt that has no lease", async () => {
    const user = freshUser();
    const first = await leaseOf(lock, user);
    {
      const attempt = await lock.acquire(user);
      await using lease = attempt.outcome === "acquired" ? attempt.lease : undefined;
      expect(lease).toBeUndefined();
    }
    expect((await lock.inspect(user)).state).toBe("held");
    await first.release();
  });
});
