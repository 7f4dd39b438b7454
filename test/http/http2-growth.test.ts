import { type EventEmitter, once } from "node:events";
import { connect, type Http2Server, type ServerHttp2Session } from "node:http2";
import type { Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { getHeapSpaceStatistics } from "node:v8";
import { afterEach, describe, expect, test } from "vitest";
import { RedisStore } from "../../src/index.ts";
import { closeClients, ioredis6 } from "../support/clients.ts";
import { collectGarbage } from "../support/garbage.ts";
import { freshUser } from "../support/ids.ts";
import { closeLocks, openLock } from "../support/locks.ts";
import { sharedRedisPort } from "../support/redis-server.ts";
import { koas } from "./frameworks.ts";
import { listen } from "./http-client.ts";
import { patientTimes } from "./shop.ts";

/** Enough that 300 bytes kept of each are seen. */
const requests = 6_000;
/** Until its functions are compiled, with what V8 learns of them. */
const warmUp = 2_000;
/** How many streams of the connection are open at a time. */
const atOnce = 50;
/** What the process may keep of a request, in bytes. */
const keptBytes = 200;
/** A leak grows in each of them, and what else happens to a process' heap in few. */
const stretches = 5;

const closing: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
  await closeLocks();
  closeClients();
});

/**
 * What stays in the heap, in bytes. The last requests end first, and an object that is held weakly
 * goes in a later turn. The young generation is not counted: it is given out in pieces of some
 * hundred kilobytes.
 */
async function heapUsed(): Promise<number> {
  for (let turn = 0; turn < 3; turn++) {
    await sleep(100);
    collectGarbage();
  }
  const spaces = getHeapSpaceStatistics().filter(({ space_name }) => space_name !== "new_space");
  return spaces.reduce((sum, { space_used_size }) => sum + space_used_size, 0);
}

/** Everything of an object that a request might lengthen. */
function shapeOf(it: EventEmitter): unknown {
  const own = Reflect.ownKeys(it).map((name) => {
    const value: unknown = Reflect.get(it, name);
    return [String(name), typeof value === "function" ? value.name : typeof value];
  });
  const listeners = it.eventNames().map((name) => [String(name), it.listenerCount(name)]);
  return { own, listeners };
}

const onHttp2 = koas.filter(({ http, major }) => http === 2 && major === 3);
const guards = [{}, { idempotency: {}, cooldownMs: 1 }];

describe.each(onHttp2)("$name", (framework) => {
  test.each(guards)(
    `P7: ${requests} requests on one connection leave nothing behind, with %o`,
    async (guard) => {
      const store = new RedisStore(ioredis6.connect(sharedRedisPort()));
      const lock = openLock({ store, ...patientTimes });
      const handler = async ({ answer }: { answer(status: number, body: string): void }) => {
        answer(201, "placed");
      };
      const server = framework.makeServer({ lock, guard, handler }) as Http2Server;
      const sockets: Socket[] = [];
      const sessions: ServerHttp2Session[] = [];
      server.on("connection", (socket: Socket) => sockets.push(socket));
      server.on("session", (session) => sessions.push(session));
      const port = await listen(server);
      closing.push(() => server.close());
      const client = connect(`http://127.0.0.1:${port}`);
      closing.push(() => client.destroy());
      const user = freshUser();
      let sent = 0;
      const submit = async (): Promise<void> => {
        const order = sent++;
        const stream = client.request({
          ":method": "POST",
          ":path": "/orders",
          "x-user": `${user}-${order}`,
          "idempotency-key": "a-key",
        });
        stream.end();
        const [{ ":status": status }] = await once(stream, "response");
        expect(status).toBe(201);
        stream.resume();
        await once(stream, "close");
      };
      const submitUntil = async (count: number): Promise<void> => {
        const one = async () => {
          while (sent < count) await submit();
        };
        await Promise.all(Array.from({ length: atOnce }, one));
      };
      const shapes = () => [...sockets, ...sessions].map(shapeOf);

      await submitUntil(warmUp);
      const shape = shapes();
      const growth: number[] = [];
      const more = (requests - warmUp) / stretches;
      for (let stretch = 1; stretch <= stretches; stretch++) {
        const before = await heapUsed();
        await submitUntil(warmUp + stretch * more);
        growth.push(((await heapUsed()) - before) / more);
      }
      expect(sockets).toHaveLength(1);
      expect(shapes()).toEqual(shape);
      const median = growth.toSorted((one, other) => one - other)[(stretches - 1) / 2];
      expect(median, `bytes of a request: ${growth.map(Math.round)}`).toBeLessThan(keptBytes);
    },
  );
});
