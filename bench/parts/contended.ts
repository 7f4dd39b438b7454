import { startServer } from "../../test/support/server-process.ts";
import { atLeast, type Findings, rounds, seconds } from "../part.ts";
import {
  checkStatus,
  type LoadResult,
  nameOf,
  type Route,
  routes,
  startLoad,
  startRoute,
  warmAgain,
  warmUp,
} from "../route/processes.ts";
import { Observer } from "../server-stats.ts";
import { medianOf, number, ratioOf, spreadText, table, turns } from "../statistics.ts";

const connections = 64;
const user = "impatient";

/** One user who hammers while an order of theirs is under way: how fast everybody else is told no. */
export async function contended(binary: string): Promise<Findings> {
  const redis = await startServer(binary);
  const observer = new Observer(redis.port);
  await observer.redis.set(`lock:submit:${user}`, "somebody else", "PX", 3_600_000);
  const load = await startLoad();
  const locked = routes.filter(({ variant }) => !["bare", "ping", "scripts"].includes(variant));
  const servers = await Promise.all(locked.map((each) => startRoute(each, redis.port)));
  const results = new Map<Route, LoadResult[]>(locked.map((each) => [each, []]));
  for (const { hello } of servers) await warmUp(load, { port: hello.port, connections, user });
  for (let round = 0; round < rounds; round++) {
    for (const each of turns(locked, round)) {
      const port = servers[locked.indexOf(each)]?.hello.port as number;
      const job = { port, connections, seconds, user };
      await warmAgain(load, job);
      const result = checkStatus(await load.run(job), 409);
      results.get(each)?.push(result);
    }
  }
  observer.close();
  await Promise.all([load.stop(), ...servers.map((server) => server.stop())]);
  await redis.stop();

  const rates = (each: Route): number[] =>
    (results.get(each) ?? []).map(({ requestsPerSecond }) => requestsPerSecond);
  const handWritten = ({ framework }: Route): Route =>
    locked.find((it) => it.framework === framework && it.variant === "hand-written") as Route;
  const relative = (each: Route) => ratioOf(rates(each), rates(handWritten(each)));
  const rows = locked.map((each) => [
    nameOf(each),
    number(medianOf(rates(each))),
    spreadText(relative(each)),
    number(medianOf((results.get(each) ?? []).map(({ p50Ms }) => p50Ms)), 2),
    number(medianOf((results.get(each) ?? []).map(({ p99Ms }) => p99Ms)), 2),
  ]);
  const head = ["route", "409s a second", "hand-written = 1.00", "p50 ms", "p99 ms"];
  return {
    text: `## The contended path

One user asks over ${connections} connections while the lock is held by somebody else: every answer is a 409. The hand-written one sends a line of JSON, submit-lock a problem document of RFC 9457 with \`Retry-After\`.

${table(head, rows)}`,
    targets: locked
      .filter(({ variant }) => variant !== "hand-written")
      .map((each) => {
        const ratio = relative(each);
        const measure = `409s a second against hand-written: ${nameOf(each)}`;
        return atLeast(measure, 1, ratio.median, spreadText(ratio));
      }),
  };
}
