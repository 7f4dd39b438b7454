import { inspect } from "node:util";
import { afterEach, describe, expect, test } from "vitest";
import { freshUser } from "../support/ids.ts";
import { causeOf } from "../support/locks.ts";
import { observer } from "../support/observer.ts";
import { startRedis } from "../support/redis-server.ts";
import { closeFixtures, isAcquire, openFixture, ownersOf } from "./fixture.ts";

afterEach(closeFixtures);

/** A command that breaks Redis; without one, Redis falls silent. */
type Fault = [name: string, breakIt: [string, ...(string | number)[]] | undefined];

/** Everything that a logger could make of a value. */
const shown = (value: unknown) =>
  inspect(value, { depth: 10, showHidden: true, getters: false }) +
  JSON.stringify(value) +
  (value instanceof Error ? `${value.stack}${JSON.stringify({ ...value })}` : "");

describe("the owner id stays out of logs", () => {
  test.each([
    ["an outage", undefined],
    ["a refusal", ["CONFIG", "SET", "maxmemory", 1]],
    ["a user without permission", ["ACL", "SETUSER", "default", "-set"]],
    ["an unknown command", ["ACL", "SETUSER", "default", "-eval"]],
  ] as Fault[])("of the cause of %s", async (_name, breakIt) => {
    const server = await startRedis();
    const clientOptions = { commandTimeout: 50 };
    const { lock, proxy } = await openFixture({
      port: server.port,
      acquireTimeoutMs: 200,
      clientOptions,
    });
    if (breakIt === undefined) proxy.holdRequests();
    else await observer(server.port).send(...breakIt);
    const text = shown(causeOf(await lock.acquire(freshUser())));
    const ownerIds = proxy.commands.filter(isAcquire).flatMap(ownersOf);
    expect(ownerIds.length).toBeGreaterThan(0);
    for (const ownerId of ownerIds) expect(text).not.toContain(ownerId);
    await server.stop();
  });
});
