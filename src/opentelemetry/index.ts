import { subscribe, unsubscribe } from "node:diagnostics_channel";
import {
  type Attributes,
  diag,
  type Meter,
  type MeterProvider,
  metrics,
  SpanStatusCode,
  type Tracer,
  type TracerProvider,
  trace,
} from "@opentelemetry/api";
import type { LostReason } from "../errors.ts";
import type {
  AcquireMessage,
  CompleteMessage,
  ReleaseMessage,
  SubmitLockChannels,
} from "../lock/channels.ts";
import type { LockStats } from "../lock/on-call.ts";
import { problemCodes } from "../problem.ts";
import { checkOptionNames, hasMembers, invalidOption } from "../validation.ts";

/** A lock that is asked for its current numbers, such as a `SubmitLock`. */
export interface ObservedLock {
  readonly keyPrefix: string;
  stats(): LockStats;
}

/** Options of `instrument`. */
export interface InstrumentOptions {
  /**
   * The locks whose `stats()` feed the metrics of the moment: leases held, attempts, releases and
   * completes under way, the oldest lease. `stats()` is called when metrics are collected, until
   * `disable`. @defaultValue none; all other metrics cover every lock of the process
   */
  readonly locks?: readonly ObservedLock[] | undefined;
  /** @defaultValue the global provider, as it is when `instrument` is called */
  readonly meterProvider?: MeterProvider | undefined;
  /** @defaultValue the global provider */
  readonly tracerProvider?: TracerProvider | undefined;
  /**
   * Whether spans are made: `submit_lock.acquire` and `submit_lock.hold`, children of the span in
   * which the lock was asked for; and events added to the active span. @defaultValue true
   */
  readonly spans?: boolean | undefined;
}

/** The result of `instrument`. */
export interface Instrumentation {
  /** Ends the subscriptions and drops the locks. A second call does nothing. */
  disable(): void;
}

/**
 * Reports metrics and spans of every lock of this process to OpenTelemetry. Call it once, after
 * the SDK was started. No attribute is a key, a user id, an owner id or a holder. The first error
 * of each listener is reported to `diag`, and none reaches the order.
 * @throws InvalidOptionError naming the option, what was expected and what came.
 */
export function instrument(options: InstrumentOptions = {}): Instrumentation {
  checkOptionNames("instrument", options, ["locks", "meterProvider", "tracerProvider", "spans"]);
  const { locks = [], meterProvider = metrics, tracerProvider = trace, spans = true } = options;
  const isLock = (lock: unknown) => hasMembers(lock, ["keyPrefix", "stats"]);
  if (!Array.isArray(locks) || !locks.every(isLock)) {
    throw invalidOption("locks", "an array of SubmitLock", locks);
  }
  if (typeof spans !== "boolean") throw invalidOption("spans", "a boolean", spans);
  if (!hasMembers(meterProvider, ["getMeter"])) {
    throw invalidOption("meterProvider", "a MeterProvider", meterProvider);
  }
  if (!hasMembers(tracerProvider, ["getTracer"])) {
    throw invalidOption("tracerProvider", "a TracerProvider", tracerProvider);
  }

  const meter = meterProvider.getMeter("submit-lock");
  const ends = [observe(meter, [...locks]), ...listenTo(metricsOf(meter, locks))];
  if (spans) ends.push(...listenTo(spansOf(tracerProvider.getTracer("submit-lock"))));
  return {
    disable() {
      for (const end of ends.splice(0)) end();
    },
  };
}

/** Subscribes, and catches errors, which would end the process. Returns ways to unsubscribe. */
function listenTo(listeners: Listeners): (() => void)[] {
  return Object.entries(listeners).map(([name, listener]) => {
    let hasFailed = false;
    const subscriber = (message: unknown): void => {
      try {
        listener(message as never);
      } catch (error) {
        if (hasFailed) return;
        hasFailed = true;
        diag.error(`the instrumentation of ${name} failed`, error);
      }
    };
    subscribe(name, subscriber);
    return () => void unsubscribe(name, subscriber);
  });
}

/** The names of all attributes. None of them identifies a user. */
const KEY_PREFIX = "submit_lock.key_prefix";
const OUTCOME = "submit_lock.outcome";
const CONFIRMED = "submit_lock.confirmed";
const REASON = "submit_lock.reason";
const CODE = "submit_lock.code";
const COPIES = "submit_lock.copies";
const SUBMISSION = "submit_lock.submission";
const FENCING_TOKEN = "submit_lock.fencing_token";
const ERROR_TYPE = "error.type";

/** An error is shown by its `code`, such as `SUBMIT_LOCK_UNAVAILABLE`, or `_OTHER`. */
function attributesOf(message: AcquireMessage | ReleaseMessage | CompleteMessage): Attributes {
  const { cause, keyPrefix, outcome } = message;
  const attributes = { [KEY_PREFIX]: keyPrefix, [OUTCOME]: outcome };
  if (cause === undefined) return attributes;
  const { code } = cause as { code?: unknown };
  return { ...attributes, [ERROR_TYPE]: typeof code === "string" ? code : "_OTHER" };
}

/** Bounds of buckets, in seconds: 0.2 and 1 are defaults of commandTimeoutMs, acquireTimeoutMs. */
const roundTrip = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 2.5];
/** Bounds in seconds. The last is two hours, because another program's lock may live that long. */
const remaining = [0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 600, 7_200];
/** A longer or endless life counts as a day, because `Infinity` would spoil the sum. */
const longestRemainingMs = 86_400_000;
/** Bounds in seconds, up to the largest `maxHoldMs`. */
const hold = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600];
/** Bounds in seconds. A retire is given up after 2 × acquireTimeoutMs + ttlMs: 12 by default. */
const retire = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 12];

const reasons: Record<LostReason, true> = {
  expired: true,
  overtaken: true,
  freed: true,
  "max-hold": true,
  closed: true,
};

type Listeners = {
  readonly [Name in keyof SubmitLockChannels]?: (message: SubmitLockChannels[Name]) => void;
};

function metricsOf(meter: Meter, locks: readonly ObservedLock[]): Listeners {
  const seconds = (name: string, explicitBucketBoundaries: number[], description: string) => {
    const advice = { explicitBucketBoundaries };
    const histogram = meter.createHistogram(name, { description, unit: "s", advice });
    return (ms: number, attributes: Attributes) => histogram.record(ms / 1_000, attributes);
  };
  const acquired = seconds("submit_lock.acquire.duration", roundTrip, "How long attempts took");
  const contended = seconds(
    "submit_lock.contention.remaining",
    remaining,
    "How long the key that refused an attempt had yet to live",
  );
  const held = seconds("submit_lock.hold.duration", hold, "How long locks were held");
  const released = seconds("submit_lock.release.duration", roundTrip, "How long releases took");
  const completed = seconds(
    "submit_lock.complete.duration",
    roundTrip,
    "How long keeping the answer of a submission took",
  );
  const retired = seconds(
    "submit_lock.retire.duration",
    retire,
    "How long retires took: until no late request could take effect, or until they were abandoned",
  );
  const losses = meter.createCounter("submit_lock.lease.losses", {
    description: "Leases that were lost while they were held",
    unit: "{lease}",
  });
  const duplicates = meter.createCounter("submit_lock.submission.duplicates", {
    description: "Submissions that are proven to have run twice",
    unit: "{submission}",
  });

  const away = meter.createUpDownCounter("submit_lock.store.away", {
    description: "SubmitLock objects whose store gives no answers now",
    unit: "{lock}",
  });
  const refusals = meter.createCounter("submit_lock.request.refusals", {
    description: "Requests that a guard refused",
    unit: "{request}",
  });

  /** How many locks of each prefix have an outage that began after `instrument` was called. */
  const outages = new Map<string, number>();
  const prefixes = new Set<string>();
  /** Starts a prefix's counters at 0: an alert on increases misses a counter that starts at 1. */
  const start = (keyPrefix: string): void => {
    if (prefixes.has(keyPrefix)) return;
    prefixes.add(keyPrefix);
    duplicates.add(0, { [KEY_PREFIX]: keyPrefix });
    away.add(0, { [KEY_PREFIX]: keyPrefix });
    for (const code of problemCodes) refusals.add(0, { [KEY_PREFIX]: keyPrefix, [CODE]: code });
    for (const reason of Object.keys(reasons))
      losses.add(0, { [KEY_PREFIX]: keyPrefix, [REASON]: reason });
  };
  for (const { keyPrefix } of locks) start(keyPrefix);

  const ended = (answered: typeof held, message: ReleaseMessage | CompleteMessage): void => {
    const { durationMs, heldMs, keyPrefix, outcome } = message;
    held(heldMs, { [KEY_PREFIX]: keyPrefix, [OUTCOME]: outcome });
    answered(durationMs, attributesOf(message));
  };
  return {
    "submit-lock:acquire": (message) => {
      const { confirmed, durationMs, expiresInMs, keyPrefix, outcome } = message;
      start(keyPrefix);
      acquired(durationMs, { ...attributesOf(message), [CONFIRMED]: confirmed });
      if (outcome === "contended" && expiresInMs !== undefined) {
        contended(Math.min(expiresInMs, longestRemainingMs), { [KEY_PREFIX]: keyPrefix });
      }
    },
    "submit-lock:release": (message) => ended(released, message),
    "submit-lock:complete": (message) => ended(completed, message),
    "submit-lock:duplicate": ({ keyPrefix }) => {
      start(keyPrefix);
      duplicates.add(1, { [KEY_PREFIX]: keyPrefix });
    },
    "submit-lock:lost": ({ keyPrefix, outcome }) => {
      start(keyPrefix);
      losses.add(1, { [KEY_PREFIX]: keyPrefix, [REASON]: outcome });
    },
    "submit-lock:store": ({ keyPrefix, outcome }) => {
      start(keyPrefix);
      const before = outages.get(keyPrefix) ?? 0;
      const now = Math.max(0, before + (outcome === "away" ? 1 : -1));
      outages.set(keyPrefix, now);
      away.add(now - before, { [KEY_PREFIX]: keyPrefix });
    },
    "submit-lock:refusal": ({ code, keyPrefix }) => {
      start(keyPrefix);
      refusals.add(1, { [KEY_PREFIX]: keyPrefix, [CODE]: code });
    },
    "submit-lock:retire": ({ durationMs, keyPrefix, outcome }) =>
      retired(durationMs, { [KEY_PREFIX]: keyPrefix, [OUTCOME]: outcome }),
  };
}

function observe(meter: Meter, locks: readonly ObservedLock[]): () => void {
  if (locks.length === 0) return () => {};
  const upDown = (name: string, unit: string, description: string) =>
    meter.createObservableUpDownCounter(name, { description, unit });
  const held = upDown("submit_lock.lease.count", "{lease}", "Locks that are held now");
  const attempting = upDown("submit_lock.attempt.count", "{attempt}", "Attempts under way now");
  const retirement = "Releases, retires and completes under way now";
  const retiring = upDown("submit_lock.retirement.count", "{owner_id}", retirement);
  const oldest = meter.createObservableGauge("submit_lock.lease.oldest_age", {
    description: "How long the oldest lock of now has been held",
    unit: "s",
  });
  const observed = [held, attempting, retiring, oldest];
  const tell: Parameters<Meter["addBatchObservableCallback"]>[0] = (result) => {
    // Locks with one prefix are one series, in which a second observation would replace the first.
    for (const keyPrefix of new Set(locks.map((lock) => lock.keyPrefix))) {
      const all = locks.filter((lock) => lock.keyPrefix === keyPrefix).map((lock) => lock.stats());
      const sum = (name: keyof LockStats) => all.reduce((total, stats) => total + stats[name], 0);
      const attributes = { [KEY_PREFIX]: keyPrefix };
      result.observe(held, sum("held"), attributes);
      result.observe(attempting, sum("attempting"), attributes);
      result.observe(retiring, sum("retiring"), attributes);
      const oldestMs = Math.max(...all.map(({ oldestHeldMs }) => oldestHeldMs));
      result.observe(oldest, oldestMs / 1_000, attributes);
    }
  };
  meter.addBatchObservableCallback(tell, observed);
  return () => meter.removeBatchObservableCallback(tell, observed);
}

/** The attribute for the submission. Only spans have it: a metric would get a series per order. */
function submissionAttribute(submission: string | undefined): Attributes {
  return submission === undefined ? {} : { [SUBMISSION]: submission };
}

function addEvent(name: string, attributes: Attributes): void {
  const span = trace.getActiveSpan();
  if (span?.isRecording()) span.addEvent(name, attributes);
}

/** A message arrives in the context of the code that asked for the lock: its span is the parent. */
function spansOf(tracer: Tracer): Listeners {
  /** Makes a span from the acquire to the call of `release` or `complete`, not to its answer. */
  const ended = (message: ReleaseMessage | CompleteMessage): void => {
    const endTime = Date.now() - message.durationMs;
    const submission = "submission" in message ? message.submission : undefined;
    const attributes = { ...attributesOf(message), ...submissionAttribute(submission) };
    const span = { startTime: endTime - message.heldMs, attributes };
    tracer.startSpan("submit_lock.hold", span).end(endTime);
  };
  return {
    "submit-lock:acquire": (message) => {
      const { confirmed, copies, durationMs, fencingToken, outcome } = message;
      const endTime = Date.now();
      const attributes = {
        ...attributesOf(message),
        ...{ [CONFIRMED]: confirmed, [COPIES]: copies },
        ...(fencingToken !== undefined && { [FENCING_TOKEN]: fencingToken }),
      };
      const startTime = endTime - durationMs;
      const span = tracer.startSpan("submit_lock.acquire", { startTime, attributes });
      // Contended, completed and mismatched are answers, not errors.
      if (outcome === "unavailable") span.setStatus({ code: SpanStatusCode.ERROR });
      span.end(endTime);
    },
    "submit-lock:release": ended,
    "submit-lock:complete": ended,
    "submit-lock:lost": ({ outcome }) => addEvent("submit_lock.lost", { [REASON]: outcome }),
    "submit-lock:refusal": ({ code, submission }) =>
      addEvent("submit_lock.refused", { [CODE]: code, ...submissionAttribute(submission) }),
    "submit-lock:replay": ({ submission }) =>
      addEvent("submit_lock.replayed", submissionAttribute(submission)),
  };
}
