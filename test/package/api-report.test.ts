import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, posix } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { page, pages, ROOT } from "../docs/page.ts";
import { currentReport, Declarations, recordedReport, UPDATE } from "./api-report.ts";

describe("api report", () => {
  const folder = mkdtempSync(join(tmpdir(), "submit-lock-declarations-"));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  /** Declarations as tsc writes them, one file an entry. */
  function declarations(files: Record<string, string>): Declarations {
    for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
    return new Declarations(folder);
  }

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

  test("a type is reached through renames, other files and circles", () => {
    const found = declarations({
      "entry.d.ts": 'export { type Inner as Outer } from "./inner.ts";\n',
      "inner.d.ts": `import { type Far as Near } from "./far.ts";
export interface Inner {
    near: Near;
    next?: Inner;
}
interface Unreached {
    inner: Inner;
}
`,
      "far.d.ts": `import type { Inner } from "./inner.ts";
import type { Foreign } from "elsewhere";
export type Far = {
    inner: Inner;
} | Foreign;
`,
    }).exportsOf("entry.d.ts");
    const outer = found.get("Outer");
    expect([...found.keys()]).toEqual(["Outer"]);
    expect(outer?.uses.map(({ name }) => name)).toEqual(["Far"]);
    expect(outer?.uses[0]?.uses).toEqual([outer]);
    expect(outer?.uses[0]?.foreign).toEqual([{ from: "elsewhere", name: "Foreign" }]);
  });

  test("a member or a string named like an internal function does not lead to it", () => {
    const found = declarations({
      "entry.d.ts": `export interface Public {
    closed: "closed";
    check(): void;
    fail?: number;
}
declare function closed(): void;
declare function check(): void;
declare function fail(): void;
`,
    }).exportsOf("entry.d.ts");
    expect(found.get("Public")?.uses).toEqual([]);
  });

  test("what any module of an entry adds to the global types is found", () => {
    const found = declarations({
      "entry.d.ts": 'export type { Kept } from "./global.ts";\n',
      "global.d.ts": `export type Kept = string;
declare global {
    interface Window {
        kept: Kept;
    }
}
`,
    }).globalsOf("entry.d.ts");
    expect(found.map(({ uses }) => uses.map(({ name }) => name))).toEqual([["Kept"]]);
  });
});

describe("tarball", () => {
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
});
