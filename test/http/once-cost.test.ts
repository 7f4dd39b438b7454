import { beforeEach, describe, expect, test } from "vitest";
import { ioredis6 } from "../support/clients.ts";
import { type RedisProxy, startProxy } from "../support/proxy.ts";
import { forTest, sharedRedisPort } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { type Framework, hasLayers, newestOnBoth } from "./frameworks.ts";
import { codeOf, type OnceOptions, openOnce, orderKey, unmarked } from "./once-shop.ts";

let proxy: RedisProxy;
beforeEach(async () => {
  proxy = await forTest(startProxy(sharedRedisPort()));
});

/** A shop whose connection to Redis is up, and what has passed the proxy since. */
async function warm(options: OnceOptions) {
  const once = await openOnce({ ...options, redis: ioredis6.connect(proxy.port) });
  await once.shop.lock.check();
  const before = proxy.commands.length;
  return { once, commands: () => proxy.commands.slice(before) };
}

const methods = ["end", "flushHeaders", "write", "writeHead"];

describe.each(newestOnBoth)("$name", (framework: Framework) => {
  test("a fresh order costs two commands, and whatever is not run costs one", async () => {
    const { once, commands } = await warm({ framework });
    await once.submit({ key: orderKey });
    await once.whenKept(1);
    expect(commands()).toHaveLength(2);
    for (const body of [undefined, { cart: 8 }]) {
      const before = commands().length;
      await once.submit({ key: orderKey, ...(body && { body }) });
      expect(commands()).toHaveLength(before + 1);
    }
    expect(once.runs).toBe(1);
  });

  test("a submit that is contended costs one command", async () => {
    const { once, commands } = await warm({ framework });
    await once.shop.lock.acquire(once.shop.user);
    const before = commands().length;
    expect((await once.submit()).status).toBe(409);
    expect(commands()).toHaveLength(before + 1);
  });

  test.each([
    ["record", {}],
    ["release", { idempotency: undefined } as object],
  ])("the answer waits for nothing but the handler: not for its %s", async (what, guard) => {
    const { once, commands } = await warm({
      framework,
      guard,
      handler: (turn, run) => {
        proxy.holdReplies();
        turn.answer(201, { run });
      },
    });
    expect((await once.submit({ key: orderKey })).status).toBe(201);
    await until(() => commands().length >= 2, { what: `the ${what} to be sent` });
    expect(once.shop.published.releases).toEqual([]);
    proxy.releaseHeld();
    await once.whenKept(what === "record" ? 1 : 0);
  });

  test("a retry elsewhere, before the record is there, is told to wait, and afterwards is repeated", async () => {
    let held: Promise<void> | undefined;
    const { once } = await warm({
      framework,
      handler: (turn, run) => {
        // The next one, which is the record.
        held = proxy.holdRequestOnce(() => true);
        turn.answer(201, { run });
      },
    });
    const elsewhere = await openOnce({ framework });
    const retry = () => elsewhere.submit({ key: orderKey, user: once.shop.user });
    const first = await once.submit({ key: orderKey });
    await held;
    for (let i = 0; i < 3; i++) expect(codeOf(await retry())).toBe("idempotency_in_flight");
    proxy.releaseHeld();
    await once.whenKept(1);
    expect(unmarked(await retry())).toEqual(unmarked(first));
    expect([once.runs, elsewhere.runs]).toEqual([1, 0]);
  });

  test.runIf(hasLayers(framework)).each([
    ["without idempotency", {}],
    ["without an id", { idempotency: {} }],
  ])(
    "%s the response is left as it is, and Redis is asked for a lock alone",
    async (_how, guard) => {
      const own: string[] = [];
      let beforeTheWork = 0;
      const { once, commands } = await warm({
        framework,
        guard: { idempotency: undefined, ...guard } as object,
        handler: ({ res, answer }, run) => {
          beforeTheWork = commands().length;
          own.push(...methods.filter((name) => Object.hasOwn(res, name)));
          answer(201, { run });
        },
      });
      await once.submit();
      await once.whenKept(0);
      // On HTTP/2 a lock alone, too, sees the end of a response nowhere but in its `end`.
      expect(own).toEqual(framework.http === 2 ? ["end"] : []);
      expect(beforeTheWork).toBe(1);
      const oneKey = ["eval", "1"];
      expect(commands().map(([name, , keys]) => [name?.toLowerCase(), keys])).toEqual([
        oneKey,
        oneKey,
      ]);
      expect(commands().flat().join()).not.toContain("{lock");
    },
  );
});
