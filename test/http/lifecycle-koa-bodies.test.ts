import { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { type Framework, koas } from "./frameworks.ts";
import { gate } from "./gate.ts";
import {
  endless,
  leavesAndRetries,
  type OrderWork,
  openShop,
  type Shop,
  sameWithoutLock,
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
    const [started, left, goOn] = [gate(), gate(), gate()];
    const held: boolean[] = [];
    const shop = await openShop({
      framework,
      handler: async (turn, work) => {
        turn.res.once("close", left.open);
        started.open();
        await goOn.opened;
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
    const call = shop.submit();
    await started.opened;
    call.abort();
    await left.opened;
    goOn.open();
    await shop.isOverAfter(1);
    // Time for an order to be written that should not.
    await sleep(60);
    expect(held).not.toContain(false);
  });
});

/** Short enough to wait for, long enough for a busy machine. */
const shortTimes = {
  ttlMs: 2_000,
  maxHoldMs: 2_400,
  acquireTimeoutMs: 1_000,
  commandTimeoutMs: 500,
};

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
      const [started, left, goOn] = [gate(), gate(), gate()];
      const shop = await openShop({
        framework,
        times: shortTimes,
        handler: (turn, work) => {
          turn.res.once("close", left.open);
          let first = true;
          const stream = new ReadableStream({
            async pull(controller) {
              if (first) {
                first = false;
                return controller.enqueue(Buffer.from("the first part"));
              }
              started.open();
              await goOn.opened;
              await work.over();
              controller.close();
            },
          });
          turn.answer(200, bodyOf(stream));
        },
      });
      const call = shop.submit();
      await call.begun;
      await started.opened;
      call.abort();
      const retry = shop.rival();
      await left.opened;
      await sleep(50);
      expect(shop.work.started).toBe(1);
      goOn.open();
      expect((await retry).status).toBe(201);
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
