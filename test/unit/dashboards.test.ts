import { describe, expect, test } from "vitest";
import { alerts, asSent, panels, variables } from "../support/board.ts";
import {
  documentedMetrics,
  prometheusLabels,
  prometheusNames,
} from "../support/documented-metrics.ts";

/** Each series that there is, with its labels; a scrape adds `job` and `instance`. */
const series = new Map(
  Object.entries(documentedMetrics).flatMap(([name, metric]) =>
    prometheusNames(name, metric).map((each) => [
      each,
      ["job", "instance", ...prometheusLabels(metric)],
    ]),
  ),
);

interface Selector {
  readonly metric: string;
  readonly labels: readonly string[];
}

/** What a query reads. `npm run lab -- dashboards` asks a real Prometheus whether it is PromQL. */
function selectorsIn(query: string): Selector[] {
  return [...query.matchAll(/\b(submit_lock_\w+)\{([^}]*)\}/g)].map(
    ([, metric = "", inside = ""]) => ({
      metric,
      labels: [...inside.matchAll(/(\w+)\s*[=!]/g)].map(([, label = ""]) => label),
    }),
  );
}

const queries = panels.flatMap(({ queries: all, title }) => all.map((query) => ({ title, query })));

describe("the board", () => {
  test.each(queries)("$title: $query reads what is exported", ({ query }) => {
    const selectors = selectorsIn(asSent(query, "1m"));
    const names = query.replace(/\{[^}]*\}/g, "{}").match(/\bsubmit_lock_\w+(?=\{)/g);
    expect(selectors.map(({ metric }) => metric)).toEqual(names);
    for (const { labels, metric } of selectors) {
      expect([...series.keys()]).toContain(metric);
      for (const label of labels) expect(series.get(metric)).toContain(label);
      // What is chosen above the board counts for every picture.
      expect(labels).toEqual(expect.arrayContaining(["job", "instance", "submit_lock_key_prefix"]));
    }
  });

  test.each(queries)("$title: a rate of $query goes by the scrape interval", ({ query }) => {
    const ranges = query.match(/\[[^\]]*\]/g) ?? [];
    expect(ranges.every((range) => range === "[$__rate_interval]")).toBe(true);
    const rates = query.match(/\b(rate|increase)\(/g) ?? [];
    expect(rates).toHaveLength(ranges.length);
  });

  test("chooses among the values of metrics that are exported", () => {
    for (const { definition = "" } of variables) {
      for (const [metric] of definition.matchAll(/submit_lock_\w+_count\b/g)) {
        expect(series.has(metric), metric).toBe(true);
      }
    }
  });
});

test("the alerts name only what is exported", () => {
  const labels = new Set([...series.values()].flat());
  const named = new Set(alerts.match(/\bsubmit_lock_\w+/g));
  expect(named.size).toBeGreaterThan(8);
  for (const name of named) expect(series.has(name) || labels.has(name), name).toBe(true);
});
