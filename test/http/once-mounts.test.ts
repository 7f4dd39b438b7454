import { afterEach, describe, expect, test } from "vitest";
import { submitGuard as expressGuard } from "../../src/express/index.ts";
import { RedisStore } from "../../src/index.ts";
import { submitGuard as koaGuard } from "../../src/koa/index.ts";
import { ioredis6 } from "../support/clients.ts";
import { closeLocks, openLock } from "../support/locks.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { anotherCopy } from "./another-copy.ts";
import type { Framework } from "./frameworks.ts";
import { guardLayer } from "./layers.ts";
import { everywhere, openOnce, orderKey, unmarked } from "./once-shop.ts";
import { closeShops, patientTimes } from "./shop.ts";
import type { Layer } from "./turn.ts";

afterEach(async () => {
  await closeShops();
  await closeLocks();
});

const redis = () => ioredis6.connect(sharedRedisPort());
const openPlain = () => openLock({ store: new RedisStore(redis()), ...patientTimes });

const here = async () => ({ copy: { expressGuard, koaGuard }, lock: openPlain() });
const elsewhere = async () => {
  const copy = await anotherCopy();
  return { copy, lock: new copy.SubmitLock({ store: new copy.Store(redis()), ...patientTimes }) };
};

describe.each(everywhere)("rule 13: mounts with idempotency, on $name", (framework: Framework) => {
  describe.each([
    ["this copy of the package", here],
    ["another copy of the package", elsewhere],
  ])("a guard of %s", (_which, open) => {
    test("that is plain and further in borrows, and the outer one keeps the answer", async () => {
      const { copy, lock } = await open();
      const submissions: unknown[] = [];
      const once = await openOnce({
        framework,
        inside: [guardLayer(lock, copy)],
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
      await lock.close();
    });

    test("that is plain and further out is an error, because nothing would be kept", async () => {
      const { copy, lock } = await open();
      const once = await openOnce({ framework, outside: [guardLayer(lock, copy)] });
      const reply = await once.submit({ key: orderKey });
      expect([reply.status, once.runs]).toEqual([500, 0]);
      expect(once.shop.errors[0]).toMatchObject({
        code: "SUBMIT_LOCK_INVALID_OPTION",
        message: expect.stringContaining("outermost"),
      });
      await once.whenKept(0);
      await lock.close();
    });
  });

  test("two guards with idempotency on one request are an error, unless they are one", async () => {
    const lock = openPlain();
    const idempotency = {};
    const other: Layer = {
      express: () => expressGuard({ lock, userId: (req) => req.get("x-user"), idempotency }),
      koa: () => koaGuard({ lock, userId: (ctx) => ctx.get("x-user"), idempotency }),
    };
    const once = await openOnce({ framework, outside: [other] });
    expect((await once.submit({ key: orderKey })).status).toBe(500);
    expect(once.runs).toBe(0);
  });
});
