import { execFile } from "node:child_process";
import { dirname, posix } from "node:path";
import { promisify } from "node:util";
import { beforeAll, describe, expect, test } from "vitest";
import { page, pages, ROOT } from "../docs/page.ts";
import { currentReport, recordedReport, UPDATE } from "./api-report.ts";

test("the public declarations are the recorded ones", () => {
  const hint = `The public declarations have changed. If that is meant, record it with \`${UPDATE}\`, and tell users in CHANGELOG.md`;
  expect(currentReport(), hint).toBe(recordedReport());
});

test("the report shows nothing but what users can reach", () => {
  for (const section of recordedReport().split(/^## /m).slice(1)) {
    const hidden = [...section.matchAll(/^(?:interface|type|class|function) (\w+)/gm)];
    for (const [, name] of hidden) {
      expect(section.match(new RegExp(`\\b${name}\\b`, "g"))?.length, name).toBeGreaterThan(1);
    }
  }
});

describe("the tarball", () => {
  let packed: Set<string>;

  beforeAll(async () => {
    // Without scripts: `prepack` would empty `dist` under the tests that run beside this one.
    const args = ["pack", "--dry-run", "--ignore-scripts", "--json"];
    const shell = process.platform === "win32";
    const { stdout } = await promisify(execFile)("npm", args, {
      cwd: ROOT,
      shell,
      maxBuffer: 16 * 1_048_576,
    });
    const [{ files }] = JSON.parse(stdout) as [{ files: { path: string }[] }];
    packed = new Set(files.map(({ path }) => path));
  });

  /** What a page leads to and shows, from the root. */
  function targetsOf(file: string): string[] {
    return page(file)
      .links.filter(({ target }) => !/^(https:|#)/.test(target))
      .map(({ target }) => posix.join(dirname(file), target.split("#")[0] as string));
  }

  test.each(pages)("has what $file links and shows", ({ file }) => {
    expect(packed).toContain(file);
    for (const target of targetsOf(file)) expect(packed).toContain(target);
  });

  test("has the package, what one copies from the manual, and no sources, tests or tools", () => {
    expect(packed).toContain("dist/esm/index.js");
    expect(packed).toContain("dist/cjs/package.json");
    const others = [...packed].filter((path) => !path.startsWith("dist/"));
    const expected =
      /\.(md|svg)$|^docs\/[^.]|^examples\/[\w/.-]+\.(ts|yml)$|^(LICENSE|package\.json|sbom\.cdx\.json)$/;
    expect(others.filter((path) => !expected.test(path))).toEqual([]);
  });
});
