import { afterEach, describe, expect, test } from "vitest";
import { record } from "../support/channels.ts";
import { closeClient, redisClients } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { leaseOf } from "../support/locks.ts";
import { until } from "../support/until.ts";
import { closeFixtures, isRelease, openFixture, openHeld, patient, takePulse } from "./fixture.ts";

afterEach(closeFixtures);

describe.each(redisClients)(
  "rule 8, P3 and P4: the outcome of a release, with $name",
  ({ connect }) => {
    test.each([
      ["the connection stays", {}],
      ["the connection is reset", { resetAfterMs: 0 }],
    ])("released, although the first answer was lost: %s", async (_name, options) => {
      const { proxy, redis, lease } = await openHeld({ connect });
      const lost = proxy.loseReplyOnce(isRelease, options);
      const releasing = lease.release();
      await lost;
      expect(await releasing).toBe("released");
      expect(await redis.exists(lease.key)).toBe(false);
    });

    test("gone, when the key was deleted; foreign, when somebody else has it", async () => {
      const { lock, redis } = await openFixture({ connect, ...patient });
      const [gone, foreign] = [await leaseOf(lock, freshUser()), await leaseOf(lock, freshUser())];
      await redis.send("DEL", gone.key);
      expect(await gone.release()).toBe("gone");
      await redis.send("SET", foreign.key, "a rival", "PX", 20_000);
      expect(await foreign.release()).toBe("foreign");
      expect(await redis.get(foreign.key)).toBe("a rival");
    });

    test("gone, and not released, when the lease was lost before: nothing vouches for it", async () => {
      const times = { ttlMs: 1_000, maxHoldMs: 1_000, acquireTimeoutMs: 500, commandTimeoutMs: 50 };
      const { proxy, lease } = await openHeld({ ...times, connect });
      // Of the compare-and-delete with which the lost lease itself ends.
      await proxy.loseReplyOnce(isRelease);
      expect(await lease.release()).toBe("gone");
    });

    test("unconfirmed, when Redis is silent; the key is deleted when it is back", async () => {
      const times = { ttlMs: 20_000, acquireTimeoutMs: 200, commandTimeoutMs: 50 };
      const { proxy, redis, lease } = await openHeld({ ...times, connect });
      const release = record("submit-lock:release", lease.key);
      const pulse = await takePulse();
      proxy.holdRequests();
      const from = performance.now();
      expect(await lease.release()).toBe("unconfirmed");
      expect(performance.now() - from).toBeLessThan(pulse.atMost(220));
      expect(release).toMatchObject([{ outcome: "unconfirmed" }]);
      expect(await redis.exists(lease.key)).toBe(true);
      proxy.releaseHeld();
      await until(async () => !(await redis.exists(lease.key)), { what: "the key to be deleted" });
    });

    test("unconfirmed, and no rejection, when the application has closed its client before", async () => {
      const times = { ttlMs: 1_000, acquireTimeoutMs: 100, commandTimeoutMs: 50 };
      const { client, redis, lease } = await openHeld({ ...times, connect });
      closeClient(client);
      expect(await lease.release()).toBe("unconfirmed");
      await redis.send("DEL", lease.key);
    });
  },
);
