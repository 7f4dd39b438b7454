import type { Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { RedisStore, type SubmitLock } from "../../src/index.ts";
import { closeClients, ioredis6, untilReady } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, leaseOf, openLock } from "../support/locks.ts";
import { type RedisProxy, startProxy } from "../support/proxy.ts";
import { forTest, sharedRedisPort } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { type Framework, hasLayers, newestOnBoth } from "./frameworks.ts";
import { listen, openClient } from "./http-client.ts";
import { codeOf, everywhere, type OnceOptions, openOnce, orderKey, unmarked } from "./once-shop.ts";
import { patientTimes } from "./shop.ts";
import type { Turn } from "./turn.ts";

describe("once cost", () => {
  let proxy: RedisProxy;
  beforeEach(async () => {
    proxy = await forTest(startProxy(sharedRedisPort()));
  });

  /** A shop whose connection to Redis is up, and what has passed the proxy since. */
  async function warm(options: OnceOptions) {
    const once = await openOnce({ ...options, redis: ioredis6.connect(proxy.port) });
    await once.shop.lock.check();
    const before = proxy.commands.length;
    return { once, commands: () => proxy.commands.slice(before) };
  }

  const methods = ["end", "flushHeaders", "write", "writeHead"];

  describe.each(newestOnBoth)("$name", (framework: Framework) => {
    test("a fresh order costs two commands, and whatever is not run costs one", async () => {
      const { once, commands } = await warm({ framework });
      await once.submit({ key: orderKey });
      await once.whenKept(1);
      expect(commands()).toHaveLength(2);
      for (const body of [undefined, { cart: 8 }]) {
        const before = commands().length;
        await once.submit({ key: orderKey, ...(body && { body }) });
        expect(commands()).toHaveLength(before + 1);
      }
      expect(once.runs).toBe(1);
    });

    test.each([
      ["record", {}],
      ["release", { idempotency: undefined } as object],
    ])("the answer waits for nothing but the handler: not for its %s", async (what, guard) => {
      const { once, commands } = await warm({
        framework,
        guard,
        handler: (turn, run) => {
          proxy.holdReplies();
          turn.answer(201, { run });
        },
      });
      expect((await once.submit({ key: orderKey })).status).toBe(201);
      await until(() => commands().length >= 2, { what: `the ${what} to be sent` });
      expect(once.shop.published.releases).toEqual([]);
      proxy.releaseHeld();
      await once.whenKept(what === "record" ? 1 : 0);
    });

    test("a retry elsewhere, before the record is there, is told to wait, and afterwards is repeated", async () => {
      let held: Promise<void> | undefined;
      const { once } = await warm({
        framework,
        handler: (turn, run) => {
          // The next one, which is the record.
          held = proxy.holdRequestOnce(() => true);
          turn.answer(201, { run });
        },
      });
      const elsewhere = await openOnce({ framework, guard: { idempotency: { waitMs: 0 } } });
      const retry = () => elsewhere.submit({ key: orderKey, user: once.shop.user });
      const first = await once.submit({ key: orderKey });
      await held;
      for (let i = 0; i < 3; i++) expect(codeOf(await retry())).toBe("idempotency_in_flight");
      proxy.releaseHeld();
      await once.whenKept(1);
      expect(unmarked(await retry())).toEqual(unmarked(first));
      expect([once.runs, elsewhere.runs]).toEqual([1, 0]);
    });

    test.runIf(hasLayers(framework)).each([
      ["without idempotency", {}],
      ["without an id", { idempotency: {} }],
    ])(
      "%s the response is left as it is, and Redis is asked for a lock alone",
      async (_how, guard) => {
        const own: string[] = [];
        let beforeTheWork = 0;
        const { once, commands } = await warm({
          framework,
          guard: { idempotency: undefined, ...guard } as object,
          handler: ({ res, answer }, run) => {
            beforeTheWork = commands().length;
            own.push(...methods.filter((name) => Object.hasOwn(res, name)));
            answer(201, { run });
          },
        });
        await once.submit();
        await once.whenKept(0);
        // On HTTP/2 a lock alone, too, sees the end of a response nowhere but in its `end`.
        expect(own).toEqual(framework.http === 2 ? ["end"] : []);
        expect(beforeTheWork).toBe(1);
        const oneKey = ["eval", "1"];
        expect(commands().map(([name, , keys]) => [name?.toLowerCase(), keys])).toEqual([
          oneKey,
          oneKey,
        ]);
        expect(commands().flat().join()).not.toContain("{lock");
      },
    );
  });
});

describe("once order", () => {
  const closing: (() => unknown)[] = [];
  afterEach(async () => {
    for (const close of closing.splice(0).reverse()) await close();
    // What they still hold is given back before Redis is out of reach.
    await closeLocks();
    closeClients();
  });

  interface Shop {
    readonly lock: SubmitLock;
    readonly proxy: RedisProxy;
  }
  type Handler = (turn: Turn, shop: Shop) => unknown;

  /** A write to Redis: whether the answer's bytes were in the process still, and its turn went on. */
  interface Write {
    readonly what: "acquire" | "end";
    readonly answerIsHere: boolean;
    readonly isInTurnOfAnswer: boolean;
  }

  async function orderOf(
    framework: Framework,
    handler: Handler,
    guard: object | undefined,
  ): Promise<{ writes: Write[]; methods: string[]; status: number; body: string }> {
    const proxy = await forTest(startProxy(sharedRedisPort()));
    const client = ioredis6.connect(proxy.port);
    await untilReady(client);
    const user = freshUser();
    const sockets: Socket[] = [];
    const writes: Write[] = [];
    let isInTurnOfAnswer = false;
    const { sendCommand } = client;
    client.sendCommand = function sendAndLook(this: typeof client, ...args) {
      const sent = Reflect.apply(sendCommand, this, args);
      if (args[0].args.some((arg) => String(arg).includes(user))) {
        const answerIsHere = sockets.some(({ writableLength }) => writableLength > 0);
        writes.push({
          what: writes.length === 0 ? "acquire" : "end",
          answerIsHere,
          isInTurnOfAnswer,
        });
      }
      return sent;
    } as typeof client.sendCommand;
    const lock = openLock({ store: new RedisStore(client), ...patientTimes });
    const server = framework.makeServer({
      lock: guard && lock,
      ...(guard && { guard }),
      async handler(turn) {
        await handler(turn, { lock, proxy });
        isInTurnOfAnswer = true;
        setImmediate(() => {
          isInTurnOfAnswer = false;
        });
        turn.answer(201, { order: 7 });
      },
    });
    server.on("connection", (socket: Socket) => sockets.push(socket));
    const port = await listen(server);
    closing.push(() => new Promise((closed) => server.close(closed)));
    const http = openClient(1, port);
    closing.push(() => http.close());
    const headers = { "x-user": user, "idempotency-key": orderKey };
    const { status, body } = await http.call({ headers }).reply;
    if (guard) await until(() => writes.length === 2, { what: "the end to be written" });
    const methods = sockets.flatMap((socket) =>
      Object.entries(socket).flatMap(([name, value]) =>
        typeof value === "function" ? [name] : [],
      ),
    );
    return { writes, methods, status, body };
  }

  const onHttp1 = everywhere.filter(({ http }) => http !== 2);
  const work: [what: string, handler: Handler][] = [
    ["at once", () => {}],
    ["when it has worked", () => sleep(5)],
    [
      "while Redis is busy with other users",
      async (_turn, { lock, proxy }) => {
        proxy.holdReplies();
        const others = [leaseOf(lock, freshUser())];
        await until(() => proxy.count("eval") === 2, { what: "the other's acquire" });
        // Another one that waits for the end of its turn.
        others.push(leaseOf(lock, freshUser()));
        setTimeout(proxy.releaseHeld, 20);
        closing.push(async () => {
          for (const lease of await Promise.all(others)) await lease.release();
        });
      },
    ],
  ];

  describe.each(onHttp1)("P8: $name", (framework) => {
    test.each(work)(
      "an answer that is given %s leaves the process at once, and its complete follows within the turn",
      async (_when, handler) => {
        const order = await orderOf(framework, handler, { idempotency: {} });
        expect(order).toMatchObject({ status: 201, body: '{"order":7}' });
        expect(order.writes).toEqual([
          { what: "acquire", answerIsHere: false, isInTurnOfAnswer: false },
          { what: "end", answerIsHere: false, isInTurnOfAnswer: true },
        ]);
      },
    );

    test.each<object>([{}, { idempotency: {} }, { cooldownMs: 1_000 }])(
      "a guard with %o replaces nothing of the connection",
      async (guard) => {
        const bare = await orderOf(framework, () => {}, undefined);
        const guarded = await orderOf(framework, () => {}, guard);
        expect(guarded.methods).toEqual(bare.methods);
      },
    );
  });
});
