import type { IncomingMessage } from "node:http";
import { connect, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { until } from "../support/until.ts";
import {
  all,
  allOnHttp1,
  type Framework,
  onHttp1,
  seesOutside,
  writesByHand,
} from "./frameworks.ts";
import { gate } from "./gate.ts";
import { openRaw, type Submit, submitBytes } from "./http-client.ts";
import { type OrderWork, openShop, sameWithoutLock } from "./shop.ts";
import type { Turn } from "./turn.ts";

async function place(turn: Turn, work: OrderWork): Promise<void> {
  await sleep(5);
  await work.over();
  turn.res.setHeader("x-shop", "ours");
  turn.answer(201, { order: "placed" });
}

interface Answering {
  readonly what: string;
  readonly handler: (turn: Turn, work: OrderWork) => unknown;
  readonly submit?: Submit;
  readonly reply?: object;
  readonly errors?: readonly object[];
  readonly runsOn?: (framework: Framework) => boolean;
}

const ways: readonly Answering[] = [
  {
    what: "an ordinary answer",
    handler: place,
    reply: { status: 201, headers: expect.objectContaining({ "x-shop": "ours" }) },
  },
  {
    what: "an answer without a body",
    submit: { method: "GET" },
    handler: async (turn, work) => {
      await work.over();
      turn.answer(304, null);
    },
    reply: { status: 304, body: "" },
  },
  {
    what: "an answer to HEAD",
    submit: { method: "HEAD" },
    handler: place,
    reply: { status: 201, body: "" },
    runsOn: (framework) => onHttp1.includes(framework),
  },
  {
    what: "an answer to a request for a WebSocket",
    submit: { headers: { connection: "Upgrade", upgrade: "websocket" } },
    handler: place,
    reply: { status: 201 },
    runsOn: ({ http }) => http === 1,
  },
  {
    what: "the error handler's answer to a throw at once",
    handler: (_turn, work) => {
      work.overNow();
      throw new Error("thrown");
    },
    errors: [new Error("thrown")],
  },
  {
    what: "the error handler's answer to a rejection",
    handler: async (_turn, work) => {
      await sleep(5);
      await work.over();
      throw Object.assign(new Error("rejected"), { status: 422 });
    },
    reply: { status: 422 },
    errors: [{ message: "rejected" }],
  },
  {
    what: "an answer by hand",
    handler: async (turn, work) => {
      const res = turn.byHand();
      res.statusCode = 202;
      res.setHeader("content-type", "text/plain");
      for (const part of ["one ", "two ", "three"]) {
        res.write(part);
        await sleep(2);
      }
      await work.over();
      res.end(".");
    },
    reply: { status: 202, body: "one two three." },
    runsOn: writesByHand,
  },
  {
    what: "an answer in callback style",
    handler: (turn, work) => {
      const res = turn.byHand();
      setTimeout(() => void work.over().then(() => res.end("called back")), 5);
    },
    reply: { body: "called back" },
    runsOn: writesByHand,
  },
];

describe.each(all)("P5 and P8: answers, on $name", (framework: Framework) => {
  test.each(ways.filter(({ runsOn = () => true }) => runsOn(framework)))(
    "$what is what it was, and ends the lock",
    async ({ handler, submit, reply = {}, errors = [] }) => {
      const shop = await sameWithoutLock({ framework, handler }, async (of) => {
        const got = await of.submit(submit).reply;
        expect(got).toMatchObject(reply);
        return got;
      });
      expect(shop.errors).toMatchObject(errors);
      await shop.isOverAfter(1);
    },
  );

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

  test("a path without a handler keeps no lock", async () => {
    const shop = await sameWithoutLock(
      { framework, handler: place },
      (of) => of.submit({ path: "/elsewhere" }).reply,
    );
    await shop.isOverAfter(framework.family === "koa" ? 1 : 0);
  });
});

describe.each(allOnHttp1)("WebSockets beside the guarded route, on $name", (framework) => {
  const upgrade =
    "GET /orders HTTP/1.1\r\nHost: shop\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
  const makeServer: Framework["makeServer"] = (parts) =>
    framework.makeServer(parts).on("upgrade", (_req: IncomingMessage, socket: Socket) => {
      socket.on("error", () => {}).write("HTTP/1.1 101 Switching Protocols\r\n\r\n");
      socket.pipe(socket);
    });

  test.each([
    ["of another connection", 2],
    ["of the same connection, which its client leaves", 1],
  ])("are no orders: one %s changes nothing of an order", async (_what, connections) => {
    const goOn = gate();
    const shop = await openShop({
      framework: { ...framework, makeServer },
      handler: async (turn, work) => {
        await goOn.opened;
        await place(turn, work);
      },
    });
    const order = await openRaw(shop.port);
    const echo = connections === 1 ? order : await openRaw(shop.port);
    order.send(submitBytes(shop.user));
    await until(() => shop.work.started === 1, { what: "the order to start" });
    echo.send(upgrade);
    await until(() => echo.text.includes("101"), { what: "the upgrade" });
    echo.send("ping");
    await until(() => echo.text.includes("ping"), { what: "the echo" });
    if (connections === 1) order.socket.destroy();
    expect(await shop.owner()).not.toBeNull();
    goOn.open();
    await shop.isOverAfter(1);
    if (connections === 2) expect(order.text).toContain("201 Created");
    expect(shop.work.started).toBe(1);
    echo.socket.destroy();
  });
});

describe.each(onHttp1)("$name", (framework: Framework) => {
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
