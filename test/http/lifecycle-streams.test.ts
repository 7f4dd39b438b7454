import { PassThrough, Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, test } from "vitest";
import { until } from "../support/until.ts";
import { expresses, type Framework, frameworks, koas, onHttp1, seeing } from "./frameworks.ts";
import { gate } from "./gate.ts";
import { closeShops, type OrderWork, openShop, type Shop, sameWithoutLock } from "./shop.ts";
import type { Turn } from "./turn.ts";

afterEach(closeShops);

const once = (shop: Shop) => shop.submit().reply;

/** The middle of a stream: some of it has been sent, and more is to come. */
function endless(): PassThrough {
  const stream = new PassThrough();
  stream.on("error", () => {});
  stream.write("the first part");
  return stream;
}

describe.each(frameworks)("$name", (framework: Framework) => {
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

  test("server-sent events that the server ends keep the lock until then", async () => {
    const handler = async (turn: Turn, work: OrderWork) => {
      const res = turn.byHand();
      res.setHeader("content-type", "text/event-stream");
      for (let i = 0; i < 3; i++) {
        res.write(`data: ${i}\n\n`);
        await sleep(10);
      }
      setTimeout(() => void work.over().then(() => res.end()), 30);
    };
    const shop = await sameWithoutLock({ framework, handler }, once);
    await shop.isOverAfter(1);
  });
});

describe.each(onHttp1)("$name", (framework: Framework) => {
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
    expect(await shop.owner()).not.toBeNull();
    call.abort();
    expect((await shop.rival()).status).toBe(201);
    await shop.isOverAfter(2);
  });

  test("a response that the handler destroys keeps the lock until the handler is done", async () => {
    const [destroyed, goOn] = [gate(), gate()];
    const shop = await openShop({
      framework,
      handler: async (turn, work) => {
        turn.res.destroy();
        // The compatibility layer of HTTP/2 has no more than an empty `destroy`.
        (turn.res as unknown as { stream?: { destroy(): void } }).stream?.destroy();
        destroyed.open();
        await goOn.opened;
        await work.over();
      },
    });
    const { reply } = shop.submit();
    await destroyed.opened;
    await expect(reply).rejects.toThrow();
    const retry = shop.rival();
    await sleep(30);
    expect(shop.work.started).toBe(1);
    goOn.open();
    expect((await retry).status).toBe(201);
    await shop.isOverAfter(2);
  });

  test("a handler that answers first and writes the order later keeps the lock until then", async () => {
    const [answered, goOn] = [gate(), gate()];
    const shop = await openShop({
      framework,
      handler: async (turn, work) => {
        turn.byHand().end("accepted");
        answered.open();
        await goOn.opened;
        await work.over();
      },
    });
    const call = shop.submit();
    await answered.opened;
    const retry = shop.rival();
    await call.reply;
    await sleep(30);
    expect(shop.work.started).toBe(1);
    goOn.open();
    expect((await retry).status).toBe(201);
    await shop.isOverAfter(2);
  });
});

describe.each(koas)("$name", (framework: Framework) => {
  test("a body that is still writing the order keeps the lock when its client has left", async () => {
    const [started, left, goOn] = [gate(), gate(), gate()];
    const shop = await openShop({
      framework,
      handler: (turn, work) => {
        turn.res.once("close", left.open);
        turn.stream(
          Readable.from(
            (async function* () {
              yield "the first part";
              started.open();
              await goOn.opened;
              await work.over();
              yield "the second part";
            })(),
          ),
        );
      },
    });
    const call = shop.submit();
    await call.begun;
    await started.opened;
    call.abort();
    const retry = shop.rival();
    await left.opened;
    await sleep(30);
    expect(shop.work.started).toBe(1);
    goOn.open();
    expect((await retry).status).toBe(201);
    await shop.isOverAfter(2);
  });

  test("a generator that cleans up after its client has left keeps the lock until it has", async () => {
    const [cleaning, goOn] = [gate(), gate()];
    const shop = await openShop({
      framework,
      handler: (turn, work) => {
        turn.stream(
          Readable.from(
            (async function* () {
              try {
                for (;;) {
                  yield "part";
                  await sleep(2);
                }
              } finally {
                cleaning.open();
                await goOn.opened;
                await work.over();
              }
            })(),
          ),
        );
      },
    });
    const call = shop.submit();
    await call.begun;
    call.abort();
    const retry = shop.rival();
    await cleaning.opened;
    await sleep(30);
    expect(shop.work.started).toBe(1);
    goOn.open();
    expect((await retry).status).toBe(201);
    await shop.isOverAfter(2);
  });

  test("a response that is answered by hand keeps the lock until it has ended", async () => {
    const [started, goOn] = [gate(), gate()];
    const handler = (turn: Turn, work: OrderWork) => {
      const res = turn.byHand();
      res.statusCode = 202;
      started.open();
      void goOn.opened.then(() => work.over()).then(() => res.end("by hand"));
    };
    const shop = await openShop({ framework, handler });
    const call = shop.submit();
    await started.opened;
    const retry = shop.rival();
    await sleep(30);
    expect(shop.work.started).toBe(1);
    goOn.open();
    expect(await call.reply).toMatchObject({ status: 202, body: "by hand" });
    expect((await retry).status).toBe(201);
    await shop.isOverAfter(2);
  });

  test("a response that is ended by hand after its client has left ends the lock", async () => {
    const [started, left, goOn] = [gate(), gate(), gate()];
    const shop = await openShop({
      framework,
      handler: (turn, work) => {
        const res = turn.byHand();
        res.once("close", left.open);
        started.open();
        void goOn.opened.then(() => work.over()).then(() => res.end("by hand"));
      },
    });
    const call = shop.submit();
    await started.opened;
    call.abort();
    const retry = shop.rival();
    await left.opened;
    await sleep(30);
    expect(shop.work.started).toBe(1);
    goOn.open();
    expect((await retry).status).toBe(201);
    await shop.isOverAfter(2);
  });

  test("a stream as a body that comes after the client has left ends the lock", async () => {
    const [started, left, goOn] = [gate(), gate(), gate()];
    const shop = await openShop({
      framework,
      handler: async (turn, work) => {
        turn.res.once("close", left.open);
        started.open();
        await goOn.opened;
        await work.over();
        turn.stream(Readable.from(["never read"]));
      },
    });
    const call = shop.submit();
    await started.opened;
    call.abort();
    await left.opened;
    await sleep(20);
    goOn.open();
    await shop.isOverAfter(1);
  });

  test("server-sent events as a body end the lock when their client leaves", async () => {
    const events = endless();
    const shop = await openShop({
      framework,
      handler: (turn, work) => {
        work.overNow();
        turn.stream(events);
      },
    });
    const call = shop.submit();
    await call.begun;
    expect(await shop.owner()).not.toBeNull();
    call.abort();
    expect((await shop.rival()).status).toBe(201);
    await shop.isOverAfter(2);
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
});

describe.each(expresses)("$name", (framework: Framework) => {
  test("`source.pipe(res)` is sent as before, and ends the lock when it has ended", async () => {
    const handler = (turn: Turn, work: OrderWork) => {
      const source = Readable.from(["one ", "two ", "three"]);
      source.once("end", work.overNow);
      source.pipe(turn.res);
    };
    const shop = await sameWithoutLock({ framework, handler }, async (of) => {
      const reply = await once(of);
      expect(reply.body).toBe("one two three");
      return reply;
    });
    await shop.isOverAfter(1);
  });
});

describe.each(expresses.filter(({ seesWork }) => seesWork))("$name", (framework: Framework) => {
  test("an async handler that pipes and returns ends the lock when its client leaves", async () => {
    const source = endless();
    const shop = await openShop({
      framework,
      handler: async (turn, work) => {
        source.pipe(turn.res);
        work.overNow();
      },
    });
    const call = shop.submit();
    await call.begun;
    expect(await shop.owner()).not.toBeNull();
    call.abort();
    expect((await shop.rival()).status).toBe(201);
    await shop.isOverAfter(2);
  });

  test("server-sent events of an async handler end the lock when their client leaves", async () => {
    const shop = await openShop({
      framework,
      handler: async (turn, work) => {
        turn.res.setHeader("content-type", "text/event-stream");
        turn.res.write("data: 0\n\n");
        work.overNow();
      },
    });
    const call = shop.submit();
    await call.begun;
    expect(await shop.owner()).not.toBeNull();
    call.abort();
    expect((await shop.rival()).status).toBe(201);
    await shop.isOverAfter(2);
  });
});

/** Where a stream that fails takes the response with it. Koa 2 leaves the response open. */
const failing = seeing.filter(({ family, major }) => family === "express" || major === 3);

describe.each(failing)("$name", (framework: Framework) => {
  test("a stream that fails breaks the response off as before, and ends the lock", async () => {
    const handler = (turn: Turn, work: OrderWork) => {
      const source = endless();
      setTimeout(() => {
        work.overNow();
        source.destroy(new Error("the source failed"));
      }, 20);
      return turn.stream(source);
    };
    const shop = await sameWithoutLock({ framework, handler }, async (of) => {
      const call = of.submit();
      await call.begun;
      return await call.reply.then(
        (reply) => reply,
        () => "broken off",
      );
    });
    await shop.isOverAfter(1);
  });
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

/** Short enough to wait for, long enough for a busy machine. */
const shortTimes = { ttlMs: 1_000, maxHoldMs: 1_200 };

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
