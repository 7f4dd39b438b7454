import { SpanKind, SpanStatusCode } from "@opentelemetry/api";
import type { ReadableSpan } from "@opentelemetry/sdk-trace-base";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { type Instrumentation, instrument } from "../../src/opentelemetry/index.ts";
import { freshUser } from "../support/ids.ts";
import { leaseOf } from "../support/locks.ts";
import { followContext, Telemetry } from "../support/telemetry.ts";
import { until } from "../support/until.ts";
import { closeFixtures, openFixture, openOrder, patient, untilShared } from "./fixture.ts";

let telemetry: Telemetry;
let running: Instrumentation;
let forget: () => void;
beforeAll(() => {
  forget = followContext();
});
afterAll(() => forget());
beforeEach(() => {
  telemetry = new Telemetry();
  const { meterProvider, tracerProvider } = telemetry;
  running = instrument({ meterProvider, tracerProvider });
});
afterEach(async () => {
  running.disable();
  closeFixtures();
  await telemetry.stop();
});

/** A request of the shop's, with a span of its own around it. */
function request<Result>(name: string, work: () => Promise<Result>): Promise<Result> {
  const tracer = telemetry.tracerProvider.getTracer("shop");
  return tracer.startActiveSpan(name, async (span) => {
    try {
      return await work();
    } finally {
      span.end();
    }
  });
}

const finished = () => telemetry.spans.getFinishedSpans();
const named = (name: string) => finished().filter((span) => span.name === name);
const idOf = (span: ReadableSpan | undefined) => span?.spanContext().spanId;
const msOf = ([seconds, nanos]: ReadableSpan["duration"]) => seconds * 1_000 + nanos / 1e6;

test("the spans of 32 requests that share one call are each a child of its own request", async () => {
  const fixture = await openFixture(patient);
  const { lock, proxy } = fixture;
  await untilShared(fixture);
  telemetry.spans.reset();
  // While calls are under way, what comes in one turn shares the next one.
  proxy.holdReplies();
  const before = proxy.count("eval");
  const early = Promise.all(Array.from({ length: 40 }, () => leaseOf(lock, freshUser())));
  await until(() => proxy.count("eval") === before + 4, { what: "calls that are under way" });
  const users = Array.from({ length: 32 }, freshUser);
  const orders = users.map((_, at) => `POST /orders/${at}`);
  const held = Promise.all(
    users.map((user, at) => request(orders[at] as string, () => leaseOf(lock, user))),
  );
  await until(() => proxy.commands.at(-1)?.[2] === "32", { what: "one call with 32 keys" });
  proxy.releaseHeld();
  await Promise.all([...(await held), ...(await early)].map((lease) => lease.release()));
  for (const order of orders) {
    const [parent] = named(order);
    const children = finished().filter((span) => span.parentSpanContext?.spanId === idOf(parent));
    expect(children.map(({ name }) => name)).toEqual(["submit_lock.acquire", "submit_lock.hold"]);
  }
});

test("a span begins when the attempt began, ends when it ended, and tells how", async () => {
  const { lock, proxy } = await openFixture({ ...patient, holder: "pod-1" });
  const user = freshUser();
  proxy.holdReplies();
  const before = Date.now();
  const calls = proxy.count("eval");
  const acquiring = leaseOf(lock, user);
  // The attempt counts from its own begin, which on a busy machine is behind the call's.
  await until(() => proxy.count("eval") > calls, { what: "a call that is under way" });
  const sentBy = Date.now();
  await until(() => Date.now() > sentBy + 40, { what: "a slow answer" });
  proxy.releaseHeld();
  const lease = await acquiring;
  await lock.acquire(user);
  await lease.release();
  const [acquire, contended] = named("submit_lock.acquire");
  expect(acquire?.kind).toBe(SpanKind.INTERNAL);
  expect(acquire?.status.code).toBe(SpanStatusCode.UNSET);
  expect(acquire?.attributes).toEqual({
    "submit_lock.key_prefix": "lock:submit:",
    "submit_lock.outcome": "acquired",
    "submit_lock.confirmed": false,
    "submit_lock.copies": 1,
    "submit_lock.fencing_token": lease.fencingToken,
  });
  expect(msOf(acquire?.duration ?? [0, 0])).toBeGreaterThan(39);
  expect(msOf(acquire?.startTime ?? [0, 0])).toBeGreaterThan(before - 5);
  expect(contended?.attributes["submit_lock.outcome"]).toBe("contended");
  expect(contended?.status.code).toBe(SpanStatusCode.UNSET);
  const [hold] = named("submit_lock.hold");
  expect(hold?.attributes).toEqual({
    "submit_lock.key_prefix": "lock:submit:",
    "submit_lock.outcome": "released",
  });
  // The lease counts from before the acquire was sent.
  expect(msOf(hold?.duration ?? [0, 0])).toBeGreaterThan(39);
});

test("a lock of a submission is held until its complete", async () => {
  const { lease } = await openOrder(patient);
  await lease.complete({ status: 201 });
  expect(named("submit_lock.hold").map(({ attributes }) => attributes)).toEqual([
    {
      "submit_lock.key_prefix": "lock:submit:",
      "submit_lock.outcome": "recorded",
      "submit_lock.submission": lease.submission?.id,
    },
  ]);
});

test("only an attempt that was unavailable is an error", async () => {
  const { lock, proxy } = await openFixture({ acquireTimeoutMs: 200, commandTimeoutMs: 50 });
  proxy.holdRequests();
  await lock.acquire(freshUser());
  const [span] = named("submit_lock.acquire");
  expect(span?.status.code).toBe(SpanStatusCode.ERROR);
  expect(span?.attributes).toMatchObject({
    "submit_lock.outcome": "unavailable",
    "error.type": "SUBMIT_LOCK_UNAVAILABLE",
  });
});

test("a loss is an event of the request that it happened to", async () => {
  const { lock } = await openFixture({ ttlMs: 400, maxHoldMs: 400, acquireTimeoutMs: 200 });
  await request("POST /orders", async () => {
    const lease = await leaseOf(lock, freshUser());
    await until(() => lease.signal.aborted, { what: "the loss" });
    await lease.release();
  });
  const [order] = named("POST /orders");
  expect(order?.events.map(({ attributes, name }) => ({ attributes, name }))).toEqual([
    { name: "submit_lock.lost", attributes: { "submit_lock.reason": "max-hold" } },
  ]);
});
