import { afterAll, describe, expect, test } from "vitest";
import { onAll } from "../../http/once-shop.ts";
import { closeClients } from "../../support/clients.ts";
import { type LifecycleOptions, live } from "./lifecycle.ts";

const seed = Number(process.env["LIFECYCLE_SEED"] ?? Math.floor(Math.random() * 2 ** 32));
const ways = onAll.flatMap((framework) =>
  [false, true].map((isOnce) => ({
    framework,
    isOnce,
    name: `${framework.name}, ${isOnce ? "with idempotency" : "the lock alone"}`,
  })),
);

/** The suite of the random lifecycle, with so many visits for each framework and guard. */
export function lifecycleSuite(size: Pick<LifecycleOptions, "customers" | "rounds">): void {
  afterAll(closeClients);
  describe(`P1 and P5: clients that come and leave at random, LIFECYCLE_SEED=${seed}`, () => {
    test.concurrent.each(ways)("leave no lock and no second holder: $name", async (way) => {
      const { orders, overlaps } = await live({ ...way, seed, ...size });
      expect(overlaps).toEqual([]);
      expect(orders).toBeGreaterThan(0);
    });
  });
}
