import { channel } from "node:diagnostics_channel";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, test } from "vitest";
import { submitGuard as expressGuard } from "../../src/express/index.ts";
import {
  type AcquireRequest,
  type CompleteRequest,
  type Lease,
  type LockRequest,
  type LockStore,
  MemoryStore,
  type OwnedReply,
  type ReleaseRequest,
} from "../../src/index.ts";
import { submitGuard as koaGuard } from "../../src/koa/index.ts";
import { identify } from "../../src/lock/submission.ts";
import { asking } from "../support/asking.ts";
import { freshUser } from "../support/ids.ts";
import { acquired, causeOf, closeLocks, commandOf, leaseOf, openLock } from "../support/locks.ts";
import { answer, foundBy, submissionOf, submit } from "../support/submissions.ts";
import { until } from "../support/until.ts";

afterEach(closeLocks);

type Method = "acquire" | "extend" | "release" | "complete";

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

  override complete(copy: CompleteRequest): void {
    this.#mayThrow("complete");
    super.complete(copy);
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
    expect((cause.cause as Error).message).toContain("acquire threw");
    store.throwing.clear();
    const lease = await leaseOf(lock, user);
    await lease.release();
  });

  test("a release that threw is tried again, and the lease of an extend that threw goes on", async () => {
    const store = new OddStore();
    const lock = openLock({ store, ttlMs: 6_000 });
    const lease = await leaseOf(lock, freshUser());
    store.throwing.set("extend", 1);
    await until(() => store.extends > 2, { what: "the watchdog to try again" });
    expect(lease.signal.aborted).toBe(false);
    store.throwing.set("release", 1);
    expect(await lease.release()).toBe("released");
  });
});

test.each<Method>(["acquire", "extend", "release"])(
  "check sends its %s again after one that threw",
  async (method) => {
    const store = new OddStore();
    const lock = openLock({ store });
    store.throwing.set(method, 1);
    await lock.check();
    expect(store.throwing.get(method)).toBeLessThan(0);
  },
);

test("a complete that threw is tried again, and its lock is held until then", async () => {
  const store = new OddStore();
  const lock = openLock({ store, ttlMs: 1_500, acquireTimeoutMs: 400, commandTimeoutMs: 100 });
  const user = freshUser();
  const lease = await submissionOf(lock, user, { retainMs: 60_000 });
  store.throwing.set("complete", 3);
  const completed = lease.complete(answer);
  expect(foundBy(await submit(lock, user))).toBe("contended");
  expect(await completed).toBe("recorded");
  expect(foundBy(await submit(lock, user))).toBe("order 7");
});

test.each([true, false])(
  "rule 8: a complete that finds its lock gone, where an earlier try may have let it go: %s",
  async (isTriedBefore) => {
    class MovingStore extends MemoryStore {
      isFirst = isTriedBefore;

      override complete(request: CompleteRequest): void {
        if (this.isFirst) {
          this.isFirst = false;
          request.answer({ kind: "unknown", cause: new Error("no answer") });
          return;
        }
        const { command } = request;
        this.release({ command, deadlineMs: undefined, cooldownUntilMs: 0, answer: () => {} });
        super.complete(request);
      }
    }
    const lease = await submissionOf(openLock({ store: new MovingStore() }), freshUser());
    expect(await lease.complete(answer)).toBe(isTriedBefore ? "recorded" : "late");
  },
);

test("rule 6: delayed errors of earlier tries make the pause behind the last one no longer", async () => {
  const refused = { kind: "rejected", cause: new Error("busy"), misconfigured: false } as const;
  const earlier: ReleaseRequest[] = [];
  const events: string[] = [];
  class BusyStore extends MemoryStore {
    override release(request: ReleaseRequest): void {
      if (earlier.length < 6) earlier.push(request);
      else if (events.length === 0) {
        events.push("refused");
        request.answer(refused);
        for (const { answer } of earlier) answer(refused);
        // Half of the pause that seven refusals would make.
        setTimeout(() => events.push("500 ms"), 500);
      } else {
        events.push("released");
        super.release(request);
      }
    }
  }
  const times = { acquireTimeoutMs: 10_000, commandTimeoutMs: 50 };
  const lease = await leaseOf(openLock({ store: new BusyStore(), ...times }), freshUser());
  expect(await lease.release()).toBe("released");
  await until(() => events.length === 3, { what: "the half second" });
  expect(events).toEqual(["refused", "released", "500 ms"]);
});

test("rule 17: new connections that are refused as well make the pause no longer", async () => {
  const refused = { kind: "rejected", cause: new Error("full"), misconfigured: false } as const;
  const events: string[] = [];
  let tries = 0;
  class FullStore extends OddStore {
    override complete(request: CompleteRequest): void {
      if (++tries <= 7) {
        request.answer(refused);
        return;
      }
      events.push("recorded");
      super.complete(request);
    }
  }
  const store = new FullStore();
  const lease = await submissionOf(openLock({ store }), freshUser());
  const completing = lease.complete(answer);
  for (let connection = 0; connection < 6; connection++) store.connectionCameUp();
  setTimeout(() => events.push("500 ms"), 500);
  expect(tries).toBe(7);
  expect(await completing).toBe("recorded");
  await until(() => events.length === 2, { what: "the half second" });
  expect(events).toEqual(["recorded", "500 ms"]);
});

describe("rule 17, P9: a repeat that asked when the first answer was still to be recorded does not run", () => {
  /** The lock has run out, and the first complete is late. */
  class LateStore extends MemoryStore {
    late: CompleteRequest | undefined;
    readonly answered: "behind the record" | "before the record" | "never";

    constructor(answered: LateStore["answered"]) {
      super();
      this.answered = answered;
    }

    override complete(request: CompleteRequest): void {
      if (this.late !== undefined) {
        super.complete(request);
        return;
      }
      this.late = request;
      const { command } = request;
      this.release({ command, deadlineMs: undefined, cooldownUntilMs: 0, answer: () => {} });
    }

    override acquire(request: AcquireRequest): void {
      const { answered, late } = this;
      const answer: AcquireRequest["answer"] = (reply) => {
        if (late !== undefined && answered !== "before the record") super.complete(late);
        if (late === undefined || answered !== "never") request.answer(reply);
      };
      super.acquire({ ...request, answer });
    }
  }

  test.each(["behind the record", "before the record", "never"] as const)(
    "where it is answered %s",
    async (answered) => {
      const store = new LateStore(answered);
      const lock = openLock({ store, acquireTimeoutMs: 200 });
      const user = freshUser();
      const lease = await submissionOf(lock, user);
      const completing = lease.complete(answer);
      const asked = { identity: identify(user, { id: "cart 7" }), retainMs: 60_000 };
      if (answered === "before the record") {
        // The lock is gone, and yet it is not over.
        expect(await lock.lookUp(user, { submission: { id: "cart 7" } })).toEqual({
          outcome: "in-flight",
        });
      }
      // With `isRepeat`, a guard refuses it even where it proceeds without Redis.
      const repeat = await lock.acquireOrWait(user, asked, 0);
      expect(repeat).toMatchObject({ outcome: "unavailable", isRepeat: true });
      await completing;
      store.late = undefined;
      expect(foundBy(await submit(lock, user))).toBe("order 7");
      // Its lock was given back, and does not stand in the way of another order.
      expect(foundBy(await submit(lock, user, { id: "cart 8" }))).toBe("acquired");
    },
  );
});

describe("a store that has locks and no more", () => {
  const memory = new MemoryStore();
  const lockOnly: LockStore = {
    acquire: (request) => memory.acquire(request),
    extend: (request) => memory.extend(request),
    release: (request) => memory.release(request),
    attach: () => memory.attach(),
  };
  const unable: LockStore = {
    ...lockOnly,
    complete: (request) => memory.complete(request),
    recordsProblem: "expected a store with room for answers",
  };
  const guards: ((options: never) => unknown)[] = [expressGuard, koaGuard];
  const refusals: [what: string, store: LockStore, why: string][] = [
    ["has no complete", lockOnly, "a store without complete"],
    ["says that it cannot keep answers", unable, "expected a store with room for answers"],
  ];

  test.each(refusals)(
    "where it %s, is refused by a guard when that is made",
    (_what, store, why) => {
      for (const submitGuard of guards) {
        for (const wanted of [{ idempotency: {} }, { cooldownMs: 1 }]) {
          const [feature] = Object.keys(wanted);
          const options = { lock: openLock({ store }), userId: () => "42", ...wanted };
          expect(() => submitGuard(options as never)).toThrow(
            expect.objectContaining({
              code: "SUBMIT_LOCK_INVALID_OPTION",
              message: expect.stringMatching(new RegExp(`^${feature}: .*${why}`)),
            }),
          );
        }
      }
    },
  );

  test.each(refusals)(
    "where it %s, says so to whoever wants an answer kept",
    async (_what, store, why) => {
      const lock = openLock({ store });
      const user = freshUser();
      const refused = { code: "SUBMIT_LOCK_INVALID_OPTION", message: expect.stringContaining(why) };
      const submission = { id: "cart 7" };
      await expect(lock.check({ submissions: true })).rejects.toMatchObject(refused);
      await expect(lock.acquire(user, { submission })).rejects.toMatchObject(refused);
      await expect(lock.lookUp(user, { submission })).rejects.toMatchObject(refused);
      // None of that has asked for more than there is, or taken anything.
      await lock.check();
      const lease = await leaseOf(lock, user);
      expect(() => lease.release({ cooldownMs: 1 })).toThrow(expect.objectContaining(refused));
      expect(lease.remainingMs()).toBeGreaterThan(0);
      expect(await lease.release()).toBe("released");
    },
  );
});

describe("a store that answers at once", () => {
  test.each<["release" | "complete", string, (lease: Lease) => Promise<unknown>]>([
    ["release", "released", (lease) => lease.release()],
    ["complete", "recorded", (lease) => lease.complete(answer)],
  ])(
    "a subscriber who hears of the %s finds the lease %s, and ends it no second time",
    async (...given) => {
      const [name, outcome, end] = given;
      const lock = openLock({ store: new MemoryStore() });
      const user = freshUser();
      const kept = await leaseOf(lock, freshUser());
      const lease = await submissionOf(lock, user);
      const remaining: number[] = [];
      const endings: Promise<unknown>[] = [];
      const listener = () => {
        remaining.push(lease.remainingMs());
        endings.push(end(lease), lease.release());
      };
      channel(`submit-lock:${name}`).subscribe(listener);
      expect(await end(lease)).toBe(outcome);
      channel(`submit-lock:${name}`).unsubscribe(listener);
      expect(remaining).toEqual([0]);
      expect(await Promise.all(endings)).toEqual([outcome, "released"]);
      if (name === "complete") expect(foundBy(await submit(lock, user))).toBe("order 7");
      // A lease that was counted as gone twice would let close pass over the one that is still held.
      let closed = false;
      const closing = lock.close({ timeoutMs: 10_000 }).then(() => {
        closed = true;
      });
      await sleep(20);
      expect(closed).toBe(false);
      await kept.release();
      await closing;
    },
  );

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
