import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { Consumers, ownVersions } from "../../package/consumer-project.ts";
import { freshUser } from "../../support/ids.ts";
import { until } from "../../support/until.ts";
import {
  type Command,
  clickTwice,
  expectHeldUntilDone,
  expectOneOrder,
  untilFree,
  withShop,
} from "./recipe.ts";

vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });

const NEST = {
  "@nestjs/common": "12.5.1",
  "@nestjs/core": "12.5.1",
  "@nestjs/platform-express": "12.5.1",
  "reflect-metadata": "0.2.2",
  rxjs: "7.8.2",
};

let consumers: Consumers;
let command: Command;
beforeAll(async () => {
  consumers = await Consumers.pack();
  const tools = ownVersions("ioredis", "typescript", "@types/node", "@types/express");
  const manifest = { type: "module", packages: { ...NEST, ...tools } } as const;
  const project = await consumers.installRecipe(["nest"], manifest);
  expect(await project.bin("tsc", [])).toEqual({ code: 0, stdout: "", stderr: "" });
  command = { program: process.execPath, args: ["out/shop.js"], folder: project.folder };
});
afterAll(() => consumers?.remove());

describe("NestJS with the guard as its middleware", () => {
  test("places one order of two clicks, and repeats its answer", async () => {
    expect.hasAssertions();
    await withShop(command, expectOneOrder);
  });

  test("keeps the lock after the client has left, until the handler is done", async () => {
    expect.hasAssertions();
    await withShop(command, expectHeldUntilDone);
  });

  test("releases the lock of a handler that throws", async () => {
    await withShop(command, async (shop) => {
      const user = freshUser();
      expect((await shop.order(user, { path: "/orders/broken" })).status).toBe(500);
      await untilFree(shop, user);
    });
  });
});

describe("NestJS with once in an interceptor", () => {
  test("runs the controller for one of three clicks, and repeats its value", async () => {
    await withShop(command, async (shop, bank) => {
      const path = "/returns";
      const user = freshUser();
      expect((await shop.order(user, { path })).status).toBe(400);
      const click = () => shop.order(user, { path, key: "one-return" });
      const replies = [...(await Promise.all([click(), click()])), await click()];
      expect(replies.map(({ status }) => status)).toEqual([201, 201, 201]);
      const texts = await Promise.all(replies.map((reply) => reply.text()));
      expect(new Set(texts).size).toBe(1);
      expect(bank.charges).toBe(1);
    });
  });
});

describe("NestJS with the lock in an interceptor", () => {
  test("places one order of two clicks; a late click is another order", async () => {
    await withShop(command, async (shop, bank) => {
      const path = "/refunds";
      expect((await shop.order("", { path })).status).toBe(401);
      const user = freshUser();
      const key = "one-refund";
      const both = await clickTwice(() => shop.order(user, { path, key }), bank);
      expect(both.map(({ status }) => status).sort()).toEqual([201, 409]);
      expect(bank.charges).toBe(1);

      const late = async () => (await shop.order(user, { path, key })).status === 201;
      await until(late, { what: "the late click", everyMs: 50 });
      expect(bank.charges).toBe(2);
    });
  });
});
