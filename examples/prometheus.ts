// The metrics of `submit-lock/opentelemetry`, from the channels, for prom-client.
import { subscribe } from "node:diagnostics_channel";
// Deprecated: on Node 22 and later its successor @prometheus-io/client has the same names.
import { Counter, Gauge, Histogram } from "prom-client";
import type { SubmitLock, SubmitLockChannels } from "submit-lock";

const prefix = "submit_lock_key_prefix";
const outcome = "submit_lock_outcome";
const roundTrip = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 2.5];

/** Those of refusals. */
const codes = [
  ...["submit_anonymous", "submit_contended", "submit_unavailable", "submit_lock_lost"],
  ...["idempotency_key_required", "idempotency_key_invalid", "idempotency_id_invalid"],
  ...["idempotency_in_flight", "idempotency_answer_unavailable", "idempotency_conflict"],
  "SUBMIT_LOCK_NO_FINGERPRINT",
];

function histogram(name: string, buckets: number[], ...labels: string[]): Histogram<string> {
  const labelNames = [prefix, ...labels];
  return new Histogram({ name: `submit_lock_${name}_seconds`, help: name, buckets, labelNames });
}

function counter(name: string, ...labels: string[]): Counter<string> {
  return new Counter({
    name: `submit_lock_${name}_total`,
    help: name,
    labelNames: [prefix, ...labels],
  });
}

/** A subscriber that throws would end the process. Recording with known labels does not. */
function on<Name extends keyof SubmitLockChannels>(
  name: Name,
  listener: (message: SubmitLockChannels[Name]) => void,
): void {
  subscribe(name, (message) => listener(message as SubmitLockChannels[Name]));
}

const errorType = (cause: Error | undefined): string =>
  cause === undefined ? "" : String((cause as { code?: unknown }).code ?? "_OTHER");

/** The metrics of `submit-lock/opentelemetry` without OpenTelemetry: the board and the alerts fit. */
export function observe(lock: SubmitLock): void {
  const acquire = histogram(
    "acquire_duration",
    roundTrip,
    ...[outcome, "submit_lock_confirmed", "error_type"],
  );
  const remaining = histogram(
    "contention_remaining",
    [0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 600, 7_200],
  );
  const holdBuckets = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600];
  const hold = histogram("hold_duration", holdBuckets, outcome);
  const release = histogram("release_duration", roundTrip, outcome, "error_type");
  const complete = histogram("complete_duration", roundTrip, outcome, "error_type");
  const retire = histogram("retire_duration", [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 12], outcome);
  const losses = counter("lease_losses", "submit_lock_reason");
  const duplicates = counter("submission_duplicates");
  const refusals = counter("request_refusals", "submit_lock_code");
  const labelNames = [prefix];
  const away = new Gauge({ name: "submit_lock_store_away", help: "store_away", labelNames });

  on("submit-lock:acquire", (message) => {
    const labels = { [prefix]: message.keyPrefix, [outcome]: message.outcome };
    const confirmed = { submit_lock_confirmed: `${message.confirmed}` };
    const error_type = errorType(message.cause);
    acquire.observe({ ...labels, ...confirmed, error_type }, message.durationMs / 1_000);
    if (message.outcome !== "contended" || message.expiresInMs === undefined) return;
    const seconds = Math.min(message.expiresInMs / 1_000, 86_400);
    remaining.observe({ [prefix]: message.keyPrefix }, seconds);
  });
  for (const [name, duration] of [
    ["submit-lock:release", release],
    ["submit-lock:complete", complete],
  ] as const) {
    on(name, (message) => {
      const labels = { [prefix]: message.keyPrefix, [outcome]: message.outcome };
      hold.observe(labels, message.heldMs / 1_000);
      const error_type = errorType(message.cause);
      duration.observe({ ...labels, error_type }, message.durationMs / 1_000);
    });
  }
  on("submit-lock:retire", (message) => {
    const labels = { [prefix]: message.keyPrefix, [outcome]: message.outcome };
    retire.observe(labels, message.durationMs / 1_000);
  });
  on("submit-lock:lost", (message) => {
    losses.inc({ [prefix]: message.keyPrefix, submit_lock_reason: message.outcome });
  });
  on("submit-lock:refusal", ({ code, keyPrefix }) => {
    refusals.inc({ [prefix]: keyPrefix, submit_lock_code: code });
  });
  on("submit-lock:store", ({ keyPrefix, outcome: isNow }) => {
    away.set({ [prefix]: keyPrefix }, isNow === "away" ? 1 : 0);
  });
  on("submit-lock:duplicate", ({ keyPrefix }) => duplicates.inc({ [prefix]: keyPrefix }));
  // Zeros, so that an alert on an increase sees the first one.
  duplicates.inc({ [prefix]: lock.keyPrefix }, 0);
  away.set({ [prefix]: lock.keyPrefix }, 0);
  for (const submit_lock_code of codes) {
    refusals.inc({ [prefix]: lock.keyPrefix, submit_lock_code }, 0);
  }
  for (const submit_lock_reason of ["expired", "overtaken", "freed", "max-hold", "closed"]) {
    losses.inc({ [prefix]: lock.keyPrefix, submit_lock_reason }, 0);
  }

  const now = (name: string, value: () => number): Gauge<string> =>
    new Gauge({
      name: `submit_lock_${name}`,
      help: name,
      labelNames: [prefix],
      collect() {
        this.set({ [prefix]: lock.keyPrefix }, value());
      },
    });
  now("lease_count", () => lock.stats().held);
  now("attempt_count", () => lock.stats().attempting);
  now("retirement_count", () => lock.stats().retiring);
  now("lease_oldest_age_seconds", () => lock.stats().oldestHeldMs / 1_000);
}
