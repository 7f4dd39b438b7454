import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { Consumers, ownVersions, type Project } from "../../package/consumer-project.ts";
import { expectOneOrder, withShop } from "./recipe.ts";

vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });

let consumers: Consumers;
let project: Project;
beforeAll(async () => {
  consumers = await Consumers.pack();
  const packages = {
    ...ownVersions("express"),
    ioredis: "5.11.1", // what the mock is made for
    "ioredis-mock": "8.13.1",
  };
  project = await consumers.installRecipe(["ioredis-mock"], { type: "module", packages });
});
afterAll(() => consumers?.remove());

test("a unit test has ioredis-mock for its carts and a MemoryStore for its lock", async () => {
  const printed = await project.node(["--test", "--test-reporter=tap", "app.test.js"]);
  expect(printed).toMatch(/^# pass 2$/m);
  expect(printed).toMatch(/^# fail 0$/m);
});

test("the same shop places one order of two clicks on a real Redis", async () => {
  expect.hasAssertions();
  const command = { program: process.execPath, args: ["server.js"], folder: project.folder };
  await withShop(command, expectOneOrder);
});
