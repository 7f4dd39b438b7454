import { describe, expect, test } from "vitest";
import { manual, page } from "../../docs/page.ts";

const readme = page("README.md");
const lines = readme.text.trimEnd().split("\n");

describe("the README", () => {
  test("is a front page", () => {
    expect(lines.length).toBeLessThanOrEqual(150);
    expect(readme.text.split(/\s+/).length).toBeLessThanOrEqual(1_200);
  });

  test("shows code within its first 30 lines", () => {
    const first = lines.findIndex((line) => line.startsWith("```js"));
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

  test("has the statuses and codes of the reference", () => {
    const rows = page("docs/reference/responses.md").tableUnder("Responses");
    const known = rows.map(([status, code]) => `${status} ${code}`);
    const named = readme
      .tableUnder("What a client sees")
      .flatMap(([, answer = ""]) => /^\d+ `[\w-]+`/.exec(answer)?.[0] ?? []);
    expect(named).toHaveLength(4);
    for (const each of named) expect(known).toContain(each);
  });
});
