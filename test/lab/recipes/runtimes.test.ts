import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { Consumers, ownVersions } from "../../package/consumer-project.ts";
import { isAcquire } from "../../redis/fixture.ts";
import { freshUser } from "../../support/ids.ts";
import { startProxy } from "../../support/proxy.ts";
import { sharedRedisPort } from "../../support/redis-server.ts";
import { until } from "../../support/until.ts";
import { expectHeldUntilDone, expectOneOrder, untilFree, withShop } from "./recipe.ts";
import type { Command } from "./shop-process.ts";

vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });

// The programs themselves: killed, what npm links for Deno would leave it running.
const runtimes = [
  { name: "bun", version: "1.4.5", program: "bun/bin/bun.exe", args: ["shop.js"] },
  {
    name: "deno",
    version: "2.9.6",
    program: process.platform === "win32" ? "deno/deno.exe" : "deno/deno",
    args: ["run", "--allow-net", "--allow-env", "--allow-read", "--allow-sys", "shop.js"],
  },
];

describe.each(runtimes)("on $name", ({ name, version, program, args }) => {
  let consumers: Consumers;
  let command: Command;
  beforeAll(async () => {
    consumers = await Consumers.pack();
    const packages = { ...ownVersions("express", "ioredis"), [name]: version };
    // Their install scripts put the program of this platform in its place.
    const manifest = { type: "module", packages, scripts: true } as const;
    const project = await consumers.installRecipe(["shop"], manifest);
    // No Node under another name.
    const asked = await project.bin(name, ["--version"]);
    expect(asked.stdout).toContain(version);
    const { folder } = project;
    command = { program: join(folder, "node_modules", program), args, folder };
  });
  afterAll(() => consumers?.remove());

  test("a shop places one order of two clicks", async () => {
    expect.hasAssertions();
    await withShop(command, expectOneOrder);
  });

  test("a shop keeps the lock after the client has left, until the handler is done", async () => {
    expect.hasAssertions();
    await withShop(command, expectHeldUntilDone);
  });

  test("an order goes through whose reply from Redis is lost, and leaves no lock", async () => {
    const proxy = await startProxy(sharedRedisPort());
    const play: Parameters<typeof withShop>[1] = async (shop, bank) => {
      const user = freshUser();
      const lost = proxy.loseReplyOnce(isAcquire);
      expect((await shop.order(user)).status).toBe(201);
      await lost;
      expect(bank.charges).toBe(1);
      await untilFree(shop, user);
    };
    await withShop(command, play, proxy.port).finally(() => proxy.stop());
  });

  test("a Redis that is away is a 503, and an order when it is back", async () => {
    const proxy = await startProxy(sharedRedisPort());
    const play: Parameters<typeof withShop>[1] = async (shop, bank) => {
      await proxy.refuse(true);
      proxy.resetAll();
      const user = freshUser();
      const refused = await shop.order(user);
      expect(refused.status).toBe(503);
      expect(await refused.json()).toMatchObject({ code: "submit_unavailable" });
      expect(bank.charges).toBe(0);
      await proxy.refuse(false);
      const placed = async () => (await shop.order(user)).status === 201;
      await until(placed, { what: "an order", everyMs: 50 });
    };
    await withShop(command, play, proxy.port).finally(() => proxy.stop());
  });
});
