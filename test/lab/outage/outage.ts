import { setTimeout as sleep } from "node:timers/promises";
import { freshUser } from "../../support/ids.ts";
import { startServer } from "../../support/server-process.ts";
import { until } from "../../support/until.ts";
import { type ClientName, labClients } from "../client-name.ts";
import { Anonymous } from "../service/anonymous.ts";
import { now, type Vitals } from "../service/protocol.ts";
import { type Service, startService } from "../service/service.ts";

/** `killed`: connections are refused. `silent`: they are accepted and nothing is answered. */
export type Away = "killed" | "silent";

interface OutageOptions {
  readonly binary: string;
  readonly away: Away;
  readonly seconds: number;
  readonly perSecond: number;
  /** @defaultValue the first of the lab */
  readonly client?: ClientName;
}

/** What customers saw of an outage, and what it cost the service. Times are milliseconds. */
export interface OutageResult {
  readonly away: Away;
  readonly submits: number;
  /** Answers other than 503, of submits that were asked and answered while Redis was away. */
  readonly others: number;
  readonly unanswered: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly maxMs: number;
  /** Heap and external memory after a garbage collection: before, in the outage, and after it. */
  readonly beforeMb: number;
  readonly duringMb: readonly number[];
  readonly afterMb: number;
  /** From Redis being there again to the first order that was placed. */
  readonly recoveryMs: number;
  readonly uncaught: readonly string[];
  /** The slowest answer that had nothing to do with Redis. */
  readonly httpMs: number;
}

export const acquireTimeoutMs = 1_000;
/** The timers of a lock are coarse, and a round trip is none at all. */
const onTopMs = 50;
/** The turns that a busy loop keeps a 503 waiting for: before its time-out, at it, and after it. */
const httpTimes = 3;

/** A real Express server under a steady stream of submits, each of another user. */
export async function outage(options: OutageOptions): Promise<OutageResult> {
  const server = await startServer(options.binary);
  let service: Service | undefined;
  try {
    service = await startService({
      framework: "Express 5, guard.protect(handler)",
      redisClient: options.client ?? labClients()[0],
      target: { kind: "single", port: server.port },
      times: { acquireTimeoutMs },
    });
    return await observe(options, server, service);
  } finally {
    await service?.kill();
    await server.stop();
  }
}

async function observe(
  { away, seconds, perSecond }: OutageOptions,
  server: Awaited<ReturnType<typeof startServer>>,
  service: Service,
): Promise<OutageResult> {
  const stream = new Stream(service, perSecond);
  // Code that runs often is compiled first; what that costs is not the outage's.
  await until(() => stream.placed > 2 * perSecond, { what: "orders to flow", boundMs: 30_000 });
  await stream.pause();
  const before = await service.vitals();
  const anonymous = new Anonymous([service]);

  const downAt = now();
  if (away === "killed") await server.kill();
  else server.pause();
  stream.go();
  const during: Vitals[] = [];
  const everyMs = Math.min(3_000, (seconds * 1_000) / 5);
  while (now() < downAt + seconds * 1_000) {
    await sleep(everyMs);
    during.push(await service.vitals());
    service.forget();
  }
  const upAt = now();
  const httpMs = anonymous.stop();
  if (away === "killed") await server.restart();
  else server.resume();
  const backAt = now();
  const first = await until(
    () => stream.submits.find((one) => one.status === 201 && one.answeredAt > upAt),
    {
      what: "an order after the outage",
      boundMs: 30_000,
    },
  );
  await sleep(1_000);
  await stream.stop();
  const after = await service.vitals();

  const inside = stream.submits.filter(
    ({ askedAt, answeredAt }) => askedAt >= downAt && answeredAt < upAt,
  );
  const took = inside.map(({ askedAt, answeredAt }) => answeredAt - askedAt).sort((a, b) => a - b);
  const percentile = (share: number) => took[Math.floor(share * (took.length - 1))] ?? Number.NaN;
  return {
    away,
    submits: inside.length,
    others: inside.filter(({ status }) => status !== 503).length,
    unanswered: stream.underWay,
    p50Ms: percentile(0.5),
    p99Ms: percentile(0.99),
    maxMs: percentile(1),
    beforeMb: megabytes(before),
    duringMb: during.map(megabytes),
    afterMb: megabytes(after),
    recoveryMs: Math.max(0, first.answeredAt - backAt),
    uncaught: service.uncaught,
    httpMs,
  };
}

function megabytes({ heapBytes, externalBytes }: Vitals): number {
  return (heapBytes + externalBytes) / 1e6;
}

interface Submit {
  readonly askedAt: number;
  readonly answeredAt: number;
  readonly status: number;
}

/** Submits at a rate, whether or not the last ones were answered. */
class Stream {
  readonly submits: Submit[] = [];
  placed = 0;
  underWay = 0;
  readonly #service: Service;
  readonly #perSecond: number;
  #timer: NodeJS.Timeout | undefined;

  constructor(service: Service, perSecond: number) {
    this.#service = service;
    this.#perSecond = perSecond;
    this.go();
  }

  go(): void {
    const from = now();
    let sent = 0;
    this.#timer = setInterval(() => {
      const due = Math.floor(((now() - from) * this.#perSecond) / 1_000);
      // Somebody who was held up does not send everything at once.
      for (const last = Math.min(due, sent + this.#perSecond / 20); sent < last; sent++) {
        void this.#submit();
      }
      sent = due;
    }, 10);
  }

  /** No further submits, until `go`. Resolves when all have been answered. */
  async pause(): Promise<void> {
    clearInterval(this.#timer);
    await until(() => this.underWay === 0, { what: "all answers" });
  }

  /** No further submits. Those under way have some seconds left. */
  async stop(): Promise<void> {
    await this.pause().catch(() => {});
  }

  async #submit(): Promise<void> {
    const askedAt = now();
    this.underWay++;
    const headers = { "x-user": freshUser(), "x-work-ms": "5" };
    const status = await this.#service.client.call({ headers }).reply.then(
      (reply) => reply.status,
      () => 0,
    );
    this.underWay--;
    if (status === 201) this.placed++;
    this.submits.push({ askedAt, answeredAt: now(), status });
  }
}

/** What was to be seen and was not. Empty when all is well. */
export function misses(result: OutageResult, slackMs = onTopMs): string[] {
  const missed: string[] = [];
  const expect = (met: boolean, what: string): void => {
    if (!met) missed.push(what);
  };
  expect(result.submits > 0, "nothing was submitted");
  expect(result.others === 0, `${result.others} answers that are no 503`);
  expect(result.unanswered === 0, `${result.unanswered} submits without an answer`);
  const most = acquireTimeoutMs + slackMs + httpTimes * result.httpMs;
  expect(result.maxMs <= most, `an answer took ${Math.round(result.maxMs)} ms`);
  const growth = Math.max(...result.duringMb) - result.beforeMb;
  expect(growth < 20, `the heap grew by ${growth.toFixed(1)} MB`);
  expect(slopeMb(result) < 4, `the heap goes on growing, by ${slopeMb(result).toFixed(1)} MB`);
  expect(result.recoveryMs <= 5_000, `the first order came after ${result.recoveryMs} ms`);
  for (const rejection of result.uncaught) missed.push(`nobody caught: ${rejection}`);
  return missed;
}

/** How much more the second half of the outage held than the first, in its median sample. */
export function slopeMb({ duringMb }: OutageResult): number {
  const half = Math.floor(duringMb.length / 2);
  return median(duringMb.slice(half)) - median(duringMb.slice(0, half));
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}
