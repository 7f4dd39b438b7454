import { setTimeout as sleep } from "node:timers/promises";
import { expect, onTestFinished, test, vi } from "vitest";
import { closeFixtures, isAcquire, openFixture } from "../redis/fixture.ts";
import { freshUser } from "../support/ids.ts";
import { acquired } from "../support/locks.ts";
import { newest } from "./frameworks.ts";
import { openShop } from "./shop.ts";

/** As a test suite does: its own choice of what is replaced, and an hour that it has chosen. */
function fake(): void {
  vi.useFakeTimers({ now: 0 });
  onTestFinished(() => void vi.useRealTimers());
}

test.each(newest)(
  "$name: orders are placed and repeated while an application's test has fake timers",
  async (framework) => {
    const shop = await openShop({
      framework,
      handler: (turn) => turn.answer(201, { order: "placed" }),
      guard: { idempotency: { submissionId: () => "cart-7" } },
    });
    await shop.submit().reply;
    fake();
    const headers = { "x-user": freshUser() };
    const first = await shop.submit({ headers }).reply;
    const second = await shop.submit({ headers }).reply;
    expect([first.status, second.status, second.headers["idempotent-replayed"]]).toEqual([
      201,
      201,
      "true",
    ]);
  },
);

test("a lease on Redis outlives its TTL, and a lost reply is confirmed", async () => {
  const { lock, proxy } = await openFixture({ ttlMs: 6_000, acquireTimeoutMs: 3_000 });
  onTestFinished(closeFixtures);
  fake();
  const user = freshUser();
  const lost = proxy.loseReplyOnce(isAcquire);
  const { confirmed, lease } = acquired(await lock.acquire(user));
  await lost;
  await sleep(7_000);
  expect([confirmed, lease.signal.aborted]).toEqual([true, false]);
  expect((await lock.acquire(user)).outcome).toBe("contended");
  expect(await lease.release()).toBe("released");
});
