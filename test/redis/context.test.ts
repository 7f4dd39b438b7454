import { AsyncLocalStorage } from "node:async_hooks";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { afterEach, expect, test } from "vitest";
import type { Lease } from "../../src/index.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, leaseOf } from "../support/locks.ts";
import { until } from "../support/until.ts";
import { closeFixtures, openFixture } from "./fixture.ts";

afterEach(closeLocks);
afterEach(closeFixtures);

/** Leases that are soon lost. */
const brief = { ttlMs: 200, maxHoldMs: 200, acquireTimeoutMs: 100, commandTimeoutMs: 50 } as const;
const current = new AsyncLocalStorage<string>();

/** Many users at once, whose commands share calls and timers; each in a context of its own. */
const twenty = () => Array.from({ length: 20 }, freshUser);
async function leases(
  users: readonly string[],
  act: (user: string) => Promise<Lease>,
): Promise<Lease[]> {
  return await Promise.all(users.map((user) => current.run(user, () => act(user))));
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
      if (users.includes(user)) heard.push(`${name} ${user === current.getStore()}`);
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
    lease.signal.addEventListener("abort", () => heard.push(current.getStore() === user));
    return lease;
  });
  await until(() => heard.length === users.length, { what: "every holder to be told" });
  expect(heard).not.toContain(false);
});
