import { once as nextEvent } from "node:events";
import type { IncomingMessage } from "node:http";
import { connect } from "node:http2";
import { connect as connectSocket, type Socket } from "node:net";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { until } from "../support/until.ts";
import {
  all,
  allOnHttp1,
  expresses,
  type Framework,
  koas,
  onHttp1,
  seeing,
  seesOutside,
} from "./frameworks.ts";
import { gate } from "./gate.ts";
import { openRaw, submitBytes } from "./http-client.ts";
import {
  endless,
  leavesInTheMiddle,
  type OrderWork,
  openShop,
  type Shop,
  sameWithoutLock,
  shortTimes,
} from "./shop.ts";
import type { Turn } from "./turn.ts";

async function place(turn: Turn, work: OrderWork): Promise<void> {
  await sleep(5);
  await work.over();
  turn.res.setHeader("x-shop", "ours");
  turn.answer(201, { order: "placed" });
}

const once = (shop: Shop) => shop.submit().reply;
const brokenOff = () => "broken off";

describe.each(all)("P5 and P8: $name", (framework: Framework) => {
  test("a stream is sent as before, and ends the lock when it has ended", async () => {
    const handler = (turn: Turn, work: OrderWork) => {
      turn.res.setHeader("content-type", "text/plain");
      return turn.stream(
        Readable.from(
          (async function* () {
            for (const part of ["one ", "two ", "three"]) {
              await sleep(5);
              yield part;
            }
            await work.over();
          })(),
        ),
      );
    };
    const shop = await sameWithoutLock({ framework, handler }, async (of) => {
      const reply = await once(of);
      expect(reply.body).toBe("one two three");
      return reply;
    });
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

  test("a request for one to the guarded route is answered as any other", async () => {
    const handshake = { headers: { connection: "Upgrade", upgrade: "websocket" } };
    const shop = await sameWithoutLock({ framework, handler: place }, async (of) => {
      const reply = await of.submit(handshake).reply;
      expect(reply.status).toBe(201);
      return reply;
    });
    await shop.isOverAfter(1);
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
      const socket = connectSocket(of.port, "127.0.0.1");
      socket.write(submitBytes(of.user, { Connection: "close" }));
      let text = "";
      for await (const chunk of socket) text += chunk;
      return text.replace(/^date:.*\r\n/im, "");
    });
    await shop.isOverAfter(1);
  });

  test("an answer to HEAD with a stream as its body ends the lock", async () => {
    const handler = (turn: Turn, work: OrderWork) => {
      work.overNow();
      return turn.stream(Readable.from(["never sent"]));
    };
    const shop = await sameWithoutLock(
      { framework, handler },
      (of) => of.submit({ method: "HEAD" }).reply,
    );
    await shop.isOverAfter(1);
  });
});

describe.each(seeing)("$name", (framework: Framework) => {
  test("a client that leaves in the middle of a stream ends the lock with it", async () => {
    const handler = (turn: Turn, work: OrderWork) => {
      work.overNow();
      return turn.stream(endless());
    };
    await leavesInTheMiddle({ framework, handler });
  });

  test.each<[what: string, end: (turn: Turn) => void, body: string]>([
    [
      "that the handler destroys",
      ({ res }) => {
        res.destroy();
        // The compatibility layer of HTTP/2 has no more than an empty `destroy`.
        (res as unknown as { stream?: { destroy(): void } }).stream?.destroy();
      },
      "broken off",
    ],
    [
      "that the handler ends before it writes the order",
      (turn) => void turn.byHand().end("accepted"),
      "accepted",
    ],
  ])("a response %s keeps the lock until the handler is done", async (_what, end, body) => {
    const goOn = gate();
    const shop = await openShop({
      framework,
      handler: async (turn, work) => {
        end(turn);
        await goOn.opened;
        await work.over();
      },
    });
    expect(await shop.submit().reply.then((reply) => reply.body, brokenOff)).toBe(body);
    const retry = shop.rival();
    await sleep(30);
    expect(shop.work.started).toBe(1);
    goOn.open();
    expect((await retry).status).toBe(201);
    await shop.isOverAfter(2);
  });
});

describe.each(expresses.filter(({ seesWork }) => seesWork))("$name", (framework: Framework) => {
  test("an async handler that has begun to answer, and returns, ends the lock when its client leaves", async () => {
    const handler = async (turn: Turn, work: OrderWork) => {
      turn.res.flushHeaders();
      endless().pipe(turn.res);
      work.overNow();
    };
    await leavesInTheMiddle({ framework, handler });
  });
});

/** Where nothing ever ends the response after its client has left. */
const held = [
  ...expresses.filter(({ seesWork }) => !seesWork).map((framework) => ({ framework })),
  ...koas.map((framework) => ({ framework })),
];

describe.each(held)("$framework.name", ({ framework }: { framework: Framework }) => {
  test("a response by hand that is never ended holds the lock for maxHoldMs", async () => {
    const [started, told] = [gate(), gate()];
    const shop = await openShop({
      framework,
      times: shortTimes,
      handler: (turn, work) => {
        turn.byHand().write("the first part");
        turn.lease?.signal.addEventListener("abort", () => {
          work.overNow();
          told.open();
        });
        started.open();
      },
    });
    const call = shop.submit();
    await started.opened;
    await call.begun;
    call.abort();
    const retry = shop.rival();
    await told.opened;
    expect((await retry).status).toBe(201);
    expect(shop.published.lost).toMatchObject([{ outcome: "max-hold" }]);
    expect(shop.work).toMatchObject({ started: 2, overlaps: 0 });
    await until(() => shop.published.releases.length === 1, { what: "the release of the rival" });
    await shop.keyIsGone();
  });
});

describe.each(koas.filter(({ http }) => http === 2))("P5: $name", (framework: Framework) => {
  test.each([
    ["was read", "application/json"],
    ["was not read", "application/octet-stream"],
  ])(
    "a slow reader that resets its stream, and whose body %s, ends the lock",
    async (_what, type) => {
      const bytes = new Readable({
        read() {
          this.push(Buffer.alloc(65_536));
        },
      });
      await resetBySlowReader(framework, type, bytes, (turn) => turn.stream(bytes));
      await until(() => bytes.destroyed, { what: "the stream to be torn down" });
    },
  );

  test("a slow reader that resets a stream that was ended by hand ends the lock", async () => {
    const bytes = Readable.from([Buffer.alloc(1_000_000)]);
    const handler = (turn: Turn) => pipeline(bytes, turn.byHand());
    await resetBySlowReader(framework, "application/octet-stream", bytes, handler);
  });
});

/** A client that takes a part of the bytes and then resets its stream without an error code. */
async function resetBySlowReader(
  framework: Framework,
  type: string,
  bytes: Readable,
  handler: (turn: Turn) => unknown,
): Promise<void> {
  const shop = await openShop({
    framework,
    handler: (turn, work) => {
      work.overNow();
      return handler(turn);
    },
  });
  const client = connect(`http://127.0.0.1:${shop.port}`);
  const headers = { "content-type": type, "x-user": shop.user };
  const stream = client.request({ ":method": "POST", ":path": "/orders", ...headers });
  stream.end("[1]");
  await nextEvent(stream, "response");
  await until(() => bytes.readableFlowing === false || bytes.readableEnded, {
    what: "the window to be used up",
  });
  stream.destroy();
  await shop.keyIsGone();
  client.destroy();
}
