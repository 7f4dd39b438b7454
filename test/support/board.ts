import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

export const dashboards: string = fileURLToPath(
  new URL("../../docs/operations/dashboards/", import.meta.url),
);

/** One picture of the board. */
export interface Panel {
  readonly title: string;
  readonly description: string;
  readonly unit: string;
  readonly datasource: string;
  readonly queries: readonly string[];
}

interface GrafanaPanel {
  readonly type: string;
  readonly title: string;
  readonly description?: string;
  readonly datasource?: { readonly uid: string };
  readonly fieldConfig?: { readonly defaults: { readonly unit?: string } };
  readonly targets?: readonly { readonly expr: string }[];
}

interface Variable {
  readonly name: string;
  readonly type: string;
  readonly definition?: string;
}

const board = JSON.parse(readFileSync(`${dashboards}submit-lock.json`, "utf8")) as {
  readonly panels: readonly GrafanaPanel[];
  readonly templating: { readonly list: readonly Variable[] };
};

/** The board's variables, such as the job. */
export const variables: readonly Variable[] = board.templating.list;

export const panels: readonly Panel[] = board.panels
  .filter(({ type }) => type !== "row")
  .map(({ datasource, description, fieldConfig, targets, title }) => ({
    title,
    description: description ?? "",
    unit: fieldConfig?.defaults.unit ?? "",
    datasource: datasource?.uid ?? "",
    queries: (targets ?? []).map(({ expr }) => expr),
  }));

/** The query as Grafana sends it, with everything chosen. */
export function asSent(query: string, rateInterval: string): string {
  return query
    .replaceAll("$__rate_interval", rateInterval)
    .replace(/\$(job|instance|key_prefix)\b/g, ".*");
}

export const alerts: string = readFileSync(`${dashboards}alerts.yaml`, "utf8");
