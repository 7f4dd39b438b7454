import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { page, ROOT } from "../../docs/page.ts";

const folder = join(ROOT, "test/lab/recipes");
const read = (file: string) => readFileSync(join(folder, file), "utf8");
const files = readdirSync(folder).filter((file) => file.endsWith(".test.ts"));
const tests = files.map(read).join("\n");
const { devDependencies } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
const versionsIn = (text = ""): string[] => text.match(/\d+\.\d+\.\d+/g) ?? [];
const installed = [...Object.values(devDependencies), ...versionsIn(tests)];
const rows = page("docs/reference/compatibility.md").tableUnder("Recipes");

test("the code of the page on NestJS is that of its recipe", () => {
  const squeezed = (text: string) => text.replace(/\s+/g, " ").trim();
  const recipe = squeezed(read("nest/shop.ts") + read("nest/once.ts"));
  const { blocks } = page("docs/guide/nest.md");
  expect(blocks.length).toBeGreaterThan(0);
  for (const { code } of blocks) expect(recipe).toContain(squeezed(code));
});

test("every recipe is a row of the compatibility page, by its command", () => {
  const named = rows.map(([head]) => /`npm run recipes -- ([\w-]+)`/.exec(head ?? "")?.[1]);
  expect(named.map((name) => `${name}.test.ts`).sort()).toEqual(files.sort());
});

test("the versions of the compatibility page are those that the recipes install", () => {
  const versions = rows.flatMap(([head]) => versionsIn(head));
  expect(versions.length).toBeGreaterThan(0);
  for (const version of versions) expect(installed).toContain(version);
});

test.each(["docs/guide/fetch.md", "docs/guide/fastify.md", "docs/guide/any-function.md"])(
  "the versions in %s are installed, or a recipe installs them",
  (file) => {
    for (const version of versionsIn(page(file).prose)) expect(installed).toContain(version);
  },
);
