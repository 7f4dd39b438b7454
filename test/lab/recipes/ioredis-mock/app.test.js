import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import RedisMock from "ioredis-mock";
import { MemoryStore, RedisStore, SubmitLock } from "submit-lock";
import { createApp } from "./app.js";

test("the lock's store refuses the mock, and says what to use", () => {
  assert.throws(() => new RedisStore(new RedisMock()), {
    code: "SUBMIT_LOCK_INVALID_OPTION",
    message: /got ioredis-mock, .*: use new MemoryStore\(\) in tests/,
  });
});

test("with a MemoryStore beside the mock, two clicks are one order", async (t) => {
  const redis = new RedisMock();
  const lock = new SubmitLock({ store: new MemoryStore() });
  const server = createApp({ redis, lock, pay: async () => ({ charge: 1 }) }).listen(0);
  t.after(() => {
    server.close();
    server.closeAllConnections();
    return lock.close();
  });
  await once(server, "listening");
  const submit = () =>
    fetch(`http://127.0.0.1:${server.address().port}/orders`, {
      method: "POST",
      headers: { "x-user-id": "42", "idempotency-key": "one-order" },
    });

  const attempt = await lock.acquire("42"); // another order of this user is under way
  assert.equal((await submit()).status, 409);
  await attempt.lease.release();

  const first = await submit();
  assert.equal(first.status, 201);
  const late = await submit();
  assert.equal(late.headers.get("idempotent-replayed"), "true");
  assert.deepEqual(await late.json(), await first.json());
  assert.equal(await redis.llen("orders:42"), 1); // the mock keeps what it can
});
