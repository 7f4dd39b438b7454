import type { ServerResponse } from "node:http";
import { resolve } from "node:path";
import { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { until } from "../support/until.ts";
import { type Framework, onHttp1, writesByHand } from "./frameworks.ts";
import { gate } from "./gate.ts";
import { openRaw, submitBytes } from "./http-client.ts";
import { type OnceShop, onAll, openOnce, openWaiting, orderKey } from "./once-shop.ts";
import type { Turn } from "./turn.ts";

/** More than a socket takes at once, and kept whole. */
const long = { text: "ä".repeat(20_000) };

async function* late(): AsyncGenerator<string> {
  await sleep(20);
  yield "placed";
}

type Way = [string, answer: (turn: Turn, run: number) => void, fits?: (it: Framework) => boolean];

/** Ways to answer, also by hand. */
const ways: Way[] = [
  ["as usual", (turn, run) => turn.answer(201, { run, ...long })],
  // As `res.render` answers: a tick after the handler has returned.
  [
    "behind the handler's promise",
    (turn, run) => void setTimeout(() => turn.answer(201, { run, ...long }), 30),
    ({ family }) => family === "express",
  ],
  [
    "by hand",
    (turn, run) => {
      const res = turn.byHand();
      res.writeHead(201, { "content-type": "application/json" });
      const text = JSON.stringify({ run, ...long });
      res.write(text.slice(0, 100));
      res.end(text.slice(100));
    },
    writesByHand,
  ],
];

type Step = (res: ServerResponse) => void;

const status201: Step = (res) => {
  res.statusCode = 201;
};

const typed: Step = (res) => {
  status201(res);
  res.setHeader("content-type", "application/json");
};

const written: Step = (res) => {
  typed(res);
  res.write("[1");
};

/** Declares five characters, and writes these. */
const declared =
  (part: string): Step =>
  (res) => {
    typed(res);
    res.setHeader("content-length", 5);
    res.write(part);
  };

/** What a handler does before and after it sees that its client has left. */
const stopping: [string, begin: Step, end: Step][] = [
  ["before the first part", typed, (res) => res.end()],
  ["before the first part, without a type", status201, (res) => res.end()],
  ["between two parts", written, (res) => res.end()],
  [
    "and looks behind each part",
    written,
    (res) => {
      res.write(",2");
      res.end();
    },
  ],
  ["between two parts, with the last bracket", written, (res) => res.end("]")],
  ["before the length that it has declared", declared("[1"), (res) => res.end("]")],
];

const whole: [string, begin: Step, end: Step, body: string][] = [
  [
    "without a body",
    (res) => {
      status201(res);
      res.setHeader("location", "/orders/7");
    },
    (res) => res.end(),
    "",
  ],
  ["with its end", typed, (res) => res.end("[1,2]"), "[1,2]"],
  ["of the length that was declared", declared("[1,2"), (res) => res.end("]"), "[1,2]"],
  [
    "of the length that was declared with the head",
    (res) => {
      res.writeHead(201, { "content-type": "application/json", "content-length": 5 });
      res.write("[1,2");
    },
    (res) => res.end("]"),
    "[1,2]",
  ],
];

async function leaveInTheMiddle(framework: Framework, begin: Step, end: Step): Promise<OnceShop> {
  const left = gate();
  const once = await openOnce({
    framework,
    handler: async (turn) => {
      const res = turn.byHand();
      res.once("close", left.open);
      begin(res);
      await left.opened;
      end(res);
    },
  });
  const call = await once.start({ key: orderKey });
  call.abort();
  await once.whenKept(1);
  return once;
}

describe.each(onAll)("$name", (framework: Framework) => {
  test.each(ways.filter(([, , fits]) => fits?.(framework) ?? true))(
    "a client that has left before the answer, given %s, is repeated the whole of it",
    async (_how, answer) => {
      const left = gate();
      const once = await openOnce({
        framework,
        handler: async (turn, run) => {
          turn.res.once("close", left.open);
          await left.opened;
          await sleep(20);
          answer(turn, run);
        },
      });
      const call = await once.start({ key: orderKey });
      call.abort();
      await once.whenKept(1);
      const retry = await once.submit({ key: orderKey });
      expect(retry.status).toBe(201);
      expect(retry.headers["idempotent-replayed"]).toBe("true");
      expect(retry.headers["content-type"]).toMatch(/^application\/json/);
      const text = Buffer.from(retry.body, "latin1").toString();
      expect(JSON.parse(text)).toEqual({ run: 1, ...long });
      expect(once.runs).toBe(1);
    },
  );

  test.runIf(writesByHand(framework))(
    "a client that has left in the middle of the answer is repeated the whole of it",
    async () => {
      const [goOn, left] = [gate(), gate()];
      const once = await openOnce({
        framework,
        handler: async (turn) => {
          const res = turn.byHand();
          res.once("close", left.open);
          res.writeHead(201, { "content-type": "text/plain" });
          res.write("one ");
          await goOn.opened;
          res.write("two ");
          res.end("three");
        },
      });
      const call = once.begin({ key: orderKey });
      await call.begun;
      call.abort();
      await left.opened;
      goOn.open();
      await once.whenKept(1);
      expect(await once.submit({ key: orderKey })).toMatchObject({
        status: 201,
        body: "one two three",
      });
      expect(once.runs).toBe(1);
    },
  );

  test.skipIf(!writesByHand(framework)).each(stopping)(
    "a handler that stops when its client has left, %s: the repeat is a 409",
    async (_how, begin, end) => {
      const once = await leaveInTheMiddle(framework, begin, end);
      expect(await once.submit({ key: orderKey })).toMatchObject({
        status: 409,
        headers: { "submit-lock-code": "idempotency_answer_unavailable" },
      });
      expect(once.runs).toBe(1);
    },
  );

  test.runIf(writesByHand(framework) && framework.http === 1)(
    "a handler that looks before each part has written one while it could not see that its client left",
    async () => {
      const over = gate();
      const once = await openOnce({
        framework,
        handler: async (turn) => {
          const res = turn.byHand();
          written(res);
          // The connection is gone some turns before `res.destroyed` tells.
          while (!turn.req.socket.destroyed && turn.req.socket.writable) {
            await new Promise((next) => setImmediate(next));
          }
          if (!res.destroyed) res.write(",2");
          while (!res.destroyed) await new Promise((next) => setImmediate(next));
          res.end();
          over.open();
        },
      });
      const call = await once.start({ key: orderKey });
      call.abort();
      await over.opened;
      await once.whenKept(1);
      expect((await once.submit({ key: orderKey })).status).toBe(409);
    },
  );

  test.skipIf(!writesByHand(framework)).each(whole)(
    "a handler that answers a client that has left, %s, is repeated",
    async (_how, begin, end, body) => {
      const once = await leaveInTheMiddle(framework, begin, end);
      expect(await once.submit({ key: orderKey })).toMatchObject({ status: 201, body });
      expect(once.runs).toBe(1);
    },
  );

  test.runIf(framework.family === "express")(
    "a stream or file that has not begun when its client leaves is a 409 behind placed()",
    async () => {
      const ways = [
        async (turn: Turn) => await turn.stream(Readable.from(late())),
        async ({ express }: Turn) =>
          await new Promise<void>((sent, failed) => {
            express?.res.sendFile(resolve("package.json"), (error) =>
              error ? failed(error) : sent(),
            );
          }),
        ({ express }: Turn) => express?.res.sendFile(resolve("package.json")),
      ];
      for (const answer of ways) {
        const left = gate();
        const handler = async (turn: Turn) => {
          turn.submission?.placed();
          turn.res.once("close", left.open);
          await left.opened;
          turn.res.statusCode = 201;
          await answer(turn);
        };
        const once = await openOnce({ framework, handler });
        const call = await once.start({ key: orderKey });
        call.abort();
        await once.whenKept(1);
        const retry = await once.submit({ key: orderKey });
        expect([retry.status, once.runs]).toEqual([409, 1]);
      }
    },
  );

  test("a client that has left and was answered nothing may run its order again", async () => {
    const left = gate();
    const once = await openOnce({
      framework,
      handler: async (turn, run) => {
        if (run === 2) return turn.answer(201, { run });
        turn.res.once("close", left.open);
        // Koa would answer 404, and Fastify has an empty answer.
        if (framework.family !== "express") turn.byHand();
        await left.opened;
      },
    });
    const call = await once.start({ key: orderKey });
    call.abort();
    await left.opened;
    if (framework.family === "koa") {
      // Nobody can see that a response by hand never comes.
      expect(await once.records()).toEqual([]);
      return;
    }
    await once.whenKept(0);
    expect((await once.submit({ key: orderKey })).body).toBe('{"run":2}');
  });
});

describe.each(onHttp1.filter(({ seesWork }) => seesWork))("$name", (framework: Framework) => {
  test("an order that was sent behind another and abandoned with it is repeated", async () => {
    const goOn = gate();
    const sockets = new Set<{ destroyed: boolean }>();
    const once = await openOnce({
      framework,
      handler: async (turn, run) => {
        sockets.add(turn.req.socket);
        await goOn.opened;
        turn.answer(201, { run });
      },
    });
    const { user } = once.shop;
    // The second is another user's, so that both are at work.
    const users = [user, `${user}-second`];
    const connection = await openRaw(once.shop.port);
    for (const each of users) {
      connection.send(submitBytes(each, { "Idempotency-Key": orderKey }));
    }
    await until(() => once.runs === 2, { what: "both orders to start" });
    connection.socket.destroy();
    await until(() => [...sockets].every(({ destroyed }) => destroyed), {
      what: "the server to see it",
    });
    goOn.open();
    await once.whenKept(2);
    const replies = await Promise.all(
      users.map((each) => once.submit({ key: orderKey, user: each })),
    );
    for (const reply of replies) expect(reply.headers["idempotent-replayed"]).toBe("true");
    expect(once.runs).toBe(2);
  });

  test("an order on a connection that then sends what is no HTTP is repeated", async () => {
    const { goOn, once } = await openWaiting({ framework });
    const connection = await openRaw(once.shop.port);
    connection.send(submitBytes(once.shop.user, { "Idempotency-Key": orderKey }));
    await until(() => once.runs === 1, { what: "the order to start" });
    connection.send("no HTTP at all\r\n\r\n");
    await until(() => connection.text.includes("400"), { what: "the answer to that" });
    goOn();
    await once.whenKept(1);
    expect((await once.submit({ key: orderKey })).headers["idempotent-replayed"]).toBe("true");
    expect(once.runs).toBe(1);
  });
});
