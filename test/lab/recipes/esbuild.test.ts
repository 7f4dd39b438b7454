import { mkdir, rename } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { Consumers, ownVersions, type Project } from "../../package/consumer-project.ts";
import { expectOneOrder, withShop } from "./recipe.ts";

vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });

let consumers: Consumers;
let project: Project;
let outside: string;
beforeAll(async () => {
  consumers = await Consumers.pack();
  const packages = { ...ownVersions("express", "ioredis"), esbuild: "0.28.2" };
  project = await consumers.installRecipe(["shop", "esbuild"], { type: "module", packages });
  await project.node(["build.js"]);
  // Where no `node_modules` is found: what runs there is the bundle and nothing else.
  outside = join(project.folder, "../bundles");
  await mkdir(outside);
  for (const file of ["shop.mjs", "shop.cjs", "shop.min.cjs"]) {
    await rename(join(project.folder, "out", file), join(outside, file));
  }
});
afterAll(() => consumers?.remove());

test.each(["shop.mjs", "shop.cjs", "shop.min.cjs"])(
  "the bundle %s places one order of two clicks",
  async (file) => {
    expect.hasAssertions();
    await withShop({ program: process.execPath, args: [file], folder: outside }, expectOneOrder);
  },
);

test("a bundle in an ES module needs the banner", async () => {
  const bare = project.node(["out/shop.bare.mjs"]);
  await expect(bare).rejects.toThrow(/Dynamic require of "[\w:]+" is not supported/);
});
