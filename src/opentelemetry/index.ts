import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { diag, type MeterProvider, metrics, type TracerProvider, trace } from "@opentelemetry/api";
import { checkOptionNames, hasMembers, invalidOption } from "../validation.ts";
import { type Listeners, metricsOf, type ObservedLock, observe, spansOf } from "./instruments.ts";

export type { ObservedLock } from "./instruments.ts";

/** For `instrument`. */
export interface InstrumentOptions {
  /**
   * The locks whose `stats()` feed the metrics of the moment: leases held, attempts waiting, owner
   * ids being retired, the oldest lease. `stats()` is called when metrics are collected, until
   * `disable`.
   * @defaultValue none; all other metrics cover every lock of the process
   */
  readonly locks?: readonly ObservedLock[] | undefined;
  /** @defaultValue the global one, as it is when `instrument` is called */
  readonly meterProvider?: MeterProvider | undefined;
  /** @defaultValue the global one */
  readonly tracerProvider?: TracerProvider | undefined;
  /**
   * Whether spans are made: `submit_lock.acquire` and `submit_lock.hold`, children of the span in
   * which the lock was asked for.
   * @defaultValue true
   */
  readonly spans?: boolean | undefined;
}

/** The result of `instrument`. */
export interface Instrumentation {
  /** Ends the subscriptions and drops the locks. A second call does nothing. */
  disable(): void;
}

/** The name of the meter and of the tracer. */
const scope = "submit-lock";

/**
 * Reports metrics and spans of every lock of this process to OpenTelemetry. Call it once, after
 * the SDK was started. No attribute is a key, a user id, an owner id or a holder. The first error
 * for each channel is reported to `diag`, and none reaches the order.
 *
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

  const meter = meterProvider.getMeter(scope);
  const listeners = metricsOf(meter, locks);
  const ends = [observe(meter, [...locks]), ...listen(listeners)];
  if (spans) ends.push(...listen(spansOf(tracerProvider.getTracer(scope))));
  return {
    disable() {
      for (const end of ends.splice(0)) end();
    },
  };
}

/**
 * Subscribes to channels. A subscriber that throws would end the process as an uncaught exception:
 * its first error on each channel is reported to `diag`, and none is thrown.
 *
 * @returns functions that end the subscriptions, one for each channel.
 */
function listen(listeners: Listeners): (() => void)[] {
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
