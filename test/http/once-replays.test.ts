import { channel } from "node:diagnostics_channel";
import type { ServerResponse } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import type { ReplayMessage } from "../../src/express/index.ts";
import { ioredis6 } from "../support/clients.ts";
import { startProxy } from "../support/proxy.ts";
import { forTest, sharedRedisPort } from "../support/redis-server.ts";
import { describedAnew } from "../support/submissions.ts";
import { until } from "../support/until.ts";
import { type Framework, newest, seesOutside } from "./frameworks.ts";
import { gate } from "./gate.ts";
import { layerThatWaits } from "./layers.ts";
import {
  codeOf,
  everywhere,
  type OnceShop,
  onAll,
  openOnce,
  openWaiting,
  orderKey,
  ownReplay,
  unmarked,
} from "./once-shop.ts";
import type { Told } from "./turn.ts";

const headersOf = (info: Told | undefined) => Object(Object(info)["answer"]).headers;

/** A record behind its head: status, headers and more. */
interface Content {
  readonly s: number;
  readonly h: Readonly<Record<string, string>>;
}

// Koa sends each body with the end, for which Node garbles such a name, a first answer's as well.
const keepsNames = ({ family }: Framework) => family === "express" || family === "fastify";

describe.each(onAll.filter(keepsNames))("$name", (framework: Framework) => {
  test("a repeat has the file name and the length of the first answer", async () => {
    const once = await openOnce({
      framework,
      handler: (turn) => {
        const res = turn.byHand();
        res.writeHead(201, {
          "content-type": "application/pdf",
          "content-disposition": 'attachment; filename="März.pdf"',
          "content-length": 4,
        });
        res.write(Buffer.from("%P"));
        res.end(Buffer.from([0xff, 0xfe]));
      },
    });
    const [first, second] = await once.twice();
    expect(second.headers["idempotent-replayed"]).toBe("true");
    for (const { body, headers } of [first, second]) {
      expect(headers["content-disposition"]).toBe('attachment; filename="März.pdf"');
      expect([headers["content-length"], body]).toEqual(["4", "%P\xff\xfe"]);
    }
  });
});

describe.each(newest)("$name", (framework: Framework) => {
  test("a repeat of an empty body has the header that is the answer, or how to read it", async () => {
    const headers = {
      "hx-push-url": "/orders/7",
      "hx-redirect": "/orders/7",
      "x-accel-redirect": "/invoices/7.pdf",
      "x-inertia": "true",
      "x-remix-reload-document": "true",
      "x-tss-serialized": "true",
    };
    const once = await openOnce({
      framework,
      handler: ({ byHand, hono }) => {
        if (hono !== undefined) return hono.respond(new Response("", { headers }));
        byHand().writeHead(200, headers).end();
      },
    });
    const [first, second] = await once.twice();
    for (const reply of [first, second]) expect(reply).toMatchObject({ status: 200, headers });
    expect(second.headers["idempotent-replayed"]).toBe("true");
  });

  test("an answer whose body is not kept is answered by onReplay, from the database", async () => {
    const { infos, onReplay } = ownReplay({ order: "as it is now" });
    const once = await openOnce({
      framework,
      guard: { idempotency: { maxBodyBytes: 0 } },
      answers: { onReplay },
    });
    const [first, second] = await once.twice();
    expect(first.body).toBe('{"run":1}');
    expect([second.status, second.body]).toEqual([200, '{"order":"as it is now"}']);
    const type = { "content-type": expect.stringMatching(/^application\/json/) };
    const headers = expect.objectContaining(type);
    const answer = expect.objectContaining({ status: 201, headers, body: undefined });
    expect(infos).toEqual([{ reason: "replay", answer, ageMs: expect.any(Number) }]);
    expect(once.runs).toBe(1);
  });

  test("onReplay is told the whole answer", async () => {
    const { infos, onReplay } = ownReplay();
    const once = await openOnce({ framework, answers: { onReplay } });
    await once.twice();
    const { answer, ageMs } = infos[0] as unknown as {
      answer: { body: Uint8Array };
      ageMs: number;
    };
    expect(Buffer.from(answer.body).toString()).toBe('{"run":1}');
    expect(ageMs).toBeGreaterThanOrEqual(0);
  });

  test("each replay is published, with its age and with what gave the id", async () => {
    const messages: ReplayMessage[] = [];
    const listener = (message: unknown) => void messages.push(message as ReplayMessage);
    channel("submit-lock:replay").subscribe(listener);
    const header = await openOnce({ framework });
    const guard = { idempotency: { submissionId: () => "7:3" } };
    const derived = await openOnce({ framework, guard });
    await header.twice();
    await derived.twice();
    channel("submit-lock:replay").unsubscribe(listener);
    const said = {
      ...{ keyPrefix: "lock:submit:", ageMs: expect.any(Number), isTold: false },
      submission: expect.stringMatching(/^[\w-]{22}$/),
    };
    expect(messages).toEqual([
      { key: header.shop.key, ...said, source: "key" },
      { key: derived.shop.key, ...said, source: "derived" },
    ]);
    for (const { ageMs } of messages) expect(ageMs).toBeGreaterThanOrEqual(0);
  });

  /** What another writer makes of the record of the user's only submission. */
  async function rewrite(once: OnceShop, change: (content: Content) => Content): Promise<void> {
    const [[key]] = (await once.everything()) as [[string]];
    const text = String(await once.shop.redis.get(key));
    await once.shop.redis.set(key, describedAnew(text, change));
  }

  test("a record with a status that no guard keeps is of another writer, and is not repeated", async () => {
    const { infos, onReplay } = ownReplay();
    for (const answers of [{}, { onReplay }]) {
      const once = await openOnce({ framework, answers });
      await once.submit({ key: orderKey });
      await once.whenKept(1);
      for (const status of [100, 103, 199, 500, 599]) {
        await rewrite(once, (content) => ({ ...content, s: status }));
        const reply = await once.submit({ key: orderKey });
        expect([reply.status, codeOf(reply)]).toEqual([409, "idempotency_answer_unavailable"]);
      }
      expect([once.runs, once.shop.errors]).toEqual([1, []]);
    }
    expect(infos).toEqual([]);
  });

  test("of a record of another writer, the headers of the guard's list are repeated, and no other", async () => {
    const unlisted = { "access-control-allow-origin": "*", "set-cookie": "sid=1", "x-order": "7" };
    const framing = { "content-length": "999", "transfer-encoding": "chunked" };
    const foreign = { ...unlisted, ...framing, "X-Cart": "8", Location: "/orders/7" };
    const { infos, onReplay } = ownReplay();
    for (const answers of [{}, { onReplay }]) {
      const once = await openOnce({ framework, answers });
      await once.submit({ key: orderKey });
      await once.whenKept(1);
      await rewrite(once, (content) => ({ ...content, h: { ...content.h, ...foreign } }));
      const reply = await once.submit({ key: orderKey });
      const headers = "onReplay" in answers ? headersOf(infos[0]) : reply.headers;
      for (const name of [...Object.keys(unlisted), "x-cart", "X-Cart"]) {
        expect(headers).not.toHaveProperty(name);
      }
      expect(headers["location"]).toBe("/orders/7");
    }
  });

  test.runIf(seesOutside(framework))(
    "a part of a document is repeated with its range, and with what it varies by",
    async () => {
      const once = await openOnce({
        framework,
        outside: [
          layerThatWaits(async (req, res) => {
            res.setHeader("vary", req.headers["x-lang"] ? "Accept-Language, Origin" : "Origin");
          }),
        ],
        handler: (turn) => {
          turn.res.setHeader("content-range", "bytes 0-5/7");
          turn.res.setHeader("vary", "Origin, Accept");
          turn.answer(206, "placed", "text/plain");
        },
      });
      const [first, second] = await once.twice();
      expect(first.headers["content-range"]).toBe("bytes 0-5/7");
      expect(unmarked(second)).toEqual(unmarked(first));
      // The retry's own middleware has its say.
      const other = await once.submit({ key: orderKey, headers: { "x-lang": "1" } });
      expect(other.headers["vary"]).toBe("Accept-Language, Origin, Accept");
    },
  );

  test("a record that somebody has overwritten with rubbish is a 503, for its submission alone", async () => {
    const once = await openOnce({ framework });
    await once.twice();
    const [[key]] = (await once.everything()) as [[string]];
    for (const rubbish of ["rubbish", "x".repeat(100)]) {
      await once.shop.redis.set(key, rubbish);
      const reply = await once.submit({ key: orderKey });
      expect([reply.status, codeOf(reply)]).toEqual([503, "submit_unavailable"]);
    }
    expect((await once.submit({ key: "another" })).body).toBe('{"run":2}');
  });

  describe("with waitMs", () => {
    const guard = { idempotency: { waitMs: 5_000 } };

    test("a second click is given the answer of the first when that is there", async () => {
      const once = await openOnce({
        framework,
        guard,
        handler: async (turn, run) => {
          await sleep(150);
          turn.answer(201, { run });
        },
      });
      const first = await once.start({ key: orderKey });
      const others = Array.from({ length: 3 }, () => once.submit({ key: orderKey }));
      const answer = unmarked(await first.reply);
      for (const other of await Promise.all(others)) {
        expect(unmarked(other)).toEqual(answer);
        expect(other.headers["idempotent-replayed"]).toBe("true");
      }
      expect(once.runs).toBe(1);
    });

    test("a second click is told so when the first is over and its answer is too long, and is not run", async () => {
      const { goOn, once } = await openWaiting({
        framework,
        guard: { idempotency: { ...guard.idempotency, maxBodyBytes: 3 } },
        handler: (turn) => {
          turn.answer(402, { declined: true });
        },
      });
      const first = await once.start({ key: orderKey });
      const second = once.submit({ key: orderKey });
      const page = once.submit({ key: orderKey, headers: { accept: "text/html" } });
      const { contended } = once.shop.published;
      await until(() => contended.length >= 2, { what: "both to wait" });
      goOn();
      expect((await first.reply).status).toBe(402);
      const reply = await second;
      expect([reply.status, codeOf(reply)]).toEqual([409, "idempotency_in_flight"]);
      expect(reply.body).toContain("a retry is processed as a new submission");
      expect((await page).body).toContain("<h1>Your first click is no longer being processed</h1>");
      expect(once.runs).toBe(1);
    });

    test("it gives up after that time", async () => {
      const { goOn, once } = await openWaiting({
        framework,
        guard: { idempotency: { waitMs: 200 } },
      });
      await once.start({ key: orderKey });
      const before = performance.now();
      expect(codeOf(await once.submit({ key: orderKey }))).toBe("idempotency_in_flight");
      expect(performance.now() - before).toBeGreaterThanOrEqual(195);
      goOn();
    });

    test("another submission and another payload do not wait", async () => {
      const goOn = gate();
      const once = await openOnce({ framework, guard, handler: () => goOn.opened });
      await once.start({ key: orderKey });
      expect(codeOf(await once.submit({ key: "another" }))).toBe("submit_contended");
      expect(codeOf(await once.submit({ key: orderKey, body: { cart: 8 } }))).toBe(
        "idempotency_conflict",
      );
      expect(codeOf(await once.submit())).toBe("submit_contended");
      goOn.open();
    });

    test("a client that leaves while it waits asks Redis no more", async () => {
      const proxy = await forTest(startProxy(sharedRedisPort()));
      const { goOn, once } = await openWaiting({
        framework,
        guard: { idempotency: { waitMs: 30_000 } },
        redis: ioredis6.connect(proxy.port),
      });
      await once.start({ key: orderKey });
      const waiting = once.begin({ key: orderKey });
      await until(() => proxy.commands.length > 5, { what: "it to ask" });
      waiting.abort();
      await sleep(250);
      const asked = proxy.commands.length;
      await sleep(500);
      expect(proxy.commands.length).toBe(asked);
      goOn();
    });

    test("a Redis that falls silent under a wait is 503 after acquireTimeoutMs, not 409", async () => {
      const proxy = await forTest(startProxy(sharedRedisPort()));
      const { goOn, once } = await openWaiting({
        framework,
        // A repeat whose first order still runs must not run beside it, whatever the option says.
        guard: { onUnavailable: "proceed", idempotency: { waitMs: 30_000 } },
        times: { acquireTimeoutMs: 3_000, commandTimeoutMs: 1_500 },
        redis: ioredis6.connect(proxy.port),
      });
      await once.start({ key: orderKey });
      const waiting = once.submit({ key: orderKey });
      await until(() => proxy.commands.length > 5, { what: "it to ask" });
      const from = performance.now();
      proxy.swallowRequests(true);
      const reply = await waiting;
      expect([reply.status, codeOf(reply)]).toEqual([503, "submit_unavailable"]);
      expect(performance.now() - from).toBeLessThan(15_000);
      proxy.swallowRequests(false);
      goOn();
    });

    test("a lock that is closed ends the wait with 503", async () => {
      const { goOn, once } = await openWaiting({
        framework,
        guard: { idempotency: { waitMs: 30_000 } },
      });
      await once.start({ key: orderKey });
      const waiting = once.submit({ key: orderKey });
      const { contended } = once.shop.published;
      await until(() => contended.length > 0, { what: "it to wait" });
      const from = performance.now();
      const closed = once.shop.lock.close({ timeoutMs: 0 });
      const reply = await waiting;
      expect([reply.status, codeOf(reply)]).toEqual([503, "submit_unavailable"]);
      expect(performance.now() - from).toBeLessThan(15_000);
      goOn();
      await closed;
    });
  });

  describe("with cooldownMs", () => {
    const guard = { cooldownMs: 30_000 };

    test("an order is followed by none until it is over", async () => {
      const once = await openOnce({ framework, guard: { cooldownMs: 2_000 } });
      expect((await once.submit()).status).toBe(201);
      const second = await once.submit();
      expect([second.status, Number(second.headers["retry-after"]) <= 2]).toEqual([409, true]);
      const isOver = async () => (await once.submit()).status === 201;
      await until(isOver, { what: "the end of the cooldown" });
      expect(once.runs).toBe(2);
    });

    test.each([
      ["a refusal", 402],
      ["a failure", 500],
    ])("%s is followed by the next try at once", async (_what, status) => {
      const idempotency = { store: "final" } as const;
      const once = await openOnce({
        framework,
        guard: { ...guard, idempotency },
        handler: (turn, run) => turn.answer(run < 3 ? status : 201, { run }),
      });
      await once.submit();
      await once.whenKept(0);
      // A refusal that is kept leaves none either.
      await once.submit({ key: orderKey });
      await once.shop.keyIsGone();
      expect((await once.submit()).body).toBe('{"run":3}');
    });

    test("an answer is repeated while it lasts, and does not begin it anew", async () => {
      const once = await openOnce({ framework, guard: { ...guard, idempotency: {} } });
      const first = await once.submit({ key: orderKey });
      const owner = await once.shop.owner();
      const before = await once.shop.redis.pttl(once.shop.key);
      expect(unmarked(await once.submit({ key: orderKey }))).toEqual(unmarked(first));
      expect(codeOf(await once.submit({ key: "another" }))).toBe("submit_contended");
      expect(await once.shop.owner()).toBe(owner);
      expect(await once.shop.redis.pttl(once.shop.key)).toBeLessThanOrEqual(before);
      expect(once.runs).toBe(1);
    });
  });
});

describe.each([...everywhere, ...newest.filter(({ family }) => family === "fastify")])(
  "$name",
  (framework: Framework) => {
    test("headers of outer middleware are those of the request, and not of the first answer", async () => {
      let links = 0;
      const head = () => ({
        link: `<${++links}>; rel=next`,
        "cache-control": "no-store",
        vary: "Origin",
      });
      const set = (res: ServerResponse) => {
        for (const [name, value] of Object.entries(head())) res.setHeader(name, value);
      };
      const outer = layerThatWaits(async (_req, res) => set(res));
      const once = await openOnce({ framework, outside: [outer] });
      const [first, second] = await once.twice();
      expect([first.headers["link"], second.headers["link"]]).toEqual([
        "<1>; rel=next",
        "<2>; rel=next",
      ]);
      expect(second.headers["cache-control"]).toBe("no-store");
      for (const text of await once.records()) expect(text).not.toMatch(/rel=next|no-store|Origin/);
    });
  },
);
