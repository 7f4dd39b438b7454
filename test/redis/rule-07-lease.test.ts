import { afterEach, describe, expect, test } from "vitest";
import { freshUser } from "../support/ids.ts";
import { leaseOf } from "../support/locks.ts";
import { forTest, startRedis } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { closeFixtures, isExtend, openFixture, openHeld } from "./fixture.ts";

afterEach(closeFixtures);

const short = { ttlMs: 600, acquireTimeoutMs: 250, commandTimeoutMs: 60 } as const;

/** What is a matter of time alone is tested in virtual time, in `test/unit`. */
describe("rule 7, P5: a lease is valid for what it was promised", () => {
  test("with maxHoldMs equal to ttlMs it is never extended", async () => {
    const { proxy, lease } = await openHeld({ ...short, maxHoldMs: 600 });
    const { signal } = lease;
    await until(() => signal.aborted, { what: "the end of the lease" });
    expect(proxy.commands.filter(isExtend)).toEqual([]);
  });

  test("when a connection comes back, all leases are extended at once", async () => {
    const { lock, proxy } = await openFixture({ ttlMs: 30_000 });
    const leases = [await leaseOf(lock, freshUser()), await leaseOf(lock, freshUser())];
    proxy.resetAll();
    await until(() => proxy.commands.some(isExtend), { what: "the extend after the reconnect" });
    const [, , keys] = proxy.commands.find(isExtend) as string[];
    expect(keys).toBe("2");
    expect(await Promise.all(leases.map((lease) => lease.release()))).toEqual([
      "released",
      "released",
    ]);
  });

  test("a Redis that restarted empty has lost the lease, and its holder hears of it at once", async () => {
    const server = await forTest(startRedis());
    const { lease } = await openHeld({ port: server.port, ttlMs: 30_000 });
    const { signal } = lease;
    await server.restart();
    await until(() => signal.aborted, { what: "the signal to abort" });
    expect(signal.reason).toMatchObject({ reason: "overtaken" });
  });
});
