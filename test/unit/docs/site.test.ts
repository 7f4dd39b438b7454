import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { type Entry, manualSidebar, pages, routeOf } from "../../../docs/.vitepress/pages.ts";
import { documents, ROOT } from "../../docs/page.ts";

function filesOf(entries: readonly Entry[]): string[] {
  return entries.flatMap(({ file, items = [] }) => [...(file ? [file] : []), ...filesOf(items)]);
}

const others = documents.map(({ file }) => file).filter((file) => file !== "docs/README.md");

test("the sidebar of the site has every document once", () => {
  // It throws if the index of the manual leaves a page out.
  const files = filesOf(manualSidebar());
  for (const file of others) expect(files).toContain(file);
  expect(new Set(files).size).toBe(files.length);
  for (const file of files) expect(existsSync(join(ROOT, file)), file).toBe(true);
});

test("the headings of the manual's index are the groups of the sidebar", () => {
  const index = readFileSync(join(ROOT, "docs/README.md"), "utf8");
  const headings = [...index.matchAll(/^## (.*)$/gm)].map(([, heading]) => heading);
  const groups = manualSidebar()
    .slice(1, -1)
    .map(({ text }) => text);
  expect(groups.length).toBeGreaterThan(2);
  expect(headings.filter((heading) => groups.includes(heading as string))).toEqual(groups);
});

test("no two pages of the site have the same path", () => {
  const paths = pages().map(routeOf);
  expect(new Set(paths).size).toBe(paths.length);
});
