import type { Socket } from "node:net";
import { Readable } from "node:stream";
import { describe, expect, test } from "vitest";
import { type AnyRedis, ioredis6 } from "../support/clients.ts";
import { startProxy } from "../support/proxy.ts";
import { forTest, sharedRedisPort } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { allMain, allOnHttp1, type Framework, seesQueued } from "./frameworks.ts";
import { gate } from "./gate.ts";
import { openRaw, submitBytes } from "./http-client.ts";
import { canAcquire, openShop } from "./shop.ts";

/** The order named in a header waits for its gate. */
async function pipelinedShop(framework: Framework, redis?: AnyRedis) {
  const gates = { first: gate(), second: gate() };
  const started: string[] = [];
  const sockets: Socket[] = [];
  let answers = true;
  const shop = await openShop({
    framework,
    handler: async (turn, work) => {
      const name = turn.req.headers["x-order"] as "first" | "second";
      started.push(name);
      sockets.push(turn.req.socket);
      await gates[name].opened;
      await work.over();
      if (answers) turn.answer(201, { order: name });
    },
    ...(redis && { redis }),
  });
  // The observer tells users apart by their keys, which begin alike.
  const users = { first: `${shop.user}-first`, second: `${shop.user}-second` };
  const connection = await openRaw(shop.port);
  const bytes = (order: "first" | "second", user = users[order]) =>
    submitBytes(user, { "X-Order": order });
  const isFree = (order: "first" | "second") => canAcquire(shop.lock, users[order]);
  /** Lets an order end whose answer nobody waits for. */
  const ends = async (order: "first" | "second") => {
    gates[order].open();
    await until(() => isFree(order), { what: `the lock of the ${order} order to be free` });
  };
  const bothStarted = () => until(() => started.length === 2, { what: "both orders to start" });
  const answerNoMore = () => {
    answers = false;
  };
  const left = () =>
    until(() => sockets.every(({ destroyed }) => destroyed), {
      what: "the server to see that the client has left",
    });
  return { shop, gates, started, left, connection, bytes, isFree, ends, bothStarted, answerNoMore };
}

describe.each(allOnHttp1)("$name", (framework: Framework) => {
  test("two submits in a row on one connection: the second is told that the first is under way", async () => {
    const { shop, gates, connection, bytes } = await pipelinedShop(framework);
    // While Redis is not ready the two are retried, each in its own time, and either may be first.
    await shop.lock.check();
    connection.send(bytes("first", shop.user), bytes("second", shop.user));
    await until(() => shop.published.contended.length === 1, { what: "the second to be refused" });
    gates.first.open();
    expect(await connection.answers(2)).toEqual([
      '201 {"order":"first"}',
      expect.stringMatching(/^409 .*submit_contended/),
    ]);
    await shop.isOverAfter(1);
  });

  test("a pipelined order that is done first is free first", async () => {
    const of = await pipelinedShop(framework);
    of.connection.send(of.bytes("first"), of.bytes("second"));
    await of.bothStarted();
    of.gates.second.open();
    // Its answer has to wait for that of the first; its lock has not.
    await until(() => of.isFree("second"), { what: "the lock of the second order to be free" });
    expect(of.connection.text).toBe("");
    expect(await of.isFree("first")).toBe(false);
    of.gates.first.open();
    expect(await of.connection.answers(2)).toEqual([
      '201 {"order":"first"}',
      '201 {"order":"second"}',
    ]);
    await until(() => of.isFree("first"), { what: "the lock of the first order to be free" });
  });

  const leaving = "a pipelined submit whose client leaves while its lock is being acquired";
  test.runIf(seesQueued(framework))(`${leaving} starts no order`, async () => {
    const proxy = await forTest(startProxy(sharedRedisPort()));
    const of = await pipelinedShop(framework, ioredis6.connect(proxy.port));
    await of.shop.lock.check();
    of.connection.send(of.bytes("first"));
    await until(() => of.started.length === 1, { what: "the first order to start" });
    const held = proxy.holdRequestOnce(([name]) => name?.toLowerCase() === "eval");
    of.connection.send(of.bytes("second"));
    await held;
    of.connection.socket.destroy();
    await of.left();
    proxy.releaseHeld();
    await until(() => of.isFree("second"), { what: "the lock of the second order to be free" });
    expect(of.started).toEqual(["first"]);
    await of.ends("first");
  });

  test("many submits in a row on one connection print no warning about listeners", async () => {
    const of = await pipelinedShop(framework);
    const warnings: Error[] = [];
    const note = (warning: Error) => void warnings.push(warning);
    process.on("warning", note);
    const users = Array.from({ length: 20 }, (_, i) => `${of.shop.user}-${i}`);
    of.connection.send(...users.map((user) => of.bytes("first", user)));
    await until(() => of.started.length === 20, { what: "twenty orders to start" });
    of.gates.first.open();
    expect(await of.connection.answers(20)).toHaveLength(20);
    process.off("warning", note);
    expect(warnings).toEqual([]);
  });
});

describe.each(allMain)("$name", (framework: Framework) => {
  // A response that is queued behind another emits nothing on Node 20 and 22, and Express answers
  // nobody here: only the socket tells.
  test("pipelined orders that never answer a client who has left end their locks when they are done", async () => {
    const of = await pipelinedShop(framework);
    of.answerNoMore();
    of.connection.send(of.bytes("first"), of.bytes("second"));
    await of.bothStarted();
    of.connection.socket.destroy();
    await of.left();
    expect([await of.isFree("first"), await of.isFree("second")]).toEqual([false, false]);
    for (const order of ["second", "first"] as const) await of.ends(order);
  });
});

/** How the body of a second response is, behind a first one that is never answered. */
const bodies: [what: string, source: () => Readable][] = [
  ["never ends", () => new Readable({ read: () => {} })],
  [
    "waits for its reader",
    () =>
      new Readable({
        read() {
          this.push(Buffer.alloc(65_536));
        },
      }),
  ],
  ["has ended", () => Readable.from(["all of it"])],
];

describe.each(allMain.filter(seesQueued))("P5: $name", (framework: Framework) => {
  test.each(bodies)(
    "a stream to a queued response that %s is torn down when its client has left",
    async (_what, open) => {
      const first = gate();
      let source: Readable | undefined;
      const shop = await openShop({
        framework,
        async handler(turn, work) {
          work.overNow();
          if (turn.req.headers["x-order"] === "first") return await first.opened;
          source = open();
          await turn.stream(source);
        },
      });
      const connection = await openRaw(shop.port);
      const bytes = (user: string, order: string) => submitBytes(user, { "X-Order": order });
      connection.send(bytes(`${shop.user}-first`, "first"), bytes(shop.user, "second"));
      await until(() => source !== undefined, { what: "the second order to start" });
      connection.socket.destroy();
      await shop.keyIsGone();
      await until(() => source?.destroyed, { what: "the stream to be torn down" });
      first.open();
    },
  );
});
