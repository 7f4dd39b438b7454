import { once } from "node:events";
import type { AddressInfo, Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, test } from "vitest";
import { RedisStore, type SubmitLock } from "../../src/index.ts";
import { closeClients, ioredis6, untilReady } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, leaseOf, openLock } from "../support/locks.ts";
import { type RedisProxy, startProxy } from "../support/proxy.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { expresses, type Framework } from "./frameworks.ts";
import { openClient } from "./http-client.ts";
import { everywhere, orderKey } from "./once-shop.ts";
import { patientTimes } from "./shop.ts";
import type { Turn } from "./turn.ts";

const closing: (() => unknown)[] = [];
const proxies: RedisProxy[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
  // What they still hold is given back before Redis is out of reach.
  await closeLocks();
  closeClients();
  await Promise.all(proxies.splice(0).map((proxy) => proxy.stop()));
});

interface Shop {
  readonly lock: SubmitLock;
  readonly proxy: RedisProxy;
}
type Handler = (turn: Turn, shop: Shop) => unknown;

/** What was written to Redis, and whether the answer's bytes were still in the process then. */
interface Write {
  readonly what: "acquire" | "end";
  readonly answerIsHere: boolean;
}

async function orderOf(
  framework: Framework,
  handler: Handler,
  guard: object,
  answered: () => void = () => {},
): Promise<{ writes: Write[]; sockets: Socket[]; status: number; body: string }> {
  const proxy = await startProxy(sharedRedisPort());
  proxies.push(proxy);
  const client = ioredis6.connect(proxy.port);
  await untilReady(client);
  const user = freshUser();
  const sockets: Socket[] = [];
  const writes: Write[] = [];
  const { sendCommand } = client;
  client.sendCommand = function sendAndLook(this: typeof client, ...args) {
    const sent = Reflect.apply(sendCommand, this, args);
    if (args[0].args.some((arg) => String(arg).includes(user))) {
      const answerIsHere = sockets.some(({ writableLength }) => writableLength > 0);
      writes.push({ what: writes.length === 0 ? "acquire" : "end", answerIsHere });
    }
    return sent;
  } as typeof client.sendCommand;
  const lock = openLock({ store: new RedisStore(client), ...patientTimes });
  const server = framework.makeServer({
    lock,
    guard,
    handler: (turn) => handler(turn, { lock, proxy }),
  });
  server.on("connection", (socket: Socket) => sockets.push(socket));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  closing.push(() => new Promise((closed) => server.close(closed)));
  const http = openClient(1, (server.address() as AddressInfo).port);
  closing.push(() => http.close());
  const headers = { "x-user": user, "idempotency-key": orderKey };
  const { status, body } = await http.call({ headers }).reply;
  answered();
  await until(() => writes.length === 2, { what: "the end to be written" });
  return { writes, sockets, status, body };
}

const onHttp1 = everywhere.filter(({ http }) => http !== 2);
const answers: [what: string, handler: Handler][] = [
  ["at once", (turn) => turn.answer(201, { order: 7 })],
  [
    "when it has worked",
    async (turn) => {
      await sleep(5);
      turn.answer(201, { order: 7 });
    },
  ],
  [
    "while Redis is busy with other users",
    async (turn, { lock, proxy }) => {
      proxy.holdReplies();
      const others = [leaseOf(lock, freshUser())];
      await until(() => proxy.count("eval") === 2, { what: "the other's acquire" });
      // Another one that waits for the end of its turn.
      others.push(leaseOf(lock, freshUser()));
      turn.answer(201, { order: 7 });
      setTimeout(proxy.releaseHeld, 20);
      closing.push(async () => {
        for (const lease of await Promise.all(others)) await lease.release();
      });
    },
  ],
];

describe.each(onHttp1)("$name", (framework) => {
  test.each(answers)(
    "an answer that is given %s leaves the process behind its record",
    async (_when, handler) => {
      const order = await orderOf(framework, handler, { idempotency: {} });
      expect(order).toMatchObject({ status: 201, body: '{"order":7}' });
      expect(order.writes).toEqual([
        { what: "acquire", answerIsHere: false },
        { what: "end", answerIsHere: true },
      ]);
    },
  );

  test("an answer of a lock alone leaves at once, and its connection is as it was", async () => {
    const handler = (turn: Turn) => turn.answer(201, { order: 7 });
    const { sockets, writes } = await orderOf(framework, handler, {});
    expect(writes.map(({ answerIsHere }) => answerIsHere)).toEqual([false, false]);
    expect(sockets.map((socket) => Object.hasOwn(socket, "uncork"))).toEqual([false]);
  });
});

describe.each(expresses)("$name", (framework) => {
  test.each<[how: string, answer: (turn: Turn) => unknown]>([
    ["res.end", ({ express }) => express?.res.status(201).end("placed")],
    [
      "res.end after res.write",
      ({ express }) => {
        express?.res.write("pla");
        express?.res.end("ced");
      },
    ],
  ])("so does one that %s gives", async (_how, handler) => {
    const { body, writes } = await orderOf(framework, handler, { idempotency: {} });
    expect(body).toBe("placed");
    expect(writes[1]).toEqual({ what: "end", answerIsHere: true });
  });

  test.runIf(framework.seesWork)(
    "work that goes on after the answer does not hold the answer back",
    async () => {
      let finish = () => {};
      const finished = new Promise<void>((resolve) => {
        finish = resolve;
      });
      const handler = async (turn: Turn) => {
        turn.answer(201, { order: 7 });
        await finished;
      };
      // Only what has been answered lets the work end.
      const { writes } = await orderOf(framework, handler, { idempotency: {} }, finish);
      expect(writes[1]).toEqual({ what: "end", answerIsHere: false });
    },
  );
});
