import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { RedisStore, type SubmitLock } from "../../src/index.ts";
import { type AnyRedis, closeClients, redisClients, untilReady } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, leaseOf, openLock } from "../support/locks.ts";
import { type KeyObserver, observer } from "../support/observer.ts";
import { type RedisServer, startRedis } from "../support/redis-server.ts";
import { until } from "../support/until.ts";

let server: RedisServer;
let redis: KeyObserver;
const warnings: Error[] = [];
const keepWarning = (warning: Error) => warnings.push(warning);
beforeEach(async () => {
  server = await startRedis();
  redis = observer(server.port);
  warnings.length = 0;
  process.on("warning", keepWarning);
});
afterEach(async () => {
  process.off("warning", keepWarning);
  await closeLocks();
  closeClients();
  await server.stop();
});

/** What the client is called, and so every duplicate of it. */
const connectionName = "shop";
const connections = async () =>
  String(await redis.send("CLIENT", "LIST")).match(/ name=shop /g)?.length ?? 0;
/** Without the one that stays on a node-redis client, of an event that nobody emits. */
const listenersOf = (client: AnyRedis) =>
  client
    .eventNames()
    .filter((name) => String(name) !== "Symbol(submit-lock)")
    .map((name) => [name, client.listenerCount(name)]);
const times = { ttlMs: 20_000, acquireTimeoutMs: 10_000, commandTimeoutMs: 50 } as const;
const fifteen = (client: AnyRedis): SubmitLock[] =>
  Array.from({ length: 15 }, (_, i) =>
    openLock({ store: new RedisStore(client), keyPrefix: `lock:route-${i}:`, ...times }),
  );

describe.each(redisClients)(
  "stores on one client share its connections, with $name",
  ({ connect }) => {
    test("fifteen stores with a lock each listen once, and open one second connection while Redis is paused", async () => {
      const client = connect(server.port, { connectionName });
      await untilReady(client);
      const listeners = listenersOf(client);
      const locks = fifteen(client);
      expect(client.listenerCount("ready")).toBe(1);
      // Warnings are emitted in a later turn.
      await new Promise(setImmediate);
      expect(warnings).toEqual([]);
      expect(await connections()).toBe(1);

      await redis.send("CLIENT", "PAUSE", 700, "WRITE");
      const user = freshUser();
      const leases = Promise.all(locks.map((lock) => leaseOf(lock, user)));
      await until(async () => (await connections()) === 2, { what: "the second connection" });
      for (const lease of await leases) await lease.release();
      await until(async () => (await connections()) === 2, { what: "no third connection" });

      const [last, ...others] = locks as [SubmitLock, ...SubmitLock[]];
      for (const lock of others) await lock.close();
      expect(client.listenerCount("ready")).toBe(1);
      await last.withLock(user, {}, () => {});
      await last.close();
      expect(listenersOf(client)).toEqual(listeners);
      await until(async () => (await connections()) === 1, {
        what: "the second connection to be closed",
      });
      expect(warnings).toEqual([]);
    });

    test("a store on which no lock was made listens to nothing", async () => {
      const client = connect(server.port);
      const listeners = listenersOf(client);
      new RedisStore(client);
      expect(listenersOf(client)).toEqual(listeners);
    });

    test("stores of other clients share nothing", async () => {
      const clients = [connect(server.port), connect(server.port)];
      const [one, other] = clients.map((client) => openLock({ store: new RedisStore(client) }));
      expect(clients.map((client) => client.listenerCount("ready"))).toEqual([1, 1]);
      await one?.close();
      expect(clients.map((client) => client.listenerCount("ready"))).toEqual([0, 1]);
      await other?.withLock(freshUser(), { waitMs: 5_000 }, () => {});
    });
  },
);
