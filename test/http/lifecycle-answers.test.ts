import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, test } from "vitest";
import { until } from "../support/until.ts";
import { all, type Framework, onHttp1, seesOutside, writesByHand } from "./frameworks.ts";
import { gate } from "./gate.ts";
import { closeShops, type OrderWork, type Shop, sameWithoutLock } from "./shop.ts";
import type { Turn } from "./turn.ts";

afterEach(closeShops);

/** The reply to one submit. */
const once = (shop: Shop) => shop.submit().reply;

async function place(turn: Turn, work: OrderWork): Promise<void> {
  await sleep(5);
  await work.over();
  turn.res.setHeader("x-shop", "ours");
  turn.answer(201, { order: "placed" });
}

describe.each(all)("P5 and P8: answers, on $name", (framework: Framework) => {
  test("an ordinary answer is what it was, and ends the lock", async () => {
    const shop = await sameWithoutLock({ framework, handler: place }, async (of) => {
      const reply = await once(of);
      expect(reply).toMatchObject({ status: 201, headers: { "x-shop": "ours" } });
      return reply;
    });
    await shop.isOverAfter(1);
  });

  test("an answer without a body is what it was, and ends the lock", async () => {
    const handler = async (turn: Turn, work: OrderWork) => {
      await work.over();
      turn.answer(304, null);
    };
    const shop = await sameWithoutLock({ framework, handler }, async (of) => {
      const reply = await of.submit({ method: "GET" }).reply;
      expect(reply).toMatchObject({ status: 304, body: "" });
      return reply;
    });
    await shop.isOverAfter(1);
  });

  test("the next submit on the same connection goes through", async () => {
    const shop = await sameWithoutLock({ framework, handler: place }, async (of) => {
      const client = of.client();
      const replies: unknown[] = [];
      for (let i = 0; i < 5; i++) {
        replies.push(await client.call({ headers: { "x-user": of.user } }).reply);
      }
      return replies;
    });
    expect(shop.work.started).toBe(5);
    await shop.isOverAfter(5);
  });

  test("a handler that throws at once is answered by the error handler, and ends the lock", async () => {
    const handler = (_turn: Turn, work: OrderWork) => {
      work.overNow();
      throw new Error("thrown");
    };
    const shop = await sameWithoutLock({ framework, handler }, once);
    expect(shop.errors).toEqual([new Error("thrown")]);
    await shop.isOverAfter(1);
  });

  test("a handler that rejects is answered by the error handler, and ends the lock", async () => {
    const handler = async (_turn: Turn, work: OrderWork) => {
      await sleep(5);
      await work.over();
      throw Object.assign(new Error("rejected"), { status: 422 });
    };
    const shop = await sameWithoutLock({ framework, handler }, async (of) => {
      const reply = await once(of);
      expect(reply.status).toBe(422);
      return reply;
    });
    expect(shop.errors).toMatchObject([{ message: "rejected" }]);
    await shop.isOverAfter(1);
  });

  test.runIf(seesOutside(framework))(
    "the lock is held until a late error handler has answered",
    async () => {
      const handler = async (turn: Turn, work: OrderWork) => {
        work.overNow();
        turn.fail(new Error("passed on"));
      };
      let late = gate();
      const beforeErrorAnswer = () => late.opened;
      const shop = await sameWithoutLock({ framework, handler, beforeErrorAnswer }, async (of) => {
        late = gate();
        const call = of.submit();
        await until(() => of.errors.length === 1, { what: "the error to come in" });
        // Time for a release that would be too early.
        await sleep(30);
        // The lock of the shop without one is free, of course.
        if (of.published.acquired.length > 0) expect(await of.owner()).not.toBeNull();
        late.open();
        return await call.reply;
      });
      await shop.isOverAfter(1);
    },
  );

  test.runIf(writesByHand(framework))(
    "a handler that writes by hand is answered as before, and ends the lock",
    async () => {
      const handler = async (turn: Turn, work: OrderWork) => {
        const res = turn.byHand();
        res.statusCode = 202;
        res.setHeader("content-type", "text/plain");
        for (const part of ["one ", "two ", "three"]) {
          res.write(part);
          await sleep(2);
        }
        await work.over();
        res.end(".");
      };
      const shop = await sameWithoutLock({ framework, handler }, async (of) => {
        const reply = await once(of);
        expect(reply).toMatchObject({ status: 202, body: "one two three." });
        return reply;
      });
      await shop.isOverAfter(1);
    },
  );

  test.runIf(writesByHand(framework))(
    "a handler in callback style is answered as before, and ends the lock",
    async () => {
      const handler = (turn: Turn, work: OrderWork) => {
        const res = turn.byHand();
        setTimeout(() => {
          void work.over().then(() => res.end("called back"));
        }, 5);
      };
      const shop = await sameWithoutLock({ framework, handler }, once);
      await shop.isOverAfter(1);
    },
  );

  test("a path without a handler keeps no lock", async () => {
    const shop = await sameWithoutLock(
      { framework, handler: place },
      (of) => of.submit({ path: "/elsewhere" }).reply,
    );
    await shop.isOverAfter(framework.family === "koa" ? 1 : 0);
  });
});

describe.each(onHttp1)("$name", (framework: Framework) => {
  test("an answer to HEAD is what it was, and ends the lock", async () => {
    const shop = await sameWithoutLock({ framework, handler: place }, async (of) => {
      const reply = await of.submit({ method: "HEAD" }).reply;
      expect(reply).toMatchObject({ status: 201, body: "" });
      return reply;
    });
    await shop.isOverAfter(1);
  });

  test("a connection that the client wants closed is closed, and the lock ended", async () => {
    const shop = await sameWithoutLock({ framework, handler: place }, async (of) => {
      const socket = connect(of.port, "127.0.0.1");
      socket.write(
        `POST /orders HTTP/1.1\r\nHost: shop\r\nX-User: ${of.user}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n`,
      );
      let text = "";
      for await (const chunk of socket) text += chunk;
      return text.replace(/^date:.*\r\n/im, "");
    });
    await shop.isOverAfter(1);
  });
});
