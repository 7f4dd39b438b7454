import { context } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import {
  AggregationTemporality,
  type DataPoint,
  type Histogram,
  InMemoryMetricExporter,
  MeterProvider,
  type MetricData,
  PeriodicExportingMetricReader,
} from "@opentelemetry/sdk-metrics";
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
} from "@opentelemetry/sdk-trace-base";

/** OpenTelemetry's SDK with its exports in memory. */
export class Telemetry {
  readonly #metrics = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
  readonly spans: InMemorySpanExporter = new InMemorySpanExporter();
  readonly meterProvider: MeterProvider = new MeterProvider({
    // Exported when it is asked for, and never by itself.
    readers: [
      new PeriodicExportingMetricReader({
        exporter: this.#metrics,
        exportIntervalMillis: 3_600_000,
      }),
    ],
  });
  readonly tracerProvider: BasicTracerProvider = new BasicTracerProvider({
    spanProcessors: [new SimpleSpanProcessor(this.spans)],
  });

  /** What an export holds now, by the name of the metric. */
  async export(): Promise<Map<string, MetricData>> {
    this.#metrics.reset();
    await this.meterProvider.forceFlush();
    const [exported] = this.#metrics.getMetrics();
    const metrics = exported?.scopeMetrics.flatMap((scope) => scope.metrics) ?? [];
    return new Map(metrics.map((metric) => [metric.descriptor.name, metric]));
  }

  /** How often each combination of attributes was recorded, or its sum where it is no histogram. */
  async counts(metric: string): Promise<Record<string, number>> {
    const data = (await this.export()).get(metric);
    const points = (data?.dataPoints ?? []) as DataPoint<number | Histogram>[];
    return Object.fromEntries(
      points.map(({ attributes, value }) => [
        JSON.stringify(attributes),
        typeof value === "number" ? value : value.count,
      ]),
    );
  }

  async stop(): Promise<void> {
    await Promise.all([this.meterProvider.shutdown(), this.tracerProvider.shutdown()]);
  }
}

/** From now on the active span follows asynchronous calls, as in an application. */
export function followContext(): () => void {
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  return () => context.disable();
}
