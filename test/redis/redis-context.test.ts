import { AsyncLocalStorage } from "node:async_hooks";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { once } from "node:events";
import { afterEach, describe, expect, test } from "vitest";
import { type Lease, RedisStore } from "../../src/index.ts";
import { ioredisClients } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { acquired, leaseOf, openLock } from "../support/locks.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { closeFixtures, isAcquire, openFixture } from "./fixture.ts";

afterEach(closeFixtures);

const context = new AsyncLocalStorage<string>();

interface Seen {
  readonly method: string;
  readonly context: string | undefined;
}

/** The context of every call of these methods from now on, those of its duplicates included. */
function contextsOf(client: object, seen: Seen[] = []): Seen[] {
  for (const method of ["eval", "evalsha", "duplicate", "connect"]) {
    const original = Reflect.get(client, method) as (...args: unknown[]) => unknown;
    Reflect.set(client, method, (...args: unknown[]) => {
      seen.push({ method, context: context.getStore() });
      const result = original.apply(client, args);
      if (method === "duplicate") contextsOf(result as object, seen);
      return result;
    });
  }
  return seen;
}
const withContext = (seen: Seen[]) => seen.filter((each) => each.context !== undefined);
const countOf = (seen: Seen[], ...names: string[]) =>
  seen.filter(({ method }) => names.includes(method)).length;

describe.each(ioredisClients)(
  "the context of no request reaches Redis' client, with $name",
  ({ connect }) => {
    test("nor has any acquire, extend or release of a lock the context of a request", async () => {
      const { lock, client } = await openFixture({
        connect,
        ttlMs: 1_500,
        acquireTimeoutMs: 750,
        commandTimeoutMs: 200,
      });
      const seen = contextsOf(client);
      await context.run("first request", async () => {
        await (await leaseOf(lock, freshUser())).release();
      });
      await context.run("second request", async () => {
        const lease = await leaseOf(lock, freshUser());
        await until(() => seen.length >= 5, { what: "two extends" });
        await lease.release();
        expect(context.getStore()).toBe("second request");
      });
      expect(withContext(seen)).toEqual([]);
    });

    test("the second connection and its calls have the context of none", async () => {
      const { lock, client, proxy } = await openFixture({ connect });
      const seen = contextsOf(client);
      const lost = proxy.loseReplyOnce(isAcquire);
      const { lease } = acquired(await context.run("request", () => lock.acquire(freshUser())));
      await lost;
      const before = countOf(seen, "eval", "evalsha");
      await context.run("request", () => lease.release());
      expect(countOf(seen, "duplicate")).toBe(1);
      expect(countOf(seen, "eval", "evalsha")).toBeGreaterThan(before);
      expect(withContext(seen)).toEqual([]);
    });

    test("a lazy client that a lock connects in the middle of a request has the context of none", async () => {
      const client = connect(sharedRedisPort(), { lazyConnect: true });
      const seen = contextsOf(client);
      const ready = once(client, "ready");
      const lock = openLock({ store: new RedisStore(client) });
      const attempt = context.run("request", () => lock.acquire(freshUser()));
      await ready;
      await attempt;
      expect(seen[0]).toEqual({ method: "connect", context: undefined });
      expect(withContext(seen)).toEqual([]);
    });
  },
);

/** Leases that are soon lost. */
const brief = { ttlMs: 200, maxHoldMs: 200, acquireTimeoutMs: 100, commandTimeoutMs: 50 } as const;

/** Many users at once, whose commands share calls and timers; each in a context of its own. */
const twenty = () => Array.from({ length: 20 }, freshUser);
async function leases(
  users: readonly string[],
  act: (user: string) => Promise<Lease>,
): Promise<Lease[]> {
  return await Promise.all(users.map((user) => context.run(user, () => act(user))));
}

const names = ["submit-lock:acquire", "submit-lock:release", "submit-lock:lost"] as const;

test("every message is published in the context of whoever asked for the lock", async () => {
  const { lock } = await openFixture(brief);
  const users = twenty();
  const heard: string[] = [];
  const listeners = names.map((name) => {
    const listener = (message: unknown) => {
      const { key } = message as { key: string };
      const user = key.replace("lock:submit:", "");
      if (users.includes(user)) heard.push(`${name} ${user === context.getStore()}`);
    };
    subscribe(name, listener);
    return () => unsubscribe(name, listener);
  });
  const held = await leases(users, (user) => leaseOf(lock, user));
  await Promise.all(held.slice(0, 10).map((lease) => lease.release()));
  const count = (name: string) => heard.filter((each) => each.startsWith(name)).length;
  // A busy machine asks more than once for some of them, and so hears of more acquires.
  await until(() => count(names[1]) >= 10 && count(names[2]) >= 10, {
    what: "10 releases and 10 losses",
  });
  for (const stop of listeners) stop();
  expect(heard.filter((each) => each.endsWith("false"))).toEqual([]);
  for (const name of names) expect(heard).toContain(`${name} true`);
});

test("a listener of the signal runs in the context of whoever asked for the signal", async () => {
  const { lock } = await openFixture(brief);
  const users = twenty();
  const heard: boolean[] = [];
  await leases(users, async (user) => {
    const lease = await leaseOf(lock, user);
    lease.signal.addEventListener("abort", () => heard.push(context.getStore() === user));
    return lease;
  });
  await until(() => heard.length === users.length, { what: "every holder to be told" });
  expect(heard).not.toContain(false);
});
