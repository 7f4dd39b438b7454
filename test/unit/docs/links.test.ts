import { existsSync, readFileSync } from "node:fs";
import { dirname, join, posix } from "node:path";
import { describe, expect, test } from "vitest";
import {
  type Entry,
  manualSidebar,
  pages,
  routeOf,
  shipped,
} from "../../../docs/.vitepress/pages.ts";
import { moved } from "../../../docs/.vitepress/redirects.ts";
import { documents, Page, ROOT } from "../../docs/page.ts";
import { laboratories } from "../../lab/run.ts";

const { scripts } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
/** Written by the bench and the laboratories, and linked by the documents. */
const results = shipped()
  .filter((file) => file.endsWith("/results.md"))
  .map((file) => new Page(file));
const all = [...documents, ...results];
const anchors = new Map(all.map(({ file, anchors }) => [file, anchors]));

/** Elsewhere, a page has been read; this repository has no address of its own to link to. */
const elsewhere = [
  "https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-idempotency-key-header-07",
  "https://github.com/agentic-commerce-protocol/agentic-commerce-protocol/",
  "https://keepachangelog.com/",
  "https://semver.org/",
];

describe.each(all)("$file", (page) => {
  const links = page.links.map(({ target }) => target);

  test("has a target for every link and picture", () => {
    for (const link of links.filter((each) => !each.startsWith("https://"))) {
      const [path = "", anchor] = link.split("#");
      const file = path === "" ? page.file : posix.join(dirname(page.file), path);
      expect(existsSync(join(ROOT, file)), link).toBe(true);
      if (anchor !== undefined) expect(anchors.get(file), link).toContain(anchor);
    }
  });

  test("has each heading once, so that its link is the one", () => {
    if (page.file === "CHANGELOG.md") return;
    expect(new Set(page.anchors).size).toBe(page.anchors.length);
  });

  test("lists its own headings as they are, where it lists them", () => {
    const listed = [...page.prose.matchAll(/^- \[[^\]]*\]\(#([^)]+)\)$/gm)].map(([, to]) => to);
    if (listed.length === 0) return;
    const sections = [...page.prose.matchAll(/^## (.*)$/gm)].map(([heading]) => heading);
    expect(listed).toHaveLength(sections.length);
  });

  test("invents no address", () => {
    const addresses = [...page.prose.matchAll(/https?:\/\/[^\s)`"]+/g)].map(([address]) => address);
    for (const address of addresses) {
      expect(
        elsewhere.some((known) => address.startsWith(known)),
        address,
      ).toBe(true);
    }
  });

  test("names only commands that there are", () => {
    if (page.file === "CHANGELOG.md") return;
    const named = [...page.text.matchAll(/\bnpm run ([a-z][\w:-]*)/g)].map(([, name]) => name);
    for (const name of named) expect(Object.keys(scripts)).toContain(name);
    const labs = [...page.text.matchAll(/\bnpm run lab -- ([a-z-]+)/g)].map(([, name]) => name);
    for (const name of labs) expect(Object.keys(laboratories)).toContain(name);
    const own = [
      "ci",
      "run",
      "test",
      "install",
      "pack",
      "registry",
      "version",
      "publish",
      "audit",
      "i",
    ];
    const others = [...page.prose.matchAll(/`npm ([a-z-]+)/g)].map(([, name]) => name);
    for (const name of others) expect(own).toContain(name);
  });
});

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

test("a page that has moved leads to a page and a heading that are there", () => {
  for (const [from, to] of Object.entries(moved)) {
    const [file = "", anchor] = to.split("#");
    expect(existsSync(join(ROOT, "docs", from)), from).toBe(false);
    const found = documents.find((page) => page.file === `docs/${file}`);
    expect(found, to).toBeDefined();
    if (anchor !== undefined) expect(found?.anchors, from).toContain(anchor);
  }
});
