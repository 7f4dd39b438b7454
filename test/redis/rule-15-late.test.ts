import { afterEach, expect, test } from "vitest";
import { completeScript } from "../../src/stores/redis/commands/complete.ts";
import { closeClients, ioredis6 } from "../support/clients.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { onceOf, recordOf } from "../support/submissions.ts";

afterEach(closeClients);

test("rule 15: a complete after the answer's time is too late, whoever has recorded another one since", async () => {
  const redis = ioredis6.connect(sharedRedisPort());
  const [late, other] = [onceOf(), onceOf()];
  const record = `{${late.key}}:record`;
  const complete = async ({ ownerId }: typeof late, text: string, expiresInMs: number) => {
    const now = Number((await redis.time())[0]) * 1_000;
    const args = [ownerId, text, now + expiresInMs, 0];
    return ((await redis.eval(completeScript, 2, late.key, record, ...args)) as number[])[1];
  };
  expect(await complete(other, recordOf(other, "order 8"), 60_000)).toBe(3);
  // It is no second run of the same submission: that one's answer had been forgotten in between.
  expect(await complete(late, recordOf(late), -60_000)).toBe(0);
  expect(await complete(late, recordOf(late), 60_000)).toBe(-2);
  await redis.del(record);
});
