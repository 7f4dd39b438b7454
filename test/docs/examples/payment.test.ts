import { expect, test } from "vitest";
import { forTest, startRedis } from "../../support/redis-server.ts";
import { runExample } from "./run-example.ts";

test("a return page and two events, each sent twice, are one order of a payment", async () => {
  const redis = await forTest(startRedis());
  const example = runExample("examples/payment.ts", { env: { REDIS_URL: redis.url } });
  expect(await example.ended, example.output()).toBe(0);
  expect(example.output()).toContain("Locks are kept in Redis");
  for (const [at, moment] of ["before", "during", "after"].entries()) {
    const said = example.output().match(new RegExp(`(?<=return ${moment}  ).*`, "g")) ?? [];
    expect(said.at(-1)).toBe("orders: 1");
    expect(said).toContain(`return page: Thank you for order ${at + 1}`);
    for (const event of ["payment.authorised", "payment.captured"]) {
      expect(said).toContain(`${event}: 200`);
      expect(said).toContain(`${event}, again: 200`);
    }
  }
});
