import { afterEach, describe, expect, test } from "vitest";
import { LockUnavailableError, MemoryStore, type SubmitLock } from "../../src/index.ts";
import { closeLocks, openLock } from "../support/locks.ts";
import { until } from "../support/until.ts";

afterEach(closeLocks);

/** A store that falls silent behind so many requests. */
class FallingSilent extends MemoryStore {
  left: number;
  constructor(left: number) {
    super();
    this.left = left;
    for (const method of ["acquire", "extend", "release", "complete"] as const) {
      const answered = super[method].bind(this) as (request: never) => void;
      Object.defineProperty(this, method, {
        value: (request: never) => {
          if (this.left-- > 0) answered(request);
        },
      });
    }
  }
}

describe("check() where the store falls silent", () => {
  // A release or a complete is sent for 2 × acquireTimeoutMs + ttlMs: 300 s here.
  const times = { ttlMs: 300_000, acquireTimeoutMs: 200, commandTimeoutMs: 50 };
  const behind = [0, 1, 2, 3, 4, 5].flatMap((left) => [
    { left, submissions: false },
    { left, submissions: true },
  ]);
  test.each(behind)("behind $left requests, submissions $submissions, it rejects", async (each) => {
    const { left, submissions } = each;
    const lock: SubmitLock = openLock({ store: new FallingSilent(left), ...times });
    let failed: unknown;
    void lock.check({ submissions }).catch((error: unknown) => {
      failed = error;
    });
    await until(() => failed !== undefined, { what: "the check to fail", boundMs: 20_000 });
    expect(failed).toBeInstanceOf(LockUnavailableError);
  });

  test("with all of its answers, it resolves", async () => {
    for (const submissions of [false, true]) {
      const lock: SubmitLock = openLock({ store: new FallingSilent(6), ...times });
      await lock.check({ submissions });
    }
  });
});
