// Prints what OpenTelemetry and ioredis' own channels tell of one order.
const { subscribe } = require("node:diagnostics_channel");
const { IORedisInstrumentation } = require("@opentelemetry/instrumentation-ioredis");
const {
  InMemorySpanExporter,
  NodeTracerProvider,
  SimpleSpanProcessor,
} = require("@opentelemetry/sdk-trace-node");

const exporter = new InMemorySpanExporter();
const provider = new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
provider.register();
const make = new Function("IORedisInstrumentation", `return ${process.env.INSTRUMENTATION}`);
const instrumentation = make(IORedisInstrumentation);
instrumentation.setTracerProvider(provider);

// After the instrumentation, which patches it as it is loaded.
const { Redis } = require("ioredis");
const { RedisStore, SubmitLock } = require("submit-lock");
const { instrument } = require("submit-lock/opentelemetry");

async function main() {
  const published = [];
  subscribe("tracing:ioredis:command:start", ({ args }) => published.push(args.join(" ")));
  const redis = new Redis(process.env.REDIS_URL);
  const lock = new SubmitLock({ store: new RedisStore(redis) });
  instrument({ locks: [lock] });
  await lock.check();
  const tracer = provider.getTracer("shop");
  const { lease } = await tracer.startActiveSpan("POST /orders", async (span) => {
    const attempt = await lock.acquire(process.env.TEST_USER);
    span.end();
    return attempt;
  });
  const { key, ownerId } = lease;
  await lease.release();
  await lock.close();
  redis.disconnect();
  const finished = exporter.getFinishedSpans();
  const nameOf = (id) => finished.find((span) => span.spanContext().spanId === id)?.name;
  const spans = finished.map(({ name, attributes, events, status, parentSpanContext }) => {
    return { name, attributes, events, status, parent: nameOf(parentSpanContext?.spanId) };
  });
  console.log(JSON.stringify({ key, ownerId, spans, published }));
}

void main();
