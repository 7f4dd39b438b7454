import { setTimeout as sleep } from "node:timers/promises";
import { RedisStore, SubmitLock } from "../../../src/index.ts";
import { ioredis6, untilReady } from "../../support/clients.ts";
import { startServer } from "../../support/server-process.ts";
import { until } from "../../support/until.ts";
import { labClients } from "../client-name.ts";
import { overlapping } from "../ledger.ts";
import { click, type Order } from "../service/clicks.ts";
import { Misses, runLaboratory, seedOf, setting, writeHistory } from "../service/laboratory.ts";
import type { Settings } from "../service/protocol.ts";
import { type Service, startService } from "../service/service.ts";
import { Random } from "../simulation/time/random.ts";

interface CallsOptions {
  /** The Redis server. */
  readonly binary: string;
  readonly seed: number;
  /** Each is called ten times; two belong to one user. */
  readonly submissions: number;
  /** How many processes are killed at most, one after the other, until every call has a value. */
  readonly kills: number;
}

interface Value {
  readonly run: string;
  readonly replayed: boolean;
}

type CallsResult = Awaited<ReturnType<typeof playCalls>>;

const processes = 4;
const callsEach = 10;
const maxWorkMs = 3_000;
/** Between the effect of the work and its return: wide enough that some kills fall into it. */
const maxGapMs = 300;
const pauseBetweenKillsMs = [200, 1_200] as const;
// A busy machine keeps these; a process that was killed holds its users up for ttlMs.
const times = { ttlMs: 6_000, acquireTimeoutMs: 3_000, commandTimeoutMs: 1_000 } as const;

/**
 * All calls at once, on four processes and one Redis, while processes are killed at random. A call
 * without a value is made again, by another process, until it has one.
 */
export async function playCalls(options: CallsOptions) {
  const server = await startServer(options.binary);
  const client = ioredis6.connect(server.port);
  await untilReady(client);
  const lock = new SubmitLock({ store: new RedisStore(client), ...times });
  const services: Service[] = [];
  try {
    const played = await play(options, services, {
      framework: "Express 5, guard.protect(handler)",
      redisClient: labClients()[0],
      target: { kind: "single", port: server.port },
      times,
      idempotency: true,
    });
    const holdings = services.flatMap((service) => service.holdings);
    const dead = services.filter((service) => service.ended);
    /** Runs of processes that were killed. */
    const killed = new Set(dead.flatMap((service) => service.holdings));
    return { ...played, ...(await keptBy(lock, played.calls)), holdings, killed };
  } finally {
    await Promise.all(services.map((service) => service.kill()));
    await lock.close({ timeoutMs: 0 });
    client.disconnect();
    await server.stop();
  }
}

async function play(options: CallsOptions, services: Service[], settings: Settings) {
  const random = new Random(options.seed);
  const calls = Array.from({ length: callsEach * options.submissions }, (_, call): Order => {
    const number = call % options.submissions;
    const workMs = random.between(0, maxWorkMs);
    const gapMs = Math.floor(random.between(0, maxGapMs));
    const headers = { "x-wait-ms": "10000", "x-gap-ms": `${gapMs}` };
    const user = `user-${number >> 1}`;
    return { path: "/once", user, order: `order-${number}`, workMs, headers };
  });
  const values = new Map<Order, Value>();
  /** Calls that were made anew, by what they were told; `killed`: their process was. */
  const again: Record<string, number> = {};
  /** What no call should be told. */
  const others: string[] = [];
  const living = new Set<Service>();
  const start = async () => {
    const service = await startService(settings);
    services.push(service);
    living.add(service);
  };
  const isOver = () => values.size + others.length >= calls.length;

  async function make(call: Order): Promise<void> {
    for (;;) {
      const service = random.pick([...living]);
      const { reply } = await click(service, call);
      const { error = "killed", ...value } = JSON.parse(reply?.body ?? "{}");
      if (reply?.status === 200) return void values.set(call, value);
      const mayCallAgain = /^(in flight|has ended|contended)$|UNAVAILABLE the/.test(error);
      // Without a reply its process was killed, or else it had no reason not to answer.
      if (!(mayCallAgain || (reply === undefined && !living.has(service)))) {
        return void others.push(error);
      }
      again[error] = (again[error] ?? 0) + 1;
      await sleep(random.between(50, 500));
    }
  }

  await Promise.all(Array.from({ length: processes }, start));
  // As fast as connections can be opened.
  for (const call of calls) setTimeout(make, random.between(0, calls.length / 5), call);
  const successors: Promise<void>[] = [];
  let kills = 0;
  while (kills < options.kills && !isOver()) {
    await sleep(random.between(...pauseBetweenKillsMs));
    // Two at least live on, until a successor has started.
    if (living.size < 3) continue;
    const victim = random.pick([...living]);
    living.delete(victim);
    kills++;
    await victim.kill();
    successors.push(start());
  }
  await Promise.all(successors);
  await until(isOver, { what: "every call to have a value", boundMs: 90_000 });
  return { calls, values, again, others, kills };
}

async function keptBy(lock: SubmitLock, calls: readonly Order[]) {
  /** The run whose value was kept, by submission. */
  const kept = new Map<string, string>();
  /** Submissions without a record, and users whose lock is still held. */
  const left: string[] = [];
  const users = new Map(calls.map(({ order = "", user }) => [order, user]));
  for (const [id, user] of users) {
    const found = await lock.lookUp(user, { submission: { id } });
    const value = found.outcome === "completed" ? found.answer.returned?.value : undefined;
    if (value === undefined) left.push(`${id} is ${found.outcome}`);
    else kept.set(id, (value as { run: string }).run);
  }
  for (const user of new Set(users.values())) {
    const { state } = await lock.inspect(user);
    if (state !== "free") left.push(`the lock of ${user} is ${state}`);
  }
  return { kept, left };
}

/** How often each thing became of a run: its value was kept, or why not. */
function fatesOf({ holdings, kept, killed }: CallsResult): Record<string, number> {
  const fates: Record<string, number> = {};
  for (const holding of holdings) {
    const { isDone, lost, order = "", ownerId } = holding;
    // It had its effect, and runs again for want of a record: that needs a reason.
    const because = lost ? "lost" : killed.has(holding) ? "unrecorded" : "unexplained";
    const fate = kept.get(order) === ownerId ? "kept" : isDone ? because : "interrupted";
    fates[fate] = (fates[fate] ?? 0) + 1;
  }
  return fates;
}

export function replayedOf({ values }: CallsResult): number {
  return [...values.values()].filter(({ replayed }) => replayed).length;
}

/** What was not as it should be. */
export function misses(result: CallsResult): string[] {
  const { calls, holdings, kept, left, others, values } = result;
  const misses = new Misses();
  misses.expectNone(others, "a call was told: ");
  const differing = calls.filter((call) => values.get(call)?.run !== kept.get(call.order ?? ""));
  misses.expectNone(
    differing.map(({ order }) => `${order}`),
    "not every caller has the value that was kept: ",
  );
  const { unexplained = 0 } = fatesOf(result);
  misses.expect(unexplained === 0, `${unexplained} second runs without a kill`);
  misses.expectNone(left);
  misses.expect(values.size === calls.length, `${calls.length - values.size} calls have no value`);
  const overlaps = overlapping(holdings).length;
  misses.expect(overlaps === 0, `${overlaps} runs overlapped under a valid lease`);
  return misses.found;
}

/**
 * `npm run lab -- calls`: 10 000 concurrent calls of 1 000 submissions, over four processes of which
 * up to 20 are killed. `CALLS_SUBMISSIONS`, `CALLS_KILLS` and `CALLS_SEED` say otherwise;
 * `--history FILE` keeps who held what.
 */
export async function run(): Promise<void> {
  const submissions = setting("CALLS_SUBMISSIONS", 1_000);
  const kills = setting("CALLS_KILLS", 20);
  const seed = seedOf("CALLS_SEED");
  const what = `${callsEach * submissions} calls with CALLS_SEED=${seed}`;
  await runLaboratory(what, async (binary) => {
    const result = await playCalls({ binary, seed, submissions, kills });
    console.table({ ...result.again });
    console.table({ killed: result.kills, replayed: replayedOf(result), ...fatesOf(result) });
    writeHistory(result.holdings);
    return misses(result);
  });
}
