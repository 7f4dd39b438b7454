import { DataPointType } from "@opentelemetry/sdk-metrics";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { MemoryStore } from "../../../src/index.ts";
import { type Instrumentation, instrument } from "../../../src/opentelemetry/index.ts";
import { documentedMetrics } from "../../support/documented-metrics.ts";
import { freshUser } from "../../support/ids.ts";
import { closeLocks, leaseOf, openLock } from "../../support/locks.ts";
import { Telemetry } from "../../support/telemetry.ts";
import { until } from "../../support/until.ts";
import { everyOutcome, keyPrefix } from "./every-outcome.ts";

let telemetry: Telemetry;
const running: Instrumentation[] = [];
beforeEach(() => {
  telemetry = new Telemetry();
});
afterEach(async () => {
  for (const each of running.splice(0)) each.disable();
  await closeLocks();
  await telemetry.stop();
});

function start(options: Parameters<typeof instrument>[0] = {}): Instrumentation {
  const { meterProvider, tracerProvider } = telemetry;
  running.push(instrument({ meterProvider, tracerProvider, ...options }));
  return running.at(-1) as Instrumentation;
}

const PREFIX = "submit_lock.key_prefix";
const sorted = (attributes: object[]) => attributes.map((each) => textOf(each)).sort();
const textOf = (attributes: object) => JSON.stringify(Object.entries(attributes).sort());

/** Waits for the outcomes that come after a test's own calls have ended. */
async function everythingIsTold(): Promise<void> {
  await until(
    async () => {
      const retired = await telemetry.counts("submit_lock.retire.duration");
      return Object.keys(retired).length === 2;
    },
    { what: "both outcomes of a retire", everyMs: 20 },
  );
}

describe("every outcome of a lock", () => {
  test("is a point of a metric with the documented name, unit, buckets and attributes", async () => {
    start({ locks: [openLock({ store: new MemoryStore(), keyPrefix })] });
    await everyOutcome();
    await everythingIsTold();
    const exported = await telemetry.export();
    expect([...exported.keys()].sort()).toEqual(Object.keys(documentedMetrics).sort());
    for (const [name, expected] of Object.entries(documentedMetrics)) {
      const { dataPoints, dataPointType, descriptor, isMonotonic } = exported.get(
        name,
      ) as never as Exported;
      expect({ name, unit: descriptor.unit }).toEqual({ name, unit: expected.unit });
      expect(descriptor.description, name).toMatch(/^[A-Z].* [a-z]+$/);
      const attributes = expected.attributes.map((each) => ({ [PREFIX]: keyPrefix, ...each }));
      expect(sorted(dataPoints.map((point) => point.attributes)), name).toEqual(sorted(attributes));
      expect(dataPointType === DataPointType.HISTOGRAM, name).toBe(expected.kind === "histogram");
      expect(isMonotonic === true, name).toBe(expected.kind === "counter");
      for (const { value } of expected.buckets === undefined ? [] : dataPoints) {
        expect(value.buckets.boundaries, name).toEqual(expected.buckets);
      }
    }
  });

  test("is told in seconds", async () => {
    start();
    const lock = openLock({ store: new MemoryStore() });
    const user = freshUser();
    const lease = await leaseOf(lock, user);
    const endsAt = performance.now() + 60;
    await until(() => performance.now() > endsAt, { what: "60 ms of work" });
    await lock.acquire(user);
    await lease.release();
    const sum = async (name: string) =>
      ((await telemetry.export()).get(name) as never as Exported).dataPoints[0]?.value.sum ?? 0;
    expect(await sum("submit_lock.hold.duration")).toBeGreaterThan(0.059);
    expect(await sum("submit_lock.hold.duration")).toBeLessThan(30);
    // The key has most of the default ttlMs of 10 s before it.
    expect(await sum("submit_lock.contention.remaining")).toBeGreaterThan(1);
    expect(await sum("submit_lock.contention.remaining")).toBeLessThanOrEqual(10);
  });
});

interface Exported {
  readonly descriptor: { readonly description: string; readonly unit: string };
  readonly dataPointType: DataPointType;
  readonly isMonotonic?: boolean;
  readonly dataPoints: {
    readonly attributes: Record<string, unknown>;
    readonly value: { readonly sum: number; readonly buckets: { readonly boundaries: number[] } };
  }[];
}

describe("the size of an export", () => {
  /** Of the locks with a prefix: a lock of an earlier test may still be retiring. */
  const points = async (prefix: string) =>
    [...(await telemetry.export()).values()]
      .flatMap(({ dataPoints }) => dataPoints as { attributes: Record<string, unknown> }[])
      .filter(({ attributes }) => attributes[PREFIX] === prefix).length;

  test("is the same after a thousand users, and tells of none of them", async () => {
    const holder = "pod-7f9c5d4b8";
    const lock = openLock({ store: new MemoryStore(), holder, keyPrefix: "lock:thousand:" });
    start({ locks: [lock] });
    await orders(lock, [freshUser()]);
    const few = await points(lock.keyPrefix);
    const users = Array.from({ length: 1_000 }, freshUser);
    const owners = await orders(lock, users);
    expect(few).toBeGreaterThan(10);
    expect(await points(lock.keyPrefix)).toBe(few);
    const told = JSON.stringify([...(await telemetry.export()).values()]);
    const spans = JSON.stringify(
      telemetry.spans.getFinishedSpans().map(({ attributes, events, name, status }) => {
        return { attributes, events, name, status };
      }),
    );
    expect(spans.length).toBeGreaterThan(users.length);
    for (const text of [told, spans]) {
      expect(text).not.toMatch(/[0-9a-f]{8}-[0-9a-f]{4}-/);
      for (const secret of [...users, ...owners, holder]) expect(text.includes(secret)).toBe(false);
    }
  });

  /** One order of each user, and a second click on it. Returns the owner ids. */
  async function orders(lock: ReturnType<typeof openLock>, users: string[]): Promise<string[]> {
    return await Promise.all(
      users.map(async (user) => {
        const lease = await leaseOf(lock, user);
        await lock.acquire(user);
        await lease.release();
        return lease.ownerId;
      }),
    );
  }
});
