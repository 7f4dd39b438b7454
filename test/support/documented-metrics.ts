import type { ProblemCode } from "../../src/express/index.ts";
import type { LostReason } from "../../src/index.ts";

/** What is told of a lock, as the documents, the board and the alerts know it. */
export interface DocumentedMetric {
  readonly kind: "histogram" | "counter" | "gauge";
  readonly unit: string;
  /** Of a histogram, in seconds. */
  readonly buckets?: readonly number[];
  /** What points are told apart by, besides the key prefix: every combination that there is. */
  readonly attributes: readonly Record<string, string | boolean>[];
}

const outcome = "submit_lock.outcome";
const error = "error.type";
const [unavailable, misconfigured] = ["SUBMIT_LOCK_UNAVAILABLE", "SUBMIT_LOCK_MISCONFIGURED"];
const roundTrip = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 2.5];

const acquire = (named: string, confirmed = false, more = {}) => ({
  [outcome]: named,
  "submit_lock.confirmed": confirmed,
  ...more,
});
const outcomes = (...names: string[]) => names.map((name) => ({ [outcome]: name }));
const unconfirmed = { [outcome]: "unconfirmed", [error]: unavailable };
const codes = [
  ...(["submit_anonymous", "submit_contended", "submit_unavailable"] as const),
  ...(["idempotency_key_required", "idempotency_key_invalid", "idempotency_id_invalid"] as const),
  ...(["idempotency_in_flight", "idempotency_answer_unavailable"] as const),
  ...(["idempotency_conflict", "submit_lock_lost", "SUBMIT_LOCK_NO_FINGERPRINT"] as const),
] satisfies (ProblemCode | "submit_lock_lost" | "SUBMIT_LOCK_NO_FINGERPRINT")[];
const reasons = ["expired", "overtaken", "freed", "max-hold", "closed"] satisfies LostReason[];

export const documentedMetrics: Readonly<Record<string, DocumentedMetric>> = {
  "submit_lock.acquire.duration": {
    kind: "histogram",
    unit: "s",
    buckets: roundTrip,
    attributes: [
      acquire("acquired"),
      acquire("acquired", true),
      acquire("contended"),
      acquire("completed"),
      acquire("mismatched"),
      acquire("unavailable", false, { [error]: unavailable }),
      acquire("unavailable", false, { [error]: misconfigured }),
    ],
  },
  "submit_lock.contention.remaining": {
    kind: "histogram",
    unit: "s",
    buckets: [0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 600, 7_200],
    attributes: [{}],
  },
  "submit_lock.hold.duration": {
    kind: "histogram",
    unit: "s",
    buckets: [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600],
    attributes: outcomes(
      ...["released", "gone", "freed", "foreign", "unconfirmed"],
      ...["recorded", "late", "expired", "duplicate"],
    ),
  },
  "submit_lock.release.duration": {
    kind: "histogram",
    unit: "s",
    buckets: roundTrip,
    attributes: [...outcomes("released", "gone", "freed", "foreign"), unconfirmed],
  },
  "submit_lock.complete.duration": {
    kind: "histogram",
    unit: "s",
    buckets: roundTrip,
    attributes: [...outcomes("recorded", "late", "expired", "duplicate"), unconfirmed],
  },
  "submit_lock.retire.duration": {
    kind: "histogram",
    unit: "s",
    buckets: [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 12],
    attributes: outcomes("final", "abandoned"),
  },
  "submit_lock.lease.losses": {
    kind: "counter",
    unit: "{lease}",
    attributes: reasons.map((reason) => ({ "submit_lock.reason": reason })),
  },
  "submit_lock.submission.duplicates": {
    kind: "counter",
    unit: "{submission}",
    attributes: [{}],
  },
  "submit_lock.request.refusals": {
    kind: "counter",
    unit: "{request}",
    attributes: codes.map((code) => ({ "submit_lock.code": code })),
  },
  "submit_lock.store.away": { kind: "gauge", unit: "{lock}", attributes: [{}] },
  "submit_lock.lease.count": { kind: "gauge", unit: "{lease}", attributes: [{}] },
  "submit_lock.attempt.count": { kind: "gauge", unit: "{attempt}", attributes: [{}] },
  "submit_lock.retirement.count": { kind: "gauge", unit: "{owner_id}", attributes: [{}] },
  "submit_lock.lease.oldest_age": { kind: "gauge", unit: "s", attributes: [{}] },
};

/**
 * The series of a metric in Prometheus, by OpenTelemetry's rules: underscores for dots, the unit
 * where it is one, `_total` for a counter.
 * https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/
 */
export function prometheusNames(name: string, { kind, unit }: DocumentedMetric): string[] {
  const base = name.replaceAll(".", "_") + (unit === "s" ? "_seconds" : "");
  if (kind === "counter") return [`${base}_total`];
  if (kind === "gauge") return [base];
  return [`${base}_bucket`, `${base}_count`, `${base}_sum`];
}

export function prometheusLabels({ attributes, kind }: DocumentedMetric): string[] {
  const own = new Set(attributes.flatMap((each) => Object.keys(each)));
  const labels = ["submit_lock.key_prefix", ...own].map((each) => each.replaceAll(".", "_"));
  return kind === "histogram" ? [...labels, "le"] : labels;
}
