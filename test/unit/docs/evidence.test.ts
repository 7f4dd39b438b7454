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
    const ends = evidence
      .tableUnder("Faults of an order's end")
      .flatMap(([name, what, hits = ""]) =>
        hits
          .split(", ")
          .map((on) => [`${on}: ${name}`, what, on, on === "complete" ? "recorded" : "released"]),
      );
    const rows = faults.map(({ name, what, on, expect: to }) => [name, what, on, to]);
    // Some faults hit an acquire of a submission as well: the lab makes those from the others.
    const again = rows.filter(([name = ""]) => name.startsWith("complete: F"));
    expect([...alone, ...ends, ...again].sort()).toEqual(rows.sort());
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

test("the benchmark is of this version of the package", () => {
  const { version } = JSON.parse(readFileSync("package.json", "utf8"));
  const { text } = new Page("bench/results.md");
  expect(/submit-lock (\d+\.\d+\.\d+)/.exec(text)?.[1]).toBe(version);
});
