import { context } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from "@opentelemetry/sdk-metrics";
import {
  BasicTracerProvider,
  BatchSpanProcessor,
  type SpanExporter,
} from "@opentelemetry/sdk-trace-base";
import type { SubmitLock } from "submit-lock";
import { instrument } from "submit-lock/opentelemetry";

/** Takes every batch, and keeps none. */
const nowhere: SpanExporter = {
  export: (_spans, done) => done({ code: 0 }),
  shutdown: () => Promise.resolve(),
};

/** What a shop does that exports metrics, and one that records every span as well. */
export function observe(lock: SubmitLock, withSpans: boolean): void {
  const exporter = new InMemoryMetricExporter(AggregationTemporality.DELTA);
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 10_000 });
  const meterProvider = new MeterProvider({ readers: [reader] });
  if (!withSpans) {
    instrument({ locks: [lock], meterProvider });
    return;
  }
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  const tracerProvider = new BasicTracerProvider({
    spanProcessors: [new BatchSpanProcessor(nowhere)],
  });
  instrument({ locks: [lock], meterProvider, tracerProvider });
}
