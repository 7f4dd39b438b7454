import { describe, expect, test } from "vitest";
import { page } from "../../docs/page.ts";
import { alerts } from "../../support/board.ts";
import { documentedMetrics, prometheusNames } from "../../support/documented-metrics.ts";
import { membersOf } from "./sources.ts";

const observing = page("docs/operations/observing.md");
const bare = (cell = ""): string => cell.replaceAll("`", "");

describe("the page on observing", () => {
  test("has a row for every metric, with its unit and its attributes", () => {
    const rows = observing
      .tableUnder("Metrics")
      .map(([name, unit, attributes]) => [bare(name), bare(unit), bare(attributes)]);
    const expected = Object.entries(documentedMetrics).map(([name, { attributes, unit }]) => {
      const names = new Set(attributes.flatMap((each) => Object.keys(each)));
      return [name, unit, [...names].join(", ")];
    });
    expect(rows).toEqual(expected);
  });

  test("names series of Prometheus that there are", () => {
    const series = Object.entries(documentedMetrics).flatMap(([name, metric]) =>
      prometheusNames(name, metric),
    );
    const named = observing.prose.match(/\bsubmit_lock_\w+/g) ?? [];
    expect(named.length).toBeGreaterThan(1);
    for (const name of named) expect(series).toContain(name);
  });

  test("has a row for every option of instrument", () => {
    const rows = observing.tableUnder("OpenTelemetry").map(([name]) => bare(name));
    expect(rows).toEqual(membersOf("InstrumentOptions"));
  });

  test("has a row for every alert, with its severity", () => {
    const rows = observing
      .tableUnder("The board and the alerts")
      .map(([name, severity]) => [bare(name), severity]);
    const found = [...alerts.matchAll(/- alert: (\w+)$.*?severity: (\w+)$/gms)];
    expect(rows).toEqual(found.map(([, name, severity]) => [name, severity]));
  });
});
