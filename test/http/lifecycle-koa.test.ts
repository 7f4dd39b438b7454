import { createServer } from "node:http";
import { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import Koa3 from "koa";
import Koa2 from "koa2";
import { describe, expect, test } from "vitest";
import { MemoryStore, SubmitLock } from "../../src/index.ts";
import { submitGuard } from "../../src/koa/index.ts";
import { until } from "../support/until.ts";
import { type Framework, koas, newer } from "./frameworks.ts";
import { departure, gate } from "./gate.ts";
import { listen, openClient } from "./http-client.ts";
import { layerThatWaits, onKoa } from "./layers.ts";
import { codeOf, openOnce, orderKey } from "./once-shop.ts";
import { clicksAgain, endless, leavesAndRetries, openShop, shortTimes } from "./shop.ts";
import type { Layer, Turn } from "./turn.ts";

test.each([
  ["2", Koa2 as typeof Koa3],
  ["3", Koa3],
])(
  "on Koa %s, the body of a stream is kept where the head was flushed before it",
  async (_major, lib) => {
    const lock = new SubmitLock({ store: new MemoryStore() });
    const app = new lib();
    let runs = 0;
    app.use(submitGuard({ lock, userId: () => "42", idempotency: {} }));
    app.use((ctx) => {
      ctx.status = 201;
      ctx.type = "text/plain";
      ctx.flushHeaders();
      ctx.body = Readable.from([`run ${++runs}`]);
    });
    const server = createServer(app.callback());
    const url = `http://127.0.0.1:${await listen(server)}`;
    const submit = async () => {
      const sent = { method: "POST", headers: { "idempotency-key": orderKey } };
      const answer = await fetch(url, sent);
      const text = await answer.text();
      await until(async () => (await lock.inspect("42")).state === "free", { what: "a free lock" });
      return [answer.status, text];
    };
    expect(await submit()).toEqual([201, "run 1"]);
    expect(await submit()).toEqual([201, "run 1"]);
    server.close();
    await lock.close();
  },
);

describe.each(koas)("$name", (framework: Framework) => {
  test("a generator that cleans up after its client has left keeps the lock until it has", async () => {
    await leavesAndRetries({
      framework,
      handler: (turn, work, { started, goOn }) => {
        const parts = async function* () {
          try {
            for (;;) {
              yield "part";
              await sleep(2);
              started();
            }
          } finally {
            await goOn;
            await work.over();
          }
        };
        turn.stream(Readable.from(parts()));
      },
    });
  });

  test("a body that is set after the client has left writes no order without the lock", async () => {
    const leaving = departure();
    const held: boolean[] = [];
    const shop = await openShop({
      framework,
      handler: async (turn, work) => {
        leaving.seenBy(turn.res);
        await leaving.during();
        work.overNow();
        turn.stream(
          Readable.from(
            (async function* () {
              await sleep(30);
              held.push((await shop.owner()) === turn.lease?.ownerId);
              yield "the order is written";
            })(),
          ),
        );
      },
    });
    await leaving.of(shop.submit());
    await shop.isOverAfter(1);
    // Time for an order to be written that should not.
    await sleep(60);
    expect(held).not.toContain(false);
  });
});

const withWebStreams = [
  ...koas.filter(({ major }) => major === 3),
  ...newer.filter(({ family }) => family === "fastify"),
];
describe.each(withWebStreams)("$name", (framework: Framework) => {
  const asItIs = (stream: ReadableStream) => stream;
  const inResponse = (stream: ReadableStream) => new Response(stream);
  test.each([
    ["a web stream", asItIs, true],
    ["a Response", inResponse, true],
    ["a web stream before its first byte", asItIs, false],
    ["a Response before its first byte", inResponse, false],
  ])(
    "%s that is still writing the order keeps the lock when its client has left",
    async (_what, bodyOf, hasFirst) => {
      const shop = await clicksAgain({
        framework,
        times: shortTimes,
        handler: (turn, work, { started, goOn }) => {
          let first = hasFirst;
          const stream = new ReadableStream({
            async pull(controller) {
              if (first) {
                first = false;
                return controller.enqueue(Buffer.from("the first part"));
              }
              started();
              await goOn;
              await work.over();
              controller.close();
            },
          });
          turn.answer(200, bodyOf(stream));
        },
      });
      // Nobody sees when such a body has ended.
      expect(shop.published.lost).toMatchObject([{ outcome: "max-hold" }]);
      expect(shop.heldAtEnd).toEqual([true]);
      expect(shop.work).toMatchObject({ started: 2, running: 0, overlaps: 0 });
      await shop.keyIsGone();
    },
  );
});

describe.each(koas.filter(({ major }) => major === 2))("$name", (framework: Framework) => {
  test.each([
    ["fails", new Error("the source failed")],
    ["is destroyed", undefined],
  ])(
    "a stream that %s ends the lock, although its client is left waiting",
    async (_what, error) => {
      const source = endless();
      const shop = await openShop({
        framework,
        handler: (turn, work) => {
          work.overNow();
          return turn.stream(source);
        },
      });
      const call = shop.submit();
      await call.begun;
      source.destroy(error);
      expect((await shop.rival()).status).toBe(201);
      await shop.isOverAfter(2);
      expect(await Promise.race([call.reply, "still waiting"])).toBe("still waiting");
    },
  );
});

/** Middleware around the guard that is at work after it, as koa-session is. */
const outerLayer = (work: (user: string) => Promise<void>): Layer =>
  onKoa(async (ctx, next) => {
    try {
      await next();
    } finally {
      if (!ctx.get("x-rival")) await work(ctx.get("x-user"));
    }
  });

/** An order whose client leaves while its handler is at work, which then answers. */
function abandoned(answer: (turn: Turn) => unknown) {
  const leaving = departure();
  return {
    handler: async (turn: Turn) => {
      leaving.seenBy(turn.res);
      await leaving.during();
      return await answer(turn);
    },
    leave: leaving.of,
  };
}

/** Middleware that takes long enough for an order that does not wait for it. */
const saving = (seen: string[], atWork = () => {}) =>
  outerLayer(async () => {
    atWork();
    await sleep(300);
    seen.push("saved");
  });

const place = (turn: Turn) => turn.answer(201, { order: "placed" });

describe.each(koas)("$name, middleware around the guard", (framework: Framework) => {
  test.each<[string, (turn: Turn) => unknown]>([
    ["placed", place],
    ["failed", (turn) => turn.fail(new Error("no such cart"))],
  ])(
    "that is at work after an order whose client has left, and which has %s, is done before the next order",
    async (_how, answer) => {
      const { handler, leave } = abandoned(answer);
      const seen: string[] = [];
      const shop = await openShop({
        framework,
        outside: [saving(seen)],
        inside: [
          layerThatWaits(async (req) => void seen.push(req.headers["x-rival"] ? "next" : "first")),
        ],
        handler: (turn, work) => {
          work.overNow();
          return handler(turn);
        },
      });
      const call = shop.submit();
      await leave(call);
      expect((await shop.rival()).status).toBe(201);
      expect(seen).toEqual(["first", "saved", "next"]);
      await shop.isOverAfter(2);
    },
  );

  test("that is at work while the client leaves is done before the next order", async () => {
    const atWork = gate();
    const seen: string[] = [];
    const shop = await openShop({
      framework,
      outside: [saving(seen, atWork.open)],
      handler: (turn, work) => {
        work.overNow();
        place(turn);
      },
    });
    const call = shop.submit();
    await atWork.opened;
    call.abort();
    expect((await shop.rival()).status).toBe(201);
    expect(seen).toEqual(["saved"]);
    await shop.isOverAfter(2);
  });

  test("does not delay the answer of a repeat, when the client has left", async () => {
    const { handler, leave } = abandoned(place);
    const saved = gate();
    let isFirst = true;
    const shop = await openOnce({
      framework,
      outside: [
        outerLayer(async () => {
          if (!isFirst) return;
          isFirst = false;
          await saved.opened;
        }),
      ],
      handler,
    });
    const call = shop.begin({ key: orderKey });
    await leave(call);
    await until(async () => (await shop.records()).length === 1, { what: "the record" });
    const other = await shop.submit({ key: "another" });
    expect([other.status, codeOf(other), other.headers["retry-after"]]).toEqual([
      409,
      "submit_contended",
      "1",
    ]);
    expect(await shop.submit({ key: orderKey })).toMatchObject({
      status: 201,
      body: '{"order":"placed"}',
    });
    expect(shop.runs).toBe(1);
    saved.open();
    await shop.whenKept(1);
  });

  test("keeps a longer cooldown, when the client has left", async () => {
    const { handler, leave } = abandoned(place);
    const shop = await openOnce({
      framework,
      guard: { idempotency: undefined, cooldownMs: 30_000 } as never,
      handler,
    });
    const call = shop.begin();
    await leave(call);
    await until(async () => (await shop.shop.owner())?.startsWith("cooldown:") === true, {
      what: "the cooldown",
    });
    const other = await shop.submit();
    expect([other.status, Number(other.headers["retry-after"]) > 20]).toEqual([409, true]);
  });

  /** A store without records has no cooldowns either. */
  class PlainStore extends MemoryStore {
    override complete = undefined as never;
  }

  test("is done before the next order under a lock without cooldowns, when the client has left", async () => {
    const lock = new SubmitLock({ store: new PlainStore() });
    const { handler, leave } = abandoned(place);
    const seen: string[] = [];
    const server = framework.makeServer({
      lock,
      outside: [saving(seen)],
      handler: (turn) => (turn.req.headers["x-rival"] ? turn.answer(201, {}) : handler(turn)),
    });
    const port = await listen(server);
    const client = openClient(framework.http, port);
    const call = client.call({ headers: { "x-user": "42" } });
    await leave(call);
    const rival = () => client.call({ headers: { "x-user": "42", "x-rival": "1" } }).reply;
    await until(async () => (await rival()).status === 201, { what: "the next order" });
    expect(seen).toEqual(["saved"]);
    client.close();
    server.close();
    await lock.close();
  });
});
