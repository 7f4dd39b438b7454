import { channel } from "node:diagnostics_channel";
import { DiagLogLevel, diag, type MeterProvider, metrics } from "@opentelemetry/api";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { MemoryStore } from "../../../src/index.ts";
import { type InstrumentOptions, instrument } from "../../../src/opentelemetry/index.ts";
import { freshUser } from "../../support/ids.ts";
import { closeLocks, leaseOf, openLock } from "../../support/locks.ts";
import { Telemetry } from "../../support/telemetry.ts";

let telemetry: Telemetry;
beforeEach(() => {
  telemetry = new Telemetry();
});
afterEach(async () => {
  diag.disable();
  metrics.disable();
  await closeLocks();
  await telemetry.stop();
});

const start = (options: InstrumentOptions = {}) => {
  const { meterProvider, tracerProvider } = telemetry;
  return instrument({ meterProvider, tracerProvider, ...options });
};
const names = ["acquire", "release", "complete", "duplicate", "lost", "retire"];
const listened = () =>
  names.filter((name) => channel(`submit-lock:${name}`).hasSubscribers === true);
const prefix = { "submit_lock.key_prefix": "lock:submit:" };

/** One order of a new user. */
async function order(): Promise<void> {
  const lock = openLock({ store: new MemoryStore() });
  await (await leaseOf(lock, freshUser())).release();
}

describe("instrument", () => {
  test("begins with a zero for every counter of a lock that it is given", async () => {
    const running = start({ locks: [openLock({ store: new MemoryStore() })] });
    const losses = await telemetry.counts("submit_lock.lease.losses");
    expect(Object.values(losses)).toEqual(Array(Object.keys(losses).length).fill(0));
    expect(Object.keys(losses).length).toBeGreaterThan(3);
    expect(await telemetry.counts("submit_lock.submission.duplicates")).toEqual({
      [JSON.stringify(prefix)]: 0,
    });
    running.disable();
  });

  test("begins with a zero for a lock that it hears of", async () => {
    const running = start();
    await order();
    expect(Object.values(await telemetry.counts("submit_lock.lease.losses"))).toContain(0);
    running.disable();
  });

  test("tells what the locks hold now, summed where they share a prefix", async () => {
    const locks = [1, 2].map(() => openLock({ store: new MemoryStore() }));
    const running = start({ locks });
    const leases = await Promise.all(locks.map((lock) => leaseOf(lock, freshUser())));
    const now = async (name: string) => Object.values(await telemetry.counts(name));
    expect(await now("submit_lock.lease.count")).toEqual([2]);
    expect((await now("submit_lock.lease.oldest_age"))[0]).toBeGreaterThan(0);
    for (const lease of leases) await lease.release();
    expect(await now("submit_lock.lease.count")).toEqual([0]);
    expect(await now("submit_lock.attempt.count")).toEqual([0]);
    expect(await now("submit_lock.retirement.count")).toEqual([0]);
    running.disable();
  });

  test("uses the global meter provider where none is given", async () => {
    metrics.setGlobalMeterProvider(telemetry.meterProvider);
    const running = instrument();
    await order();
    expect(Object.values(await telemetry.counts("submit_lock.hold.duration"))).toEqual([1]);
    running.disable();
  });

  test("makes no spans where none are wanted", async () => {
    const running = start({ spans: false });
    await order();
    expect(telemetry.spans.getFinishedSpans()).toEqual([]);
    running.disable();
  });

  test("disable ends it: nobody listens and nothing is told any more", async () => {
    const stats = vi.fn(() => ({
      attempting: 0,
      held: 1,
      retiring: 0,
      waiting: 0,
      oldestHeldMs: 5,
    }));
    expect(listened()).toEqual([]);
    const running = start({ locks: [{ keyPrefix: "lock:submit:", stats }] });
    expect(listened()).toEqual(names);
    await telemetry.export();
    running.disable();
    running.disable();
    expect(listened()).toEqual([]);
    stats.mockClear();
    const before = await telemetry.counts("submit_lock.acquire.duration");
    await order();
    expect(await telemetry.counts("submit_lock.acquire.duration")).toEqual(before);
    expect(stats).not.toHaveBeenCalled();
  });

  test("an SDK that throws harms no order, and is told once a channel", async () => {
    const told: unknown[][] = [];
    const ignore = () => {};
    const error = (...line: unknown[]) => void told.push(line);
    const logger = { error, warn: ignore, info: ignore, debug: ignore, verbose: ignore };
    diag.setLogger(logger, DiagLogLevel.ERROR);
    const broken = new Error("the instrument is broken");
    const record = () => {
      throw broken;
    };
    const meter = {
      createHistogram: () => ({ record }),
      createCounter: () => ({ add: () => {} }),
      createUpDownCounter: () => ({ add: () => {} }),
    };
    const meterProvider = { getMeter: () => meter } as unknown as MeterProvider;
    const running = start({ meterProvider, spans: false });
    await order();
    await order();
    expect(told).toEqual([
      ["the instrumentation of submit-lock:acquire failed", broken],
      ["the instrumentation of submit-lock:release failed", broken],
    ]);
    running.disable();
  });

  test.each([
    [{ lock: {} }, 'got the unknown option "lock"'],
    [{ locks: {} }, "locks: expected an array of SubmitLock, got an object"],
    [{ locks: [{}] }, "locks: expected an array of SubmitLock"],
    [{ spans: "no" }, 'spans: expected a boolean, got "no"'],
    [{ meterProvider: {} }, "meterProvider: expected a MeterProvider, got an object"],
    [{ tracerProvider: 1 }, "tracerProvider: expected a TracerProvider, got 1"],
  ])("refuses %j", (options, message) => {
    expect(() => instrument(options as never)).toThrow(message);
    expect(listened()).toEqual([]);
  });
});
