import { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { type Framework, koas } from "./frameworks.ts";
import { departure } from "./gate.ts";
import {
  clicksAgain,
  endless,
  leavesAndRetries,
  type OrderWork,
  openShop,
  type Shop,
  sameWithoutLock,
  shortTimes,
} from "./shop.ts";
import type { Turn } from "./turn.ts";

const once = (shop: Shop) => shop.submit().reply;

describe.each(koas)("$name", (framework: Framework) => {
  test("a body that is still writing the order keeps the lock when its client has left", async () => {
    await leavesAndRetries({
      framework,
      handler: (turn, work, { started, goOn }) => {
        const parts = async function* () {
          yield "the first part";
          started();
          await goOn;
          await work.over();
          yield "the second part";
        };
        turn.stream(Readable.from(parts()));
      },
    });
  });

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

  test("a response that is ended by hand after its client has left ends the lock", async () => {
    await leavesAndRetries({
      framework,
      handler: (turn, work, { started, goOn }) => {
        const res = turn.byHand();
        started();
        void goOn.then(() => work.over()).then(() => res.end("by hand"));
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

describe.each(koas.filter(({ major }) => major === 3))("$name", (framework: Framework) => {
  test("a web stream is sent as before, and ends the lock when it has ended", async () => {
    const handler = async (turn: Turn, work: OrderWork) => {
      const parts = ["one ", "two ", "three"];
      const body = new ReadableStream({
        async pull(controller) {
          await sleep(2);
          const part = parts.shift();
          if (part !== undefined) return controller.enqueue(Buffer.from(part));
          await work.over();
          controller.close();
        },
      });
      turn.answer(200, body);
    };
    const shop = await sameWithoutLock({ framework, handler }, async (of) => {
      const reply = await once(of);
      expect(reply.body).toBe("one two three");
      return reply;
    });
    await shop.isOverAfter(1);
  });

  test.each([
    ["a web stream", (stream: ReadableStream) => stream],
    ["a Response", (stream: ReadableStream) => new Response(stream)],
  ])(
    "%s that is still writing the order keeps the lock when its client has left",
    async (_what, bodyOf) => {
      const shop = await clicksAgain({
        framework,
        times: shortTimes,
        handler: (turn, work, { started, goOn }) => {
          let first = true;
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
