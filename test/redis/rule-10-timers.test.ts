import { afterEach, describe, expect, test } from "vitest";
import { record } from "../support/channels.ts";
import { isNodeRedis, redisClients } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { acquired } from "../support/locks.ts";
import { block, closeFixtures, isAcquire, isRelease, openDirect, openFixture } from "./fixture.ts";

afterEach(closeFixtures);

describe.each(redisClients)("rule 10: our own timers, with $name", ({ name, connect }) => {
  test("after a blocked event loop the answer is read before the timer is believed", async () => {
    const lock = await openDirect({ commandTimeoutMs: 50 }, connect);
    for (let round = 0; round < 3; round++) {
      const user = freshUser();
      const acquire = record("submit-lock:acquire", `lock:submit:${user}`);
      const attempt = lock.acquire(user);
      // The call goes out in this turn.
      await new Promise((resolve) => setImmediate(resolve));
      // node-redis writes it at the end of its turn.
      if (isNodeRedis(name)) await new Promise((resolve) => setImmediate(resolve));
      // Long enough for an answer on a machine that is busy.
      block(250);
      const { lease, confirmed } = acquired(await attempt);
      expect(confirmed).toBe(false);
      expect(acquire).toMatchObject([{ outcome: "acquired", copies: 1 }]);
      await lease.release();
    }
  });

  test("an attempt ends although the client never settles its promise", async () => {
    // Known of ioredis: with this option a command in flight is forgotten at a reconnect.
    const clientOptions = { autoResendUnfulfilledCommands: false };
    const { lock, proxy } = await openFixture({ connect, clientOptions });
    const lost = proxy.loseReplyOnce(isAcquire, { resetAfterMs: 0 });
    const { lease, confirmed } = acquired(await lock.acquire(freshUser()));
    await lost;
    expect(confirmed).toBe(true);
    const lostToo = proxy.loseReplyOnce(isRelease, { resetAfterMs: 0 });
    expect(await lease.release()).toBe("released");
    await lostToo;
  });
});
