import { subscribe } from "node:diagnostics_channel";
import { createHistogram } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { RedisStore, type SubmissionAttempt, SubmitLock } from "../../../src/index.ts";
import { until } from "../../support/until.ts";
import { labClients } from "../laboratory.ts";
import { connect } from "../shop/connect.ts";
import { now } from "../shop/protocol.ts";

export interface LoadSettings {
  readonly ports: readonly number[];
  readonly isCluster: boolean;
  readonly index: number;
  readonly clients: number;
  readonly ackReplicas: number | undefined;
}

/** Orders at a given rate, whether or not the ones before are answered, until the process is told. */
export interface Load {
  readonly perSecond: number;
  readonly holdMs?: number;
  /** All of one user. */
  readonly oneUser?: true;
  /** Without a record. */
  readonly isLockAlone?: true;
}

export type ToLoad =
  | { readonly load: Load }
  | { readonly stops: true }
  /** Clicks each order again that was completed between the two times. */
  | { readonly againFrom: number; readonly to: number }
  /** So many callers of `once` for one submission, or of `withLock` for one or as many users. */
  | {
      readonly burst: number;
      readonly of: "submission" | "user" | "users";
      readonly waitMs: number;
    };

export type Result = Record<string, number>;
export type FromLoad = { readonly result: Result };

const settings = JSON.parse(process.argv[2] ?? "") as LoadSettings;
const { ackReplicas, clients, index, isCluster, ports } = settings;
process.once("disconnect", () => process.exit());

const single = { kind: "single", port: ports[0] ?? 0 } as const;
const target = isCluster ? ({ kind: "cluster", ports } as const) : single;
const locks = Array.from({ length: clients }, () => {
  const { redis } = connect(target, labClients()[0]);
  return new SubmitLock({ store: new RedisStore(redis, { ackReplicas }) });
});

let counts: Result = {};
const add = (name: string, count = 1) => {
  counts[name] = (counts[name] ?? 0) + count;
};
subscribe("submit-lock:lost", () => add("lost leases"));
subscribe("submit-lock:acquire", (message) => {
  const { confirmed, copies } = message as { confirmed: boolean; copies: number };
  if (confirmed) add("confirmed");
  if (copies > 1) add("sent again", copies - 1);
});

const histogramsOf = () => {
  return { acquire: createHistogram(), complete: createHistogram(), release: createHistogram() };
};
let histograms = histogramsOf();
async function timed<Value>(kind: keyof typeof histograms, work: Promise<Value>): Promise<Value> {
  const from = now();
  const value = await work;
  histograms[kind].record(Math.max(1, Math.round(1e6 * (now() - from))));
  return value;
}

const headers = { "content-type": "application/json" };
const answer = { status: 201, headers, body: "x".repeat(300) };
const completed: { readonly order: number; readonly at: number }[] = [];
let orders = 0;

const lockOf = (order: number) => locks[order % locks.length] as SubmitLock;
const userOf = (order: number) => `${index}-${order}`;
const asOrder = { submission: { id: "order", retainMs: 600_000 } };

async function one({ holdMs = 0, isLockAlone, oneUser }: Load): Promise<void> {
  const order = orders++;
  const [lock, user] = [lockOf(order), oneUser ? "bot" : userOf(order)];
  const asked = isLockAlone ? lock.acquire(user) : lock.acquire(user, asOrder);
  const attempt: SubmissionAttempt = await timed("acquire", asked);
  add(attempt.outcome);
  if (attempt.outcome !== "acquired") return;
  if (holdMs > 0) await sleep(holdMs);
  if (isLockAlone) return void (await timed("release", attempt.lease.release()));
  add(await timed("complete", attempt.lease.complete(answer)));
  completed.push({ order, at: now() });
}

let isStopped = false;
async function goOn(load: Load): Promise<void> {
  const underWay = new Set<Promise<void>>();
  [counts, histograms, isStopped] = [{}, histogramsOf(), false];
  const before = process.cpuUsage();
  for (let due = now(); !isStopped; await sleep(1)) {
    for (; due <= now(); due += (1_000 / load.perSecond) * 2 * Math.random()) {
      const order = one(load).then(() => void underWay.delete(order));
      underWay.add(order);
    }
  }
  await Promise.all(underWay);
  const { system, user } = process.cpuUsage(before);
  for (const [kind, histogram] of Object.entries(histograms)) {
    if (histogram.count === 0) continue;
    for (const share of [50, 99, 99.9, 100]) {
      counts[`${kind} p${share}`] = histogram.percentile(share) / 1e6;
    }
  }
  tell({ ...counts, "client µs": system + user });
}

async function again(from: number, to: number): Promise<void> {
  const asked = completed.filter(({ at }) => at >= from && at <= to);
  counts = { "asked again": asked.length };
  const click = async (order: number): Promise<void> => {
    const attempt = await lockOf(order).acquire(userOf(order), asOrder);
    if (attempt.outcome === "completed") return;
    if (attempt.outcome === "acquired") {
      add("run twice");
      return add(await attempt.lease.complete(answer));
    }
    await sleep(100);
    await click(order);
  };
  for (let at = 0; at < asked.length; at += 200) {
    await Promise.all(asked.slice(at, at + 200).map(({ order }) => click(order)));
  }
  tell(counts);
}

async function burst({ burst, of, waitMs }: Extract<ToLoad, { burst: number }>): Promise<void> {
  counts = {};
  const caller = async (_: unknown, at: number) => {
    const submission = { id: "one", retainMs: 10_000 };
    const settled =
      of === "submission"
        ? locks[0]?.once("all", submission, () => sleep(waitMs / 2), { waitMs })
        : locks[0]?.withLock(of === "user" ? "all" : `${at}`, { waitMs }, () => sleep(2));
    await settled?.then(
      () => add("answered"),
      ({ code }) => add(code),
    );
  };
  await Promise.all(Array.from({ length: burst }, caller));
  tell(counts);
}

const tell = (result: Result) => void process.send?.({ result } satisfies FromLoad);
process.on("message", (message: ToLoad) => {
  if ("load" in message) void goOn(message.load);
  else if ("stops" in message) isStopped = true;
  else if ("againFrom" in message) void again(message.againFrom, message.to);
  else void burst(message);
});
const areReady = () => Promise.all(locks.map((lock) => lock.check())).catch(() => false);
await until(areReady, { what: "Redis", boundMs: 60_000 });
tell({});
