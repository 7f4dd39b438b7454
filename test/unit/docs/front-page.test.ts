import { describe, expect, test } from "vitest";
import { manual, page } from "../../docs/page.ts";

const readme = page("README.md");
const lines = readme.text.trimEnd().split("\n");

describe("the README", () => {
  test("is a front page", () => {
    expect(lines.length).toBeLessThanOrEqual(200);
  });

  test("shows code within its first 30 lines", () => {
    const first = lines.findIndex((line) => line.startsWith("```ts"));
    expect(first).toBeGreaterThanOrEqual(0);
    expect(first).toBeLessThan(30);
  });

  test("begins with the two commands", () => {
    expect(readme.blocks[0]?.code).toBe("npm ci && npm run demo\nnpm ci && npm test\n");
  });

  test("tells the whole story without a block that is hidden elsewhere", () => {
    expect(readme.text).not.toMatch(/<details|<!--/);
  });

  test("leads to every page of the manual in two steps at most", () => {
    const from = (file: string) =>
      page(file).links.map(({ target }) => new URL(target, `file:///${file}`).pathname.slice(1));
    const first = new Set(from("README.md"));
    const second = new Set([...first, ...from("docs/README.md")]);
    expect(first).toContain("docs/README.md");
    for (const file of manual) expect(second).toContain(file);
  });

  test("has the options and defaults of the reference", () => {
    const cells = readme
      .tableUnder("Options")
      .flatMap((row) => [...[0, 2, 4].map((at) => [row[at] ?? "", row[at + 1] ?? ""])]);
    const short = new Map(cells.filter(([name]) => name !== "") as [string, string][]);
    const reference = page("docs/reference/options.md");
    const rows = ["`new SubmitLock`", "`submitGuard`"].flatMap((each) =>
      reference.tableUnder(each),
    );
    expect([...short.keys()].sort()).toEqual(rows.map(([name]) => name).sort());
    for (const [name = "", preset = ""] of rows) {
      expect(preset, name).toContain(short.get(name));
    }
  });

  test("has the statuses and codes of the reference", () => {
    const rows = page("docs/reference/responses.md").tableUnder("Responses");
    const known = rows.map(([status, code]) => `${status} ${code}`);
    const named = readme
      .tableUnder("What a client sees")
      .map(([status, code]) => `${status} ${code}`);
    expect(named).toHaveLength(3);
    for (const each of named) expect(known).toContain(each);
  });
});
