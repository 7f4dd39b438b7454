import { afterEach, describe, expect, test } from "vitest";
import { submitGuard as expressGuard } from "../../src/express/index.ts";
import { submitGuard as fastifyGuard } from "../../src/fastify/index.ts";
import { submitGuard as fetchGuard } from "../../src/fetch/index.ts";
import { RedisStore } from "../../src/index.ts";
import { submitGuard as koaGuard } from "../../src/koa/index.ts";
import { ioredis6 } from "../support/clients.ts";
import { closeLocks, openLock } from "../support/locks.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import type { Framework } from "./frameworks.ts";
import { anotherCopy, guardLayer } from "./layers.ts";
import { codeOf, onAll, openOnce, orderKey, unmarked } from "./once-shop.ts";
import { patientTimes, sharedRedis } from "./shop.ts";
import { type Layer, userOf } from "./turn.ts";

afterEach(closeLocks);

const redis = () => ioredis6.connect(sharedRedisPort());
const openPlain = () => openLock({ store: new RedisStore(sharedRedis()), ...patientTimes });

describe.each(onAll)("rule 13: mounts with idempotency, on $name", (framework: Framework) => {
  // On Hono nothing is between a guard and its handler.
  const hasInside = framework.family !== "fetch";
  const places = hasInside ? (["inside", "outside"] as const) : (["outside"] as const);

  test.runIf(hasInside)(
    "a plain guard further in borrows, and the outer one keeps the answer",
    async () => {
      const submissions: unknown[] = [];
      const once = await openOnce({
        framework,
        inside: [guardLayer(openPlain())],
        handler: (turn, run) => {
          submissions.push(turn.submission?.id);
          turn.answer(201, { run });
        },
      });
      const [first, second] = await once.twice();
      expect([first.status, first.body]).toEqual([201, '{"run":1}']);
      expect(unmarked(second)).toEqual(unmarked(first));
      expect(submissions).toEqual([expect.stringMatching(/^[\w-]{22}$/)]);
      expect(await once.records()).toHaveLength(1);
    },
  );

  test("a plain guard further out is an error, because nothing would be kept", async () => {
    const once = await openOnce({ framework, outside: [guardLayer(openPlain())] });
    const reply = await once.submit({ key: orderKey });
    expect([reply.status, once.runs]).toEqual([500, 0]);
    expect(once.shop.errors[0]).toMatchObject({
      code: "SUBMIT_LOCK_INVALID_OPTION",
      message: expect.stringContaining("outermost"),
    });
    await once.whenKept(0);
  });

  test.each(places)(
    "a guard of another copy of the package, %s, is contended, and nothing runs or is kept",
    async (place) => {
      const copy = await anotherCopy();
      const store = new copy.Store(redis());
      const lock = new copy.SubmitLock({ store, ...patientTimes });
      const once = await openOnce({ framework, [place]: [guardLayer(lock, copy)] });
      const reply = await once.submit({ key: orderKey });
      expect([reply.status, codeOf(reply)]).toEqual([409, "submit_contended"]);
      expect(once.runs).toBe(0);
      await once.whenKept(0);
      await lock.close();
    },
  );

  test("two guards with idempotency on one request are an error, unless they are one", async () => {
    const lock = openPlain();
    const idempotency = {};
    const other: Layer = {
      express: () => expressGuard({ lock, userId: (req) => req.get("x-user"), idempotency }),
      koa: () => koaGuard({ lock, userId: (ctx) => ctx.get("x-user"), idempotency }),
      fastify: (_app, handler) =>
        fastifyGuard({ lock, userId: ({ raw }) => userOf(raw), idempotency }).protect(handler),
      hono: () => {
        const guard = fetchGuard({
          lock,
          userId: ({ headers }) => headers.get("x-user"),
          idempotency,
        });
        return async (c, next) => {
          c.res = await guard.protect(async () => {
            await next();
            return c.res;
          })(c.req.raw);
        };
      },
    };
    const once = await openOnce({ framework, outside: [other] });
    expect((await once.submit({ key: orderKey })).status).toBe(500);
    expect(once.runs).toBe(0);
  });
});
