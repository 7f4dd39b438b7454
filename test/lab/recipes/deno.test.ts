import { join } from "node:path";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { Consumers, ownVersions, type Project } from "../../package/consumer-project.ts";
import { expectOneOrder, withShop } from "./recipe.ts";

vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });

let consumers: Consumers;
let project: Project;
beforeAll(async () => {
  consumers = await Consumers.pack();
  const packages = { ...ownVersions("express", "ioredis"), deno: "2.9.6" };
  const manifest = { type: "module", packages } as const;
  project = await consumers.installRecipe(["shop"], manifest);
});
afterAll(() => consumers?.remove());

test("a shop on Deno places one order of two clicks", async () => {
  expect.hasAssertions();
  const program = join(project.folder, "node_modules/.bin/deno");
  await withShop(
    { program, args: ["run", "--allow-all", "shop.js"], folder: project.folder },
    expectOneOrder,
  );
});
