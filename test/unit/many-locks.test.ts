import { afterAll, expect, test, vi } from "vitest";
import { RedisStore, SubmitLock } from "../../src/index.ts";
import { closeClients, everyRedisClient } from "../support/clients.ts";

afterAll(closeClients);

const lazily = { lazyConnect: true };
const isOfLocks = (given: unknown) =>
  (given as { code?: string } | undefined)?.code === "SUBMIT_LOCK_MANY_LOCKS";

test("the thousandth open lock of a client is warned of, once, and one that was closed does not count", async () => {
  const emitted = vi.spyOn(process, "emitWarning").mockImplementation(() => {});
  const warnings = () => emitted.mock.calls.filter(([, options]) => isOfLocks(options));
  const [first, ...others] = everyRedisClient.map(({ connect }) => connect(1, lazily));
  const store = new RedisStore(first as never);
  for (let made = 0; made < 2_000; made++) await new SubmitLock({ store }).close();
  // A store for each, as well: the client is what they share.
  const open = Array.from({ length: 999 }, () => {
    return new SubmitLock({ store: new RedisStore(first as never) });
  });
  expect(warnings()).toEqual([]);
  open.push(new SubmitLock({ store }));
  expect(warnings()).toHaveLength(1);
  expect(warnings()[0]?.[0]).toContain("1000 locks are open on one Redis client: make one");
  for (const client of others) {
    const each = new RedisStore(client as never);
    for (let made = 0; made < 1_100; made++) open.push(new SubmitLock({ store: each }));
  }
  expect(warnings()).toHaveLength(1);
  emitted.mockRestore();
  await Promise.all(open.map((lock) => lock.close({ timeoutMs: 0 })));
});
