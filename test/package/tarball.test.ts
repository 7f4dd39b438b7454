import { execFile } from "node:child_process";
import { dirname, posix } from "node:path";
import { promisify } from "node:util";
import { beforeAll, describe, expect, test } from "vitest";
import { page, pages, ROOT } from "../docs/page.ts";

const exec = promisify(execFile);

let packed: Set<string>;

beforeAll(async () => {
  // Without scripts: `prepack` would empty `dist` under the tests that run beside this one.
  const args = ["pack", "--dry-run", "--ignore-scripts", "--json"];
  const shell = process.platform === "win32";
  const { stdout } = await exec("npm", args, { cwd: ROOT, shell, maxBuffer: 16 * 1_048_576 });
  const [{ files }] = JSON.parse(stdout) as [{ files: { path: string }[] }];
  packed = new Set(files.map(({ path }) => path));
});

/** What a page leads to and shows, from the root. */
function targetsOf(file: string): string[] {
  return page(file)
    .links.filter(({ target }) => !/^(https:|#)/.test(target))
    .map(({ target }) => posix.join(dirname(file), target.split("#")[0] as string));
}

describe("the tarball", () => {
  test.each(pages)("has what $file links and shows", ({ file }) => {
    expect(packed).toContain(file);
    for (const target of targetsOf(file)) expect(packed).toContain(target);
  });

  test("has the package and no sources, tests or tools", () => {
    expect(packed).toContain("dist/esm/index.js");
    expect(packed).toContain("dist/cjs/package.json");
    const others = [...packed].filter((path) => !path.startsWith("dist/"));
    const expected = /\.(md|svg)$|^docs\/[^.]|^(LICENSE|package\.json)$/;
    expect(others.filter((path) => !expected.test(path))).toEqual([]);
  });
});
