import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, posix } from "node:path";
import { describe, expect, test } from "vitest";
import { llmsText } from "../../../docs/.vitepress/llms.ts";
import {
  type Entry,
  manualSidebar,
  pages,
  routeOf,
  shipped,
} from "../../../docs/.vitepress/pages.ts";
import { documents, Page, ROOT } from "../../docs/page.ts";
import { laboratories } from "../../lab/run.ts";
import { inSources } from "./sources.ts";

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
  test("has a target for every link and picture", () => {
    const links = page.links.map(({ target }) => target);
    for (const link of links.filter((each) => !each.startsWith("https://"))) {
      const [path = "", anchor] = link.split("#");
      const file = path === "" ? page.file : posix.join(dirname(page.file), path);
      expect(existsSync(join(ROOT, file)), link).toBe(true);
      // The site has no other page of these folders.
      expect(file).not.toMatch(/^(bench|examples|src|test)\/.*(?<!\/results)\.md$/);
      if (anchor !== undefined) expect(anchors.get(file), link).toContain(anchor);
    }
    // Each heading once, so that its link is the one.
    expect(new Set(page.anchors).size).toBe(page.anchors.length);
  });

  test("invents no address", () => {
    for (const [address] of page.prose.matchAll(/https?:\/\/[^\s)`"]+/g)) {
      const isKnown = elsewhere.some((known) => address.startsWith(known));
      expect(isKnown, address).toBe(true);
    }
  });
});

const workflows = readdirSync(join(ROOT, ".github/workflows")).map((file) => ({
  file,
  text: readFileSync(join(ROOT, ".github/workflows", file), "utf8"),
}));

test("documents and workflows name only commands that there are", () => {
  const { scripts } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
  for (const { file, text } of [...all, ...workflows]) {
    if (file === "CHANGELOG.md") continue;
    for (const [, name] of text.matchAll(/\bnpm run ([a-z][\w:-]*)/g)) {
      expect(Object.keys(scripts), file).toContain(name);
    }
    for (const [, name] of text.matchAll(/\bnpm run lab -- ([a-z-]+)/g)) {
      expect(Object.keys(laboratories), file).toContain(name);
    }
  }
});

test("docs/llms.txt is what npm run docs:llms makes of the manual", () => {
  const text = readFileSync(join(ROOT, "docs/llms.txt"), "utf8");
  expect(text).toBe(llmsText());
  const entries = [...text.matchAll(/^- \[.+?\]\((.+?)\): (.*)$/gm)];
  for (const [line, path = "", said = ""] of entries) {
    expect(existsSync(join(ROOT, "docs", path)), line).toBe(true);
    expect(said.length, line).toBeGreaterThan(10);
  }
  const manual = documents.filter(({ file }) => file.startsWith("docs/"));
  expect(entries.length).toBeGreaterThan(manual.length);
});

test("no text runs a package that npx would have to fetch first", () => {
  const lines = [...all.map(({ text }) => text), ...inSources(/.*npx .*/g)].join("\n").split("\n");
  const runs = lines.filter((line) => /\bnpx\b.*submit-lock/.test(line));
  expect(runs.length).toBeGreaterThan(5);
  for (const line of runs) expect(line).toContain("npx --no-install submit-lock");
});

describe("the site", () => {
  const filesOf = (entries: readonly Entry[]): string[] =>
    entries.flatMap(({ file, items = [] }) => [...(file ? [file] : []), ...filesOf(items)]);

  test("has every document once in its sidebar, and each page at a path of its own", () => {
    // It throws if the index of the manual leaves a page out.
    const files = filesOf(manualSidebar());
    const others = documents.map(({ file }) => file).filter((file) => file !== "docs/README.md");
    expect(files).toEqual(expect.arrayContaining(others));
    expect(new Set(files).size).toBe(files.length);
    for (const file of files) expect(existsSync(join(ROOT, file)), file).toBe(true);
    const paths = pages().map(routeOf);
    expect(new Set(paths).size).toBe(paths.length);
  });
});

describe.each(workflows)("the workflow $file", ({ file, text }) => {
  test("pins every action by a commit, and says which version that is", () => {
    const uses = [...text.matchAll(/uses: (.*)$/gm)].map(([, action]) => action as string);
    expect(uses.length).toBeGreaterThan(0);
    const pinned = /^[\w-]+\/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/;
    for (const action of uses) expect(action).toMatch(pinned);
  });

  test("has no more rights than it says, and none where the site is built", () => {
    expect(text).toMatch(/^permissions:\n {2}contents: read\n/m);
    const others = file === "site.yml" ? /(id-token|pages): write$/ : /id-token: write$/;
    for (const [right] of text.matchAll(/[\w-]+: write\b/g)) expect(right).toMatch(others);
    if (file !== "site.yml") return;
    const [build = "", publish = ""] = text.split(/^ {2}publish:$/m);
    expect(build).not.toContain(": write");
    expect(publish).toContain("if: github.ref == 'refs/heads/main'");
    expect(publish).not.toMatch(/\brun:|actions\/checkout/);
  });
});
