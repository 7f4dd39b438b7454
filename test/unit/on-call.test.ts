import { afterEach, describe, expect, test } from "vitest";
import { type LockStore, MemoryStore } from "../../src/index.ts";
import type { AcquireRequest, FreeRequest, LockRequest, NoAnswer } from "../../src/lock/store.ts";
import { record } from "../support/channels.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, leaseOf, openLock } from "../support/locks.ts";
import { until } from "../support/until.ts";

afterEach(closeLocks);

const anna = { by: "anna@ops-1", reason: "ticket 4711" };
const unavailable = "SUBMIT_LOCK_UNAVAILABLE";
const lockWith = () => openLock({ store: new MemoryStore() });

test("free takes the hex digits of an id in either case", async () => {
  const lock = lockWith();
  const user = freshUser();
  const id = (await leaseOf(lock, user)).ownerId.toUpperCase();
  expect(await lock.free(user, { ...anna, id })).toMatchObject({ outcome: "freed" });
});

test("a user id that is none is refused", async () => {
  const options = { id: "0f8fad5b", ...anna };
  const refused = { code: "SUBMIT_LOCK_INVALID_USER_ID" };
  await expect(lockWith().inspect("")).rejects.toMatchObject(refused);
  await expect(lockWith().free("", options)).rejects.toMatchObject(refused);
});

test("a lock that is closed neither looks nor frees", async () => {
  const lock = lockWith();
  await lock.close();
  const refused = { code: "SUBMIT_LOCK_CLOSED" };
  await expect(lock.inspect("42")).rejects.toMatchObject(refused);
  await expect(lock.free("42", { id: "0f8fad5b", ...anna })).rejects.toMatchObject(refused);
});

describe("a store without inspect and free", () => {
  /** As an application may write one. */
  function lesserStore(): LockStore {
    const store = new MemoryStore();
    return {
      acquire: (request) => store.acquire(request),
      extend: (request) => store.extend(request),
      release: (request) => store.release(request),
      attach: () => store.attach(),
    };
  }

  test("has locks, and says that it cannot show them or take them away", async () => {
    const lock = openLock({ store: lesserStore() });
    await (await leaseOf(lock, freshUser())).release();
    const why = { id: "0f8fad5b", by: "anna", reason: "ticket 4711" };
    for (const [asked, method] of [
      [lock.inspect("42"), "inspect"],
      [lock.free("42", why), "free"],
    ] as const) {
      await expect(asked).rejects.toMatchObject({
        code: "SUBMIT_LOCK_INVALID_OPTION",
        message: expect.stringMatching(`^${method}: expected a lock whose store has it`),
      });
    }
  });
});

describe("a free that the store refuses", () => {
  const cause = new Error("NOPERM");
  const refused: NoAnswer = { kind: "rejected", cause, misconfigured: true };

  test.each([
    ["at once has changed nothing", [refused], "SUBMIT_LOCK_MISCONFIGURED"],
    [
      "after a request to another node has changed nothing",
      [{ kind: "unsent", reason: "MOVED" }, refused],
      "SUBMIT_LOCK_MISCONFIGURED",
    ],
    ["after a request without an answer may be done", ["silence", refused], unavailable],
    [
      "after a request that may be done may be done",
      [{ kind: "unknown", cause }, refused],
      unavailable,
    ],
  ] as [string, (NoAnswer | "silence")[], string][])("%s", async (_what, replies, code) => {
    const left = [...replies];
    const store: LockStore = Object.assign(new MemoryStore(), {
      free: ({ answer }: FreeRequest) => {
        const reply = left.shift() ?? "silence";
        if (reply !== "silence") answer(reply);
      },
    });
    const times = { acquireTimeoutMs: 400, commandTimeoutMs: 20 };
    const asked = openLock({ store, ...times }).free("42", { id: "0f8fad5b", ...anna });
    const mayBeDone = expect.stringContaining("(the lock may have been freed)");
    const message = code === unavailable ? mayBeDone : expect.not.stringContaining("may have been");
    await expect(asked).rejects.toMatchObject({ code, message });
  });
});

test("check rejects where the store does not answer", async () => {
  const store: LockStore = Object.assign(new MemoryStore(), { acquire: () => {} });
  const lock = openLock({ store, acquireTimeoutMs: 40 });
  await expect(lock.check()).rejects.toMatchObject({ code: unavailable });
});

test.each(["acquire", "extend"])("check rejects with what the store has said to %s", async (of) => {
  const cause = new Error("no such user");
  const refused: NoAnswer = { kind: "rejected", cause, misconfigured: true };
  const answered = ({ answer }: LockRequest<NoAnswer>) => answer(refused);
  const lock = openLock({ store: Object.assign(new MemoryStore(), { [of]: answered }) });
  const code = "SUBMIT_LOCK_MISCONFIGURED";
  await expect(lock.check()).rejects.toMatchObject({ code, cause });
});

test.each([false, true])("check publishes nothing, with submissions: %s", async (submissions) => {
  const store = new MemoryStore();
  const acquire = store.acquire.bind(store);
  let isFirst = true;
  const lock = openLock({
    // The first request is lost, so the release is a retire, of which a channel would tell.
    store: Object.assign(store, {
      acquire: (request: AcquireRequest) => {
        if (!isFirst) return acquire(request);
        isFirst = false;
        request.deadlineMs = performance.now();
      },
    }),
    ...{ acquireTimeoutMs: 4_000, commandTimeoutMs: 20 },
  });
  const messages = [
    record("submit-lock:acquire"),
    record("submit-lock:release"),
    record("submit-lock:lost"),
    record("submit-lock:retire"),
    record("submit-lock:complete"),
    record("submit-lock:duplicate"),
  ];
  await lock.check({ submissions });
  await until(() => lock.stats().retiring === 0, { what: "the check to be over" });
  expect(messages.flat()).toEqual([]);
});

test("stats tell attempts and releases that have no answer", async () => {
  const store = new MemoryStore();
  const answers: (() => void)[] = [];
  const silent: LockStore = {
    acquire: (request) => answers.push(() => store.acquire(request)),
    extend: (request) => store.extend(request),
    release: (request) => answers.push(() => store.release(request)),
    attach: () => store.attach(),
  };
  const lock = openLock({ store: silent, ttlMs: 40_000, acquireTimeoutMs: 20_000 });
  const attempt = leaseOf(lock, freshUser());
  expect(lock.stats()).toMatchObject({ attempting: 1, held: 0, retiring: 0 });
  answers.shift()?.();
  const lease = await attempt;
  expect(lock.stats()).toMatchObject({ attempting: 0, held: 1, retiring: 0 });
  const releasing = lease.release();
  expect(lock.stats()).toMatchObject({ attempting: 0, held: 0, retiring: 1, oldestHeldMs: 0 });
  answers.shift()?.();
  await releasing;
  expect(lock.stats()).toEqual({
    attempting: 0,
    held: 0,
    retiring: 0,
    waiting: 0,
    oldestHeldMs: 0,
  });
});
