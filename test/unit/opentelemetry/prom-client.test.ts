import { register } from "prom-client";
import { afterEach, expect, test } from "vitest";
import { observe } from "../../../examples/prometheus.ts";
import { MemoryStore } from "../../../src/index.ts";
import { alerts, panels } from "../../support/board.ts";
import { documentedMetrics, prometheusNames } from "../../support/documented-metrics.ts";
import { closeLocks, openLock } from "../../support/locks.ts";
import { until } from "../../support/until.ts";
import { everyOutcome, keyPrefix } from "./every-outcome.ts";

afterEach(closeLocks);

/** Each series of a text that Prometheus scrapes: its labels but `le`. */
function seriesIn(text: string): Map<string, string[]> {
  const series = new Map<string, string[]>();
  for (const [, name = "", labels = ""] of text.matchAll(/^(submit_lock_\w+)\{(.*)\} /gm)) {
    const pairs = [...labels.matchAll(/(\w+)="([^"]*)"/g)].filter(([, label]) => label !== "le");
    const told = pairs.filter(([, , value]) => value !== "").map(([pair]) => pair);
    const all = series.get(name) ?? [];
    series.set(name, [...new Set([...all, told.sort().join(",")])]);
  }
  return series;
}

test("the example for prom-client exports what the board and the alerts read, as OpenTelemetry does", async () => {
  observe(openLock({ store: new MemoryStore(), keyPrefix }));
  await everyOutcome();
  await until(async () => /retire.*abandoned/.test(await register.metrics()), {
    what: "the last retire",
    everyMs: 20,
  });
  const found = seriesIn(await register.metrics());
  const expected = Object.entries(documentedMetrics).flatMap(([name, metric]) =>
    prometheusNames(name, metric).map((each) => [
      each,
      metric.attributes.map((attributes) =>
        Object.entries({ "submit_lock.key_prefix": keyPrefix, ...attributes })
          .map(([label, value]) => `${label.replaceAll(".", "_")}="${value}"`)
          .sort()
          .join(","),
      ),
    ]),
  ) as [string, string[]][];
  const labelsOf = new Map(expected);
  for (const [name, labels] of found)
    expect(labels.sort(), name).toEqual(labelsOf.get(name)?.sort());
  const shown = [...panels.flatMap(({ queries }) => queries), alerts].join("\n");
  for (const [name] of expected)
    if (shown.includes(name)) expect([...found.keys()]).toContain(name);
});

test("and their buckets", async () => {
  const text = await register.metrics();
  for (const [name, { buckets }] of Object.entries(documentedMetrics)) {
    if (buckets === undefined) continue;
    const series = `${name.replaceAll(".", "_")}_seconds_bucket`;
    const found = [...text.matchAll(new RegExp(`^${series}\\{le="([\\d.]+)"`, "gm"))];
    const distinct = [...new Set(found.map(([, le]) => Number(le)))];
    if (distinct.length > 0) expect(distinct, name).toEqual(buckets);
  }
});
