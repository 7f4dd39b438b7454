import { AsyncLocalStorage } from "node:async_hooks";
import { type Context, context, ROOT_CONTEXT } from "@opentelemetry/api";
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
  const active = new AsyncLocalStorage<Context>();
  context.setGlobalContextManager({
    active: () => active.getStore() ?? ROOT_CONTEXT,
    with: (of, call, self, ...args) => active.run(of, () => Reflect.apply(call, self, args)),
    bind: (_of, target) => target,
    enable() {
      return this;
    },
    disable() {
      return this;
    },
  });
  return () => context.disable();
}
