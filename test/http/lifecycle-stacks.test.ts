import { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { until } from "../support/until.ts";
import { all, allSeeing, expresses, type Framework, hasLayers, seesOutside } from "./frameworks.ts";
import { departure } from "./gate.ts";
import { compressionLayer, sessionLayer } from "./layers.ts";
import {
  leavesAndRetries,
  leavesInTheMiddle,
  type Moments,
  type OrderWork,
  openShop,
} from "./shop.ts";
import type { Layer, Turn } from "./turn.ts";

const saveMs = 30;

/** In which order the guard and others stand, from the outermost. */
const orders: { stack: string; parts: () => { outside?: Layer[]; inside?: Layer[] } }[] = [
  {
    stack: "under compression and a session",
    parts: () => ({ outside: [compressionLayer(), sessionLayer(saveMs)] }),
  },
  { stack: "round a session", parts: () => ({ inside: [sessionLayer(saveMs)] }) },
  {
    stack: "between a session and compression",
    parts: () => ({ outside: [sessionLayer(saveMs)], inside: [compressionLayer()] }),
  },
];

const ordersOn = (framework: Framework) =>
  orders.filter(({ parts }) => parts().inside === undefined || hasLayers(framework));

const long = "an order of many items, ".repeat(2_000);

const gzip = { "accept-encoding": "gzip" };

describe.each(all)("$name", (framework: Framework) => {
  describe.each(ordersOn(framework))("$stack", ({ parts }) => {
    test("an order whose client has left keeps the lock until it is done, and not longer", async () => {
      const handler = async (turn: Turn, work: OrderWork, { started, goOn }: Moments) => {
        started();
        await goOn;
        await work.over();
        turn.answer(201, long, "text/plain");
      };
      await leavesAndRetries({ framework, handler, headers: gzip, ...parts() });
    });
  });

  const outside = test.runIf(seesOutside(framework));
  outside("the lock is not given back before a session outside it is saved", async () => {
    const session = sessionLayer(60);
    const handler = async (turn: Turn, work: OrderWork) => {
      await work.over();
      turn.answer(201, { order: "placed" });
    };
    const shop = await openShop({ framework, handler, outside: [session] });
    const call = shop.submit();
    while (shop.published.releases.length === 0) await sleep(1);
    // The session of Koa is saved further out, so there the end of the response comes after it.
    expect(session.saved).toEqual(["the-session"]);
    expect((await call.reply).status).toBe(201);
    await shop.isOverAfter(1);
  });
});

describe.each(all.filter(seesOutside))("$name", (framework: Framework) => {
  test("a session outside the lock is saved before the next order, when the client has left, too", async () => {
    const session = sessionLayer(60);
    const leaving = departure();
    const shop = await openShop({
      framework,
      outside: [session],
      handler: async (turn, work) => {
        leaving.seenBy(turn.res);
        await leaving.during();
        await work.over();
        turn.answer(201, { order: "placed" });
      },
    });
    await leaving.of(shop.submit());
    const next = await until(
      async () => {
        const attempt = await shop.lock.acquire(shop.user);
        return attempt.outcome === "acquired" && attempt.lease;
      },
      { what: "the next order's lock" },
    );
    expect(session.saved).toEqual(["the-session"]);
    await next.release();
    await shop.isOverAfter(2);
  });
});

describe.each(allSeeing)("$name", (framework: Framework) => {
  test.each(ordersOn(framework))(
    "$stack, a client that leaves in the middle of a body ends the lock",
    async ({ parts }) => {
      const handler = async (turn: Turn, work: OrderWork) => {
        const endlessly = async function* () {
          for (;;) {
            yield long;
            await sleep(1);
          }
        };
        turn.res.setHeader("content-type", "text/plain");
        work.overNow();
        await turn.stream(Readable.from(endlessly()));
      };
      await leavesInTheMiddle({ framework, handler, ...parts() }, gzip);
    },
  );
});

/** Text that compression cannot make much shorter, so that some of it is sent at once. */
const noise = () => Array.from({ length: 5_000 }, () => Math.random()).join(" ");

describe.each(expresses)("$name", (framework: Framework) => {
  test("a compressed response whose client leaves between two writes ends the lock", async () => {
    await leavesAndRetries({
      framework,
      outside: [compressionLayer()],
      headers: gzip,
      handler: async (turn, work, { started, goOn }) => {
        const res = turn.byHand();
        res.setHeader("content-type", "text/plain");
        res.write(noise());
        started();
        await goOn;
        // Compression never comes to the end of it.
        res.write(noise());
        await work.over();
        res.end();
      },
    });
  });
});

describe.each(all.filter(({ family }) => family !== "express"))("$name", (framework: Framework) => {
  test("a body behind compression that is still writing the order keeps the lock when its client has left", async () => {
    await leavesAndRetries({
      framework,
      inside: [compressionLayer()],
      headers: gzip,
      handler: (turn, work, { started, goOn }) => {
        const parts = async function* () {
          for (let i = 0; i < 10; i++) yield noise();
          started();
          await goOn;
          await work.over();
          yield "the last part";
        };
        turn.res.setHeader("content-type", "text/plain");
        turn.stream(Readable.from(parts()));
      },
    });
  });
});
