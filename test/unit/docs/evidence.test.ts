import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { Page, page } from "../../docs/page.ts";
import { completeFaults } from "../../lab/faults/complete-faults.ts";
import { faults as lockFaults } from "../../lab/faults/faults.ts";

describe("the page of faults", () => {
  const faults = [...lockFaults, ...completeFaults];
  const evidence = page("docs/evidence/faults.md");

  test("has every fault of the lab, as the lab has it", () => {
    const alone = evidence
      .tableUnder("The faults")
      .map(([name = "", what, expected]) => [
        name,
        what,
        name.endsWith(" extend") ? "extend" : "acquire",
        expected,
      ]);
    const [, names = ""] = /^With a submission, .*: (F.*)\.$/m.exec(evidence.prose) ?? [];
    const again = names.split(", ").map((name) => {
      const [, what, on, expected] = alone.find(([each]) => each === name) ?? [];
      return [`complete: ${name}`, `of a submission: ${what}`, on, expected];
    });
    const end = evidence
      .tableUnder("Faults of an order's end")
      .flatMap(([name, what, hits = ""]) =>
        hits
          .split(", ")
          .map((on) => [`${on}: ${name}`, what, on, on === "complete" ? "recorded" : "released"]),
      );
    const rows = faults.map(({ name, what, on, expect: to }) => [name, what, on, to]);
    expect([...alone, ...end, ...again].sort()).toEqual(rows.sort());
    expect(page("README.md").text).toContain(`| ${faults.length} faults of `);
    expect(evidence.text).toContain(`Under ${faults.length} faults of `);
  });

  test("says what is expected of each", () => {
    const expected = new Set(faults.map(({ expect: to }) => to as string));
    const said = [...evidence.prose.matchAll(/^- \*([a-z ]+)\*: /gm)];
    expect(new Set(said.map(([, each]) => each))).toEqual(expected);
  });

  test("has the numbers of the lab's own results", () => {
    const results = new Page("test/lab/faults/results.md");
    const measured = new Map(
      results.tableUnder("All faults, both clients").map(([name, ...cells]) => [name, cells]),
    );
    const rows = evidence.tableUnder("Other locks");
    expect(rows.length).toBeGreaterThan(5);
    for (const [name = "", ...cells] of rows) {
      const all = measured.get(name.replaceAll("`", ""));
      expect(all?.slice(0, cells.length), name).toEqual(cells);
    }
  });

  test("has what the lab measured of clients", () => {
    const title = "A client that gives wrong replies";
    const rows = evidence.tableUnder(title);
    expect(rows).toEqual(new Page("test/lab/faults/results.md").tableUnder(title));
    expect(rows.map(([, , , wrong]) => wrong === "0")).toEqual([true, false, true]);
  });
});

describe("the page of benchmarks", () => {
  const evidence = page("docs/evidence/benchmarks.md");
  const results = new Page("bench/results.md").text;
  const measured = [...results.matchAll(/\d+(?:\.\d+)?/g)].map(([number]) => Number(number));
  const lines = evidence.prose.split("## What")[0]?.match(/^- .*$/gm) ?? [];

  test("is of this version of the package", () => {
    const { version } = JSON.parse(readFileSync("package.json", "utf8"));
    expect(/submit-lock (\d+\.\d+\.\d+)/.exec(results)?.[1]).toBe(version);
    const named = [...evidence.prose.matchAll(/measured (\d+\.\d+\.\d+)/g)];
    expect(named.map(([, each]) => each)).toEqual([version]);
  });

  test.each(lines)("has the numbers of the bench: %s", (line) => {
    // Rounded as it is told; whole numbers are settings.
    const told = [...line.matchAll(/\d+\.(\d+)/g)];
    for (const [number, decimals = ""] of told) {
      const rounded = (each: number) => each.toFixed(decimals.length);
      expect(
        measured.some((each) => rounded(each) === number),
        number,
      ).toBe(true);
    }
  });
});
