import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, describe, expect, inject, it } from "vitest";
import { type Asked, postAndLeave, type Reply, type Told, toldBy } from "./client.ts";
import { crash, scenarios, type Trial } from "./scenarios.ts";
import { textOf } from "./shop.ts";
import { Stage } from "./stage.ts";

const asked: Asked = {
  order: { cart: "c", item: "bicycle", answer: "json", workMs: 50 },
  user: "a",
  key: "k",
};
const otherUser: Asked = { ...asked, user: "b" };
const otherPayload: Asked = { ...asked, order: { ...asked.order, item: "tandem" } };
const answer = ({ order, user }: Asked, run = 1, status = 201): Reply => ({
  status,
  ...textOf(order, user, run),
});

describe("what a client was told", () => {
  const replies: [string, Reply, Told][] = [
    ["the answer of the first run is the first answer", answer(asked), "first answer"],
    ["the answer of the second run is a new order", answer(asked, 2), "new order"],
    ["a receipt of somebody else is wrong", answer(otherUser), "another user's answer"],
    ["a receipt of something else is wrong", answer(otherPayload), "another payload's answer"],
    ["another status is an altered answer", answer(asked, 1, 200), "altered answer"],
    ["another type is altered", { ...answer(asked), type: "text/html" }, "altered answer"],
    ["one byte more is altered", { ...answer(asked), body: " " } as Reply, "altered answer"],
    ["a success without a body is empty", { ...answer(asked), body: "" } as Reply, "empty answer"],
    ["a refusal is its status", { ...answer(asked), status: 409 } as Reply, 409],
    ["a broken connection is no answer", { failure: "reset" }, "no answer"],
  ];

  it.each(replies)("%s", (_title, reply, told) => {
    expect(toldBy(reply, asked, [otherUser, otherPayload])).toBe(told);
  });
});

it("a client that leaves has closed its connection before an answer", async () => {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const requests = once(server, "request");
  const { port } = server.address() as AddressInfo;
  await postAndLeave(port, asked, 50);
  const [req] = (await requests) as [IncomingMessage];
  if (!req.socket.destroyed) await once(req.socket, "close");
  expect(req.headers["idempotency-key"]).toBe(asked.key);
  server.close();
});

describe("a shop in a process of its own", () => {
  let stage: Stage | undefined;
  afterEach(async () => {
    await stage?.close();
    stage = undefined;
  });

  async function open(library: string): Promise<Stage> {
    stage = await Stage.open(library, inject("redisServerBinary"));
    await stage.warmUp();
    return stage;
  }

  async function playOn(shop: Stage, name: string): Promise<Trial> {
    const scenario = scenarios.find((one) => one.name === name);
    if (scenario === undefined) throw new Error(`There is no scenario ${name}.`);
    return await scenario.play(shop);
  }

  it("makes two orders of two clicks when nothing protects it", async () => {
    const shop = await open("plain");
    for (const name of ["double click, 0 ms", "double click, 300 ms", "a stream"]) {
      expect(await playOn(shop, name)).toEqual({ runs: 2, told: ["first answer", "new order"] });
    }
    expect(await playOn(shop, "lost answer")).toEqual({ runs: 2, told: ["new order"] });
    expect(await playOn(shop, "a throw")).toEqual({ runs: 2, told: [500, "new order"] });
  });

  it("refuses the second of two clicks at once behind the lock", async () => {
    const shop = await open("lock-only");
    const trial = await playOn(shop, "double click, 0 ms");
    expect(trial).toEqual({ runs: 1, told: ["first answer", 409] });
  });

  it("repeats the first answer behind idempotency, and makes one order", async () => {
    const shop = await open("submit-lock");
    const twice: Trial = { runs: 1, told: ["first answer", "first answer"] };
    for (const name of ["double click, 300 ms", "a stream"]) {
      expect(await playOn(shop, name)).toEqual(twice);
    }
    expect(await playOn(shop, "lost answer")).toEqual({ runs: 1, told: ["first answer"] });
    // Larger than the default `maxBodyBytes`.
    expect(await playOn(shop, "100 KB")).toEqual({ runs: 1, told: ["first answer", 409] });
    const another: Trial = { runs: 1, told: ["first answer", 422] };
    expect(await playOn(shop, "another payload")).toEqual(another);
    const users: Trial = { runs: 2, told: ["first answer", "new order"] };
    expect(await playOn(shop, "two users, one key")).toEqual(users);
    expect(await playOn(shop, "a throw")).toEqual({ runs: 2, told: [500, "new order"] });
  });

  it("answers again after it was killed in the middle of an order", async () => {
    const { survivors, restartMs, keyLeftMs } = await crash(await open("plain"), 2);
    expect(survivors.map(({ runs, told }) => ({ runs, told }))).toEqual([
      { runs: 2, told: ["new order"] },
      { runs: 2, told: ["new order"] },
    ]);
    for (const { lockedOutMs } of survivors) expect(lockedOutMs).toBeGreaterThan(restartMs - 250);
    expect(keyLeftMs).toBeUndefined();
  });
});
