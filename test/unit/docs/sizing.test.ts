import { describe, expect, test } from "vitest";
import { figuresOf, kinds, measuredTables, shopTable, ways } from "../../../bench/sizing-tables.ts";
import { Page } from "../../docs/page.ts";

describe("the page of sizing", () => {
  const { text } = new Page("docs/operations/sizing.md");
  const figures = figuresOf();
  const made = (part: string) => {
    const marks = `<!-- ${part}: npm run lab -- sizing -->\n\n(.*?)\n\n<!-- end -->`;
    return new RegExp(marks, "s").exec(text)?.[1] ?? "";
  };

  test("has what was measured of each kind of order in each way", () => {
    expect(figures.costs.map(({ kind, way }) => [kind, way])).toEqual(
      kinds.flatMap((kind) => ways.map(({ name }) => [kind, name])),
    );
    for (const cost of figures.costs) {
      for (const value of Object.values(cost).filter((each) => typeof each === "number")) {
        expect(value, JSON.stringify(cost)).toBeGreaterThan(0);
      }
    }
    // Read as it was written.
    expect(made("measured")).toContain(measuredTables(figures));
  });

  test("calculates the table of the shop from what was measured", () => {
    expect(made("shop")).toBe(shopTable(figures));
  });
});

describe("the arithmetic of sizing", () => {
  const cost = { kind: "lock", calls: 2, bytesIn: 500, bytesOut: 100, replicaBytes: 50 } as const;
  const figures = {
    costs: [
      { ...cost, way: "apart", processorMicros: 50 },
      { ...cost, way: "busy", processorMicros: 16 },
    ],
    lockBytes: 200,
  };

  test("takes one master for half a core of the busy way", () => {
    // 1.6 cores, 4 Mbit a thousand orders to Redis, 200 B for each of the orders of a second.
    expect(shopTable(figures)).toContain(
      "| 100\u2009000, lock | 1.60 | 4 | 400.0 | 80.0 | 40.0 | 20 MB |",
    );
  });
});
