import { setTimeout as sleep } from "node:timers/promises";
import { bodyParser } from "@koa/bodyparser";
import express5 from "express";
import express4 from "express4";
import { describe, expect, test } from "vitest";
import { until } from "../support/until.ts";
import { allMain, type Framework, hasParsers, koas, mainFrameworks, newest } from "./frameworks.ts";
import { gate } from "./gate.ts";
import { layerThatWaits, onExpress, onKoa } from "./layers.ts";
import {
  codeOf,
  type OnceOptions,
  openOnce,
  openWaiting,
  orderKey,
  ownReplay,
} from "./once-shop.ts";
import type { Layer, Turn } from "./turn.ts";

/** As adapters for serverless functions and test doubles make their requests. */
const withoutRawHeaders = [[], undefined].map((none) =>
  layerThatWaits(async (req) => {
    req.rawHeaders = none as string[];
  }),
);

describe.each(mainFrameworks)("$name", (framework) => {
  test.each(withoutRawHeaders)(
    "a key is read where the request has no raw headers",
    async (without) => {
      const shop = await openOnce({ framework, outside: [without] });
      const [first, second] = await shop.twice();
      expect([first.body, second.body, shop.runs]).toEqual(['{"run":1}', '{"run":1}', 1]);
    },
  );

  test("a request that somebody has answered while it waited is not answered again", async () => {
    const errors: unknown[] = [];
    let replays = 0;
    const { goOn, once: shop } = await openWaiting({
      framework,
      guard: { idempotency: { waitMs: 5_000 } },
      outside: [answeringAfter(100)],
      onError: (error) => errors.push(error),
      answers: {
        onReplay: () => {
          replays++;
          return [200, {}];
        },
      },
      handler: (turn) => {
        turn.answer(201, { placed: true });
      },
    });
    const first = await shop.start({ key: orderKey });
    expect((await shop.submit({ key: orderKey, headers: { "x-hurry": "1" } })).status).toBe(504);
    goOn();
    expect((await first.reply).status).toBe(201);
    await shop.whenKept(1);
    // What waited looks at least every 200 ms.
    await sleep(500);
    expect([replays, errors]).toEqual([0, []]);
  });

  test("of a handler's own complete, the headers of the guard's list are repeated, and no other", async () => {
    const shop = await openOnce({
      framework,
      guard: { idempotency: { replayHeaders: ["x-order"] } },
      handler: async (turn) => {
        const headers = {
          "set-cookie": "sid=1",
          "content-length": "999",
          "X-Order": "7",
          "x-cart": "8",
        };
        await turn.lease?.complete({ status: 201, headers, body: "placed" });
        turn.answer(201, "placed", "text/plain");
      },
    });
    const [, second] = await shop.twice();
    expect(second.status).toBe(201);
    expect(second.body).toBe("placed");
    expect(second.headers).not.toHaveProperty("set-cookie");
    expect(second.headers).not.toHaveProperty("x-cart");
    expect(second.headers["x-order"]).toBe("7");
  });

  test.each([
    ["/заказ/1", 409],
    ["/orders/1\r\nx: y", 409],
    ["/M\u00fcnchen", 201],
  ])("a Location %j of a handler's own complete is %i for a retry", async (location, status) => {
    const shop = await openOnce({
      framework,
      handler: async (turn) => {
        await turn.lease?.complete({ status: 201, headers: { location }, body: "placed" });
        turn.answer(201, "placed", "text/plain");
      },
    });
    const [, second] = await shop.twice();
    const code = status === 409 ? "idempotency_answer_unavailable" : undefined;
    const { "submit-lock-code": came } = second.headers;
    expect([second.status, came, shop.runs]).toEqual([status, code, 1]);
  });
});

/** A time-out of the application's, for requests in a hurry. */
function answeringAfter(ms: number): Layer {
  return {
    express: () => (req, res, next) => {
      if (req.headers["x-hurry"] !== undefined) setTimeout(() => res.status(504).end(), ms);
      next();
    },
    koa: () => async (ctx, next) => {
      if (ctx.req.headers["x-hurry"] === undefined) return await next();
      void next().catch(() => {});
      await sleep(ms);
      ctx.status = 504;
      ctx.body = "";
    },
  };
}

/** The parsers that people mount, by the framework that they run on. */
const parsers: readonly [name: string, runsOn: (framework: Framework) => boolean, layer: Layer][] =
  [
    ["express.json of 4", ({ name }) => name.startsWith("Express 4"), onExpress(express4.json())],
    ["express.json of 5", ({ name }) => name.startsWith("Express 5"), onExpress(express5.json())],
    [
      "@koa/bodyparser",
      ({ family }) => family === "koa",
      onKoa(bodyParser({ enableTypes: ["json"] })),
    ],
  ];

const mounted = mainFrameworks.flatMap((framework) =>
  parsers
    .filter(([, runsOn]) => runsOn(framework))
    .map(([parser, , layer]) => ({ name: `${framework.name}, ${parser}`, framework, layer })),
);

const untaken = [
  "image/png",
  "application/xml",
  "application/octet-stream",
  "application/x-www-form-urlencoded",
  "multipart/form-data; boundary=x",
  "; and nothing readable",
  undefined,
];

describe.each(mounted)("$name", ({ framework, layer }) => {
  test("a type that it does not take is a 415, and nothing runs", async () => {
    const once = await openOnce({ framework, unparsed: true, outside: [layer] });
    for (const type of untaken) {
      for (const framing of [{}, { "transfer-encoding": "chunked" }]) {
        const headers = { ...(type && { "content-type": type }), ...framing };
        const reply = await once.submit({ key: orderKey, headers, body: "--x--\r\n" });
        expect([headers, reply.status, reply.body]).toEqual([headers, 415, '{"failed":true}']);
        const code = "SUBMIT_LOCK_NO_FINGERPRINT";
        expect(once.shop.errors.at(-1)).toMatchObject({ code, status: 415, statusCode: 415 });
      }
    }
    expect([once.runs, await once.everything()]).toEqual([0, []]);
  });

  test("JSON is taken, and so is a request without a body", async () => {
    const once = await openOnce({ framework, unparsed: true, outside: [layer] });
    expect((await once.submit({ key: orderKey, body: { cart: 7 } })).status).toBe(201);
    expect((await once.submit({ key: "another" })).status).toBe(201);
    expect(
      (await once.submit({ body: "7", headers: { "content-type": "image/png" } })).status,
    ).toBe(201);
  });
});

describe.each(allMain.filter(hasParsers))("$name, no parser", (framework) => {
  test.each(["application/json", "application/x-www-form-urlencoded"])(
    "%s is a 500: the application has forgotten its parser",
    async (type) => {
      const once = await openOnce({ framework, unparsed: true });
      const headers = { "content-type": type };
      expect((await once.submit({ key: orderKey, headers, body: "7" })).status).toBe(500);
      expect(String(once.shop.errors[0])).toContain("Mount the body parser before the guard");
    },
  );
});

/** A shop whose first run has only told the id of its submission: nothing is kept. */
async function openKnown(options: Omit<OnceOptions, "handler">) {
  let id = "";
  let work: Promise<unknown> = Promise.resolve();
  const once = await openOnce({
    ...options,
    handler: async (turn, run) => {
      if (run === 1) turn.submission?.doNotStore();
      id = turn.submission?.id ?? "";
      await work;
      turn.answer(201, { run });
    },
  });
  await once.submit({ key: orderKey });
  await once.whenKept(0);
  return {
    once,
    submission: { id },
    lock: once.shop.lock,
    user: once.shop.user,
    worksUntil: (promise: Promise<unknown>) => {
      work = promise;
    },
  };
}

const never = () => expect.fail("it ran again");

describe.each(newest)("$name", (framework: Framework) => {
  test("a guard that meets a value of once answers 409, and neither runs nor repeats it", async () => {
    const { infos, onReplay } = ownReplay();
    const { lock, once, submission, user } = await openKnown({ framework, answers: { onReplay } });
    await lock.once(user, submission, () => ({ number: 7 }));
    const reply = await once.submit({ key: orderKey });
    expect([reply.status, codeOf(reply)]).toEqual([409, "idempotency_answer_unavailable"]);
    expect(reply.body).not.toContain("number");
    expect(infos).toEqual([]);
    expect(once.runs).toBe(1);
  });

  test("a guard that waits for once gets no answer of the value either", async () => {
    const guard = { idempotency: { waitMs: 10_000 } };
    const { lock, once, submission, user } = await openKnown({ framework, guard });
    const work = gate();
    const call = lock.once(user, submission, () => work.opened);
    await until(async () => (await once.shop.owner()) !== null, { what: "the lock to be held" });
    const click = once.begin({ key: orderKey });
    const asked = { submission };
    expect((await lock.lookUp(user, asked)).outcome).toBe("in-flight");
    work.open();
    await call;
    const reply = await click.reply;
    expect([reply.status, codeOf(reply)]).toEqual([409, "idempotency_answer_unavailable"]);
    expect(once.runs).toBe(1);
  });

  test("once that meets the answer of a guard is told that there is no value", async () => {
    const { lock, once, submission, user } = await openKnown({ framework });
    expect((await once.submit({ key: orderKey })).body).toBe('{"run":2}');
    await once.whenKept(1);
    const call = lock.once(user, submission, never);
    await expect(call).rejects.toMatchObject({ code: "SUBMIT_LOCK_ANSWER_UNAVAILABLE" });
  });

  test("once that meets a guard's order in flight waits, and does not run", async () => {
    const { lock, once, submission, user, worksUntil } = await openKnown({ framework });
    const work = gate();
    worksUntil(work.opened);
    const click = once.begin({ key: orderKey });
    await until(() => once.runs === 2, { what: "the order to run" });
    const call = lock.once(user, submission, never, { waitMs: 30_000 });
    const ended = call.catch((error: unknown) => error);
    work.open();
    expect(await ended).toMatchObject({ code: "SUBMIT_LOCK_ANSWER_UNAVAILABLE" });
    expect((await click.reply).status).toBe(201);
  });
});

test.each(koas.filter(({ http }) => http !== 2))(
  "a type that a handler sets twice is repeated as it was sent: $name",
  async (framework) => {
    const handler = ({ ctx }: Turn) => {
      Object.assign(ctx ?? {}, { body: "placed" });
      ctx?.res.setHeader("Content-Type", ["text/plain", "text/html"]);
    };
    const shop = await openOnce({ framework, handler });
    const [first, second] = await shop.twice();
    expect([first.headers["content-type"], shop.runs]).toEqual(["text/plain", 1]);
    expect(second.headers["content-type"]).toBe("text/plain");
  },
);
