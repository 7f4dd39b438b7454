import { setTimeout as sleep } from "node:timers/promises";
import { freshUser } from "../../support/ids.ts";
import { type RedisServer, startServer } from "../../support/server-process.ts";
import { until } from "../../support/until.ts";
import {
  type ClientName,
  labClients,
  Misses,
  rowOf,
  runLaboratory,
  setting,
} from "../laboratory.ts";
import { Anonymous, type Click, click } from "./clicks.ts";
import { megabytes, now, type Vitals } from "./protocol.ts";
import { type Service, startService } from "./service.ts";

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
type OutageResult = Awaited<ReturnType<typeof observe>>;

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
  server: RedisServer,
  service: Service,
) {
  const clicks: Click[] = [];
  let underWay = 0;
  const submit = async () => {
    underWay++;
    clicks.push(await click(service, { user: freshUser(), workMs: 5 }));
    underWay--;
  };
  /** Submits at a rate, whether or not the last ones were answered. */
  function stream(): NodeJS.Timeout {
    const from = now();
    let sent = 0;
    return setInterval(() => {
      const due = Math.floor(((now() - from) * perSecond) / 1_000);
      // Somebody who was held up does not send everything at once.
      for (const last = Math.min(due, sent + perSecond / 20); sent < last; sent++) void submit();
      sent = due;
    }, 10);
  }
  const isQuiet = () => until(() => underWay === 0, { what: "all answers" });
  const isPlaced = ({ status }: Click) => status === 201;

  let submits = stream();
  // Code that runs often is compiled first; what that costs is not the outage's.
  const flows = () => clicks.filter(isPlaced).length > 2 * perSecond;
  await until(flows, { what: "orders to flow", boundMs: 30_000 });
  clearInterval(submits);
  await isQuiet();
  const beforeMb = megabytes(await service.vitals());
  const anonymous = new Anonymous([service]);

  const downAt = now();
  if (away === "killed") await server.kill();
  else server.pause();
  submits = stream();
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
  const first = await until(() => clicks.find((one) => isPlaced(one) && one.answeredAt > upAt), {
    what: "an order after the outage",
    boundMs: 30_000,
  });
  await sleep(1_000);
  clearInterval(submits);
  await isQuiet().catch(() => {});
  const afterMb = megabytes(await service.vitals());

  const inside = clicks.filter((each) => each.askedAt >= downAt && each.answeredAt < upAt);
  return {
    /** Each answer that was asked for and given while Redis was away, the fastest first. */
    tookMs: inside.map((each) => each.answeredAt - each.askedAt).sort((a, b) => a - b),
    others: inside.filter(({ status }) => status !== 503).length,
    unanswered: underWay,
    /** Heap and external memory after a garbage collection. */
    beforeMb,
    duringMb: during.map(megabytes),
    afterMb,
    /** From Redis being there again to the first order that was placed. */
    recoveryMs: Math.max(0, first.answeredAt - backAt),
    uncaught: service.uncaught,
    /** The slowest answer that had nothing to do with Redis. */
    httpMs,
  };
}

/** What was to be seen and was not. Empty when all is well. */
export function misses(result: OutageResult, slackMs = onTopMs): string[] {
  const { beforeMb, duringMb, httpMs, others, recoveryMs, tookMs, unanswered, uncaught } = result;
  const misses = new Misses();
  misses.expect(tookMs.length > 0, "nothing was submitted");
  misses.expect(others === 0, `${others} answers that are no 503`);
  misses.expect(unanswered === 0, `${unanswered} submits without an answer`);
  const maxMs = tookMs.at(-1) ?? 0;
  const most = acquireTimeoutMs + slackMs + httpTimes * httpMs;
  misses.expect(maxMs <= most, `an answer took ${Math.round(maxMs)} ms`);
  const growth = Math.max(...duringMb) - beforeMb;
  misses.expect(growth < 20, `the heap grew by ${growth.toFixed(1)} MB`);
  const slope = slopeMb(result);
  misses.expect(slope < 4, `the heap goes on growing, by ${slope.toFixed(1)} MB`);
  misses.expect(recoveryMs <= 5_000, `the first order came after ${recoveryMs} ms`);
  misses.expectNone(uncaught, "nobody caught: ");
  return misses.found;
}

/**
 * How much more the second half of the outage held than the first, in its least sample: what leaks is
 * in each sample, and the submits that a late machine has under way are in some.
 */
function slopeMb({ duringMb }: OutageResult): number {
  const half = Math.floor(duringMb.length / 2);
  return Math.min(...duringMb.slice(half)) - Math.min(...duringMb.slice(0, half));
}

/**
 * `npm run lab -- outage`: 500 submits a second for 60 s while Redis is away, once killed and once
 * silent. `OUTAGE_SECONDS` and `OUTAGE_RATE` say otherwise.
 */
export async function run(): Promise<void> {
  const seconds = setting("OUTAGE_SECONDS", 60);
  const perSecond = setting("OUTAGE_RATE", 500);
  const rows: Record<string, object> = {};
  const what = `${perSecond} submits a second for ${seconds} s, acquireTimeoutMs ${acquireTimeoutMs}`;
  await runLaboratory(what, async (binary) => {
    const missed: string[] = [];
    for (const away of ["killed", "silent"] as const) {
      const result = await outage({ binary, away, seconds, perSecond });
      rows[away] = row(result);
      const { afterMb, beforeMb, duringMb } = result;
      console.log(`\nRedis ${away}. Heap and external memory after gc, in MB:`);
      console.log(`  ${[beforeMb, ...duringMb, afterMb].map((mb) => mb.toFixed(1)).join(" ")}`);
      missed.push(...misses(result).map((miss) => `Redis ${away}: ${miss}`));
    }
    console.table(rows);
    return missed;
  });
}

function row({ tookMs, duringMb, ...result }: OutageResult) {
  const percentile = (share: number) => tookMs[Math.floor(share * (tookMs.length - 1))] ?? 0;
  const times = { p50Ms: percentile(0.5), p99Ms: percentile(0.99), maxMs: percentile(1) };
  return rowOf({ answers: tookMs.length, ...times, ...result, mostMb: Math.max(...duringMb) });
}
