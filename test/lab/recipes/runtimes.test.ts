import { execFile } from "node:child_process";
import { resolve } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { Consumers, ownVersions, type Project } from "../../package/consumer-project.ts";
import { isAcquire } from "../../redis/fixture.ts";
import { freshUser } from "../../support/ids.ts";
import { startProxy } from "../../support/proxy.ts";
import { sharedRedisPort } from "../../support/redis-server.ts";
import { until } from "../../support/until.ts";
import {
  type Command,
  expectHeldUntilDone,
  expectHeldWhileRead,
  expectOneOrder,
  untilFree,
  withShop,
} from "./recipe.ts";

vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });

const allowed = ["--allow-net", "--allow-env", "--allow-read", "--allow-sys"];
const served = ["serve", ...allowed, "--host", "127.0.0.1", "--port", "$PORT"];

// The programs themselves: killed, what npm links for Deno would leave it running.
const runtimes = [
  {
    name: "node",
    version: process.version,
    program: process.execPath,
    shops: [{ shop: "handlers of fetch", args: ["node.js"] }],
  },
  {
    name: "bun",
    version: "1.4.5",
    program: "node_modules/bun/bin/bun.exe",
    shops: [
      { shop: "Express", args: ["shop.js"] },
      { shop: "Hono", args: ["run", "hono.js"] },
      { shop: "handlers of fetch", args: ["run", "plain.js"] },
    ],
  },
  {
    name: "deno",
    version: "2.9.6",
    program: `node_modules/deno/deno${process.platform === "win32" ? ".exe" : ""}`,
    shops: [
      { shop: "Express", args: ["run", ...allowed, "shop.js"] },
      { shop: "Hono", args: [...served, "hono.js"] },
      { shop: "handlers of fetch", args: [...served, "plain.js"] },
    ],
  },
] as const;

let consumers: Consumers;
beforeAll(async () => {
  consumers = await Consumers.pack();
});
afterAll(() => consumers?.remove());

const shops = runtimes.flatMap(({ shops, ...runtime }) =>
  shops.map((shop) => ({ ...runtime, ...shop })),
);
const projects = new Map<string, Promise<Project>>();

/** A project with the shops and this runtime, which is installed once. */
function projectOf({ name, version, program }: (typeof shops)[number]): Promise<Project> {
  const install = async () => {
    const packages = {
      ...ownVersions("express", "hono", "ioredis"),
      ...(name === "node" ? {} : { [name]: version }),
    };
    // Their install scripts put the program of this platform in its place.
    const manifest = { type: "module", packages, scripts: true } as const;
    const project = await consumers.installRecipe(["shop", "fetch"], manifest, name);
    const asked = await promisify(execFile)(resolve(project.folder, program), ["--version"]);
    // No Node under another name.
    expect(asked.stdout).toContain(version);
    return project;
  };
  const installed = projects.get(name) ?? install();
  projects.set(name, installed);
  return installed;
}

describe.each(shops)("on $name, $shop:", (row) => {
  let command: Command;
  beforeAll(async () => {
    const { folder } = await projectOf(row);
    command = { program: resolve(folder, row.program), args: row.args, folder };
  });

  test("a shop places one order of two clicks", async () => {
    expect.hasAssertions();
    await withShop(command, expectOneOrder);
  });

  test("a shop keeps the lock after the client has left, until the handler is done", async () => {
    expect.hasAssertions();
    await withShop(command, expectHeldUntilDone);
  });

  test.skipIf(row.shop === "Express")("a stream is over when its reader leaves", async () => {
    expect.hasAssertions();
    await withShop(command, expectHeldWhileRead);
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
