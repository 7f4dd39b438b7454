import { afterAll, expect, test } from "vitest";
import { endAll } from "../../support/child.ts";
import { type RedisServer, startRedis } from "../../support/redis-server.ts";
import { runExample } from "./run-example.ts";

let redis: RedisServer | undefined;

afterAll(async () => {
  endAll();
  await redis?.stop();
});

test.each(["in the memory of this process", "in Redis"])(
  "a return page and two events, each sent twice, are one order of a payment, with locks %s",
  async (place) => {
    if (place === "in Redis") redis = await startRedis();
    const env = redis ? { REDIS_URL: redis.url } : {};
    const example = runExample("examples/payment.ts", { env });
    expect(await example.ended, example.output()).toBe(0);
    expect(example.output()).toContain(`Locks are kept ${place}`);
    for (const [at, moment] of ["before", "during", "after"].entries()) {
      const said = example.output().match(new RegExp(`(?<=return ${moment}  ).*`, "g")) ?? [];
      expect(said.at(-1)).toBe("orders: 1");
      expect(said).toContain(`return page: Thank you for order ${at + 1}`);
      for (const event of ["payment.authorised", "payment.captured"]) {
        expect(said).toContain(`${event}: 200`);
        expect(said).toContain(`${event}, again: 200`);
      }
    }
  },
);
