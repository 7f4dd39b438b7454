import { describe, expect, onTestFinished, test } from "vitest";
import { instrument } from "../../src/opentelemetry/index.ts";
import { record } from "../support/channels.ts";
import { followContext, Telemetry } from "../support/telemetry.ts";
import { until } from "../support/until.ts";
import { type Framework, newest } from "./frameworks.ts";
import { onExpress } from "./layers.ts";
import { codeOf, onAll, openOnce, openWaiting, orderKey } from "./once-shop.ts";

const keyPrefix = "lock:submit:";
const id = expect.stringMatching(/^[\w-]{22}$/);

describe.each(onAll)("$name", (framework: Framework) => {
  test("a refusal is published with its code, its status and its submission", async () => {
    const refusals = record("submit-lock:refusal");
    const { once, goOn } = await openWaiting({
      framework,
      guard: { idempotency: { key: "required", waitMs: 0 } },
    });
    const first = await once.start({ key: orderKey });
    await once.submit({ key: "another" });
    await once.submit({ key: orderKey });
    await once.submit({});
    await once.submit({ user: "" });
    goOn();
    await first.reply;
    await once.whenKept(1);
    await once.submit({ key: orderKey, body: { item: 2 } });
    const key = once.shop.key;
    expect(refusals).toEqual([
      { code: "submit_contended", status: 409, submission: id, key, keyPrefix },
      { code: "idempotency_in_flight", status: 409, submission: id, key, keyPrefix },
      { code: "idempotency_key_required", status: 400, submission: undefined, key, keyPrefix },
      { code: "submit_anonymous", status: 401, submission: undefined, key: undefined, keyPrefix },
      { code: "idempotency_conflict", status: 422, submission: id, key, keyPrefix },
    ]);
    expect(refusals[0]?.submission).not.toBe(refusals[1]?.submission);
    expect(refusals[4]?.submission).toBe(refusals[1]?.submission);
  });

  test("a click that waited and got its answer is a replay, and no refusal", async () => {
    const refusals = record("submit-lock:refusal");
    const { once, goOn } = await openWaiting({ framework });
    const replays = record("submit-lock:replay", once.shop.key);
    const first = await once.start({ key: orderKey });
    const second = once.submit({ key: orderKey });
    await until(() => once.shop.lock.stats().waiting === 1, { what: "the second click" });
    goOn();
    expect([(await first.reply).status, (await second).status]).toEqual([201, 201]);
    expect([refusals.length, replays.length]).toEqual([0, 1]);
  });

  test("a client that has left while it waited is refused nothing", async () => {
    const refusals = record("submit-lock:refusal");
    const { once, goOn } = await openWaiting({ framework });
    const first = await once.start({ key: orderKey });
    const second = once.begin({ key: orderKey });
    await until(() => once.shop.lock.stats().waiting === 1, { what: "the second click" });
    second.abort();
    await until(() => once.shop.lock.stats().waiting === 0, { what: "the wait to end" });
    goOn();
    await first.reply;
    expect(refusals).toEqual([]);
  });
});

test("a refusal is counted by its code, and an event of its request's span", async () => {
  const framework = newest.find(({ family }) => family === "express") as Framework;
  const telemetry = new Telemetry();
  const forget = followContext();
  const { meterProvider, tracerProvider } = telemetry;
  const running = instrument({ meterProvider, tracerProvider });
  onTestFinished(async () => {
    running.disable();
    forget();
    await telemetry.stop();
  });
  const spanned = onExpress((_req, res, next) =>
    tracerProvider.getTracer("shop").startActiveSpan("POST /orders", (span) => {
      res.once("finish", () => span.end());
      next();
    }),
  );
  const guard = { idempotency: { key: "required" } } as const;
  const once = await openOnce({ framework, guard, outside: [spanned] });
  expect(codeOf(await once.submit({}))).toBe("idempotency_key_required");
  const counts = await telemetry.counts("submit_lock.request.refusals");
  const of = (code: string) =>
    counts[JSON.stringify({ "submit_lock.key_prefix": keyPrefix, "submit_lock.code": code })];
  expect([of("idempotency_key_required"), of("submit_contended")]).toEqual([1, 0]);
  const attributes = { "submit_lock.code": "idempotency_key_required" };
  const request = () => telemetry.spans.getFinishedSpans()[0];
  await until(() => request() !== undefined, { what: "the request's span" });
  expect(request()?.events).toEqual([
    expect.objectContaining({ name: "submit_lock.refused", attributes }),
  ]);
});
