import { afterEach, expect, test } from "vitest";
import { RedisStore } from "../../src/index.ts";
import { closeClients, redisClients } from "../support/clients.ts";

afterEach(closeClients);

const connect = (redisClients[0] as (typeof redisClients)[0]).connect;
/** Never connected: nothing is listened to while there is no lock. */
const client = () => connect(1, { lazyConnect: true });

test.each([0, -1, 1.5, 101, Number.NaN, "1", null, true])(
  "ackReplicas: %j is no number of replicas",
  (ackReplicas) => {
    const make = () => new RedisStore(client(), { ackReplicas: ackReplicas as number });
    expect(make).toThrow(/^ackReplicas: expected a whole number from 1 to 100, got /);
  },
);

test.each([1, 2, 100, undefined])("ackReplicas: %j is taken", (ackReplicas) => {
  expect(() => new RedisStore(client(), { ackReplicas })).not.toThrow();
});

test("an option that is none is refused", () => {
  expect(() => new RedisStore(client(), { ackReplica: 1 } as never)).toThrow(
    'RedisStore options: expected only ackReplicas, got the unknown option "ackReplica"',
  );
  expect(() => new RedisStore(client(), 1 as never)).toThrow(/expected an object, got 1$/);
});

test("a client that writes no pipelines cannot wait for replicas", () => {
  const without = Object.assign(Object.create(client()), { pipeline: undefined });
  expect(() => new RedisStore(without)).not.toThrow();
  expect(() => new RedisStore(without, { ackReplicas: 1 })).toThrow(
    "ackReplicas: expected an ioredis client with pipeline(), got one without it",
  );
});
