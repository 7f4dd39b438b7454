import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { RedisStore, SubmitLock } from "../../../src/index.ts";
import { Child } from "../../support/child.ts";
import { ioredis6, untilReady } from "../../support/clients.ts";
import { startServer } from "../../support/server-process.ts";
import { until } from "../../support/until.ts";
import { Ledger, overlapping } from "../ledger.ts";
import { now } from "../service/protocol.ts";
import { Random } from "../simulation/time/random.ts";
import type { Call, CallerSettings, FromCaller, Note } from "./caller-process.ts";

export interface CallsOptions {
  /** The Redis server. */
  readonly binary: string;
  readonly seed: number;
  /** Each is called ten times; two belong to one user. */
  readonly submissions: number;
  /** How many processes are killed at most, one after the other, until every call has a value. */
  readonly kills: number;
}

export interface CallsResult {
  readonly calls: number;
  readonly kills: number;
  /** Calls that were made anew, by what they were told; `killed`: their process was. */
  readonly again: Readonly<Record<string, number>>;
  /** What no call should be told. */
  readonly others: readonly string[];
  readonly fresh: number;
  readonly replayed: number;
  /** Submissions whose callers have more than one value, or another one than the record. */
  readonly differing: readonly string[];
  /** Runs of one user that were there at once, each under a valid lease. */
  readonly overlaps: number;
  /** Runs whose process was killed before their effect. */
  readonly interrupted: number;
  /** Runs that had their effect, and whose process was killed before the record: they ran twice. */
  readonly unrecorded: number;
  /** Runs that had their effect and lost their lease, and were not recorded. */
  readonly lost: number;
  /** Second runs without such a reason. */
  readonly unexplained: readonly string[];
  /** Submissions without a record, and users whose lock is still held. */
  readonly left: readonly string[];
}

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
export async function playCalls(options: CallsOptions): Promise<CallsResult> {
  const server = await startServer(options.binary);
  const folder = mkdtempSync(join(tmpdir(), "submit-lock-calls-"));
  const client = ioredis6.connect(server.port);
  await untilReady(client);
  const lock = new SubmitLock({ store: new RedisStore(client), ...times });
  const play = new Play(options, server.port, folder);
  try {
    await play.start();
    await play.toTheEnd();
    return await resultOf(play, lock);
  } finally {
    await play.stop();
    await lock.close({ timeoutMs: 0 });
    client.disconnect();
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

class Play {
  readonly calls: readonly Call[];
  /** The value and the origin of each call that has one. */
  readonly values = new Map<number, { run: string; replayed: boolean }>();
  readonly again: Record<string, number> = {};
  readonly others: string[] = [];
  /** Every process, also those that were killed. */
  readonly callers: Caller[] = [];
  readonly #options: CallsOptions;
  readonly #port: number;
  readonly #folder: string;
  readonly #random: Random;
  /** The process that each call without a value was given to. */
  readonly #madeBy = new Map<number, Caller>();

  constructor(options: CallsOptions, port: number, folder: string) {
    this.#options = options;
    this.#port = port;
    this.#folder = folder;
    this.#random = new Random(options.seed);
    this.calls = Array.from({ length: callsEach * options.submissions }, (_, call) => {
      const number = call % options.submissions;
      const user = `user-${number >> 1}`;
      const workMs = Math.floor(this.#random.between(0, maxWorkMs));
      const gapMs = Math.floor(this.#random.between(0, maxGapMs));
      return { call, user, submission: `order-${number}`, workMs, gapMs, waitMs: 10_000 };
    });
  }

  async start(): Promise<void> {
    await Promise.all(Array.from({ length: processes }, () => this.#startCaller()));
    for (const call of this.calls) this.#make(call);
  }

  /** Resolves when every call has a value. */
  async toTheEnd(): Promise<void> {
    const successors: Promise<void>[] = [];
    while (this.kills < this.#options.kills && !this.#isOver) {
      await sleep(this.#random.between(...pauseBetweenKillsMs));
      // Two at least live on, until a successor has started.
      if (this.#living.length < 3) continue;
      await this.#killOne();
      successors.push(this.#startCaller());
    }
    await Promise.all(successors);
    await until(() => this.#isOver, { what: "every call to have a value", boundMs: 90_000 });
  }

  async stop(): Promise<void> {
    await Promise.all(this.#living.map((caller) => caller.kill()));
  }

  get #isOver(): boolean {
    return this.values.size + this.others.length >= this.calls.length;
  }

  get kills(): number {
    return this.callers.length - this.#living.length;
  }

  get #living(): Caller[] {
    return this.callers.filter(({ killedAt }) => killedAt === undefined);
  }

  async #startCaller(): Promise<void> {
    const log = join(this.#folder, `caller-${this.callers.length}-${Math.random()}`);
    const settings = { port: this.#port, log, times };
    const caller = await startCaller(settings, (reply) => {
      const call = this.calls[reply.call] as Call;
      this.#madeBy.delete(reply.call);
      if ("run" in reply) this.values.set(reply.call, reply);
      else if (/^(in flight|has ended|contended)$|UNAVAILABLE the/.test(reply.error)) {
        this.#makeAgain(call, reply.error);
      } else this.others.push(reply.error);
    });
    this.callers.push(caller);
  }

  #make(call: Call): void {
    const caller = this.#random.pick(this.#living);
    this.#madeBy.set(call.call, caller);
    caller.make(call);
  }

  #makeAgain(call: Call, why: string): void {
    this.again[why] = (this.again[why] ?? 0) + 1;
    setTimeout(() => this.#make(call), this.#random.between(50, 500));
  }

  async #killOne(): Promise<void> {
    const victim = this.#random.pick(this.#living);
    await victim.kill();
    for (const [number, caller] of this.#madeBy) {
      if (caller === victim) this.#makeAgain(this.calls[number] as Call, "killed");
    }
  }
}

async function resultOf(play: Play, lock: SubmitLock): Promise<CallsResult> {
  const { again, calls, callers, others, values } = play;
  const kept = new Map<string, string>();
  const left: string[] = [];
  for (const { submission, user } of new Map(
    calls.map((each) => [each.submission, each]),
  ).values()) {
    const found = await lock.lookUp(user, { submission: { id: submission } });
    const value = found.outcome === "completed" ? found.answer.returned?.value : undefined;
    if (value === undefined) left.push(`${submission} is ${found.outcome}`);
    else kept.set(submission, (value as { run: string }).run);
  }
  const differing = calls.filter(({ call, submission }) => {
    const value = values.get(call);
    return value !== undefined && value.run !== kept.get(submission);
  });

  const ledger = new Ledger();
  const counts = { interrupted: 0, unrecorded: 0, lost: 0 };
  const unexplained: string[] = [];
  for (const { killedAt = Number.POSITIVE_INFINITY, ...caller } of callers.map(seen)) {
    for (const { at: from, run, submission, user } of caller.of("begun")) {
      const ended = caller.at("ended", run);
      const lost = caller.at("lost", run);
      const holding = ledger.begin({ holder: run, user, ownerId: run, from });
      ledger.end(holding, Math.min(ended, lost, killedAt), lost < ended);
      if (ended === Number.POSITIVE_INFINITY) counts.interrupted++;
      else if (kept.get(submission) === run) continue;
      else if (lost < Number.POSITIVE_INFINITY) counts.lost++;
      else if (killedAt < Number.POSITIVE_INFINITY) counts.unrecorded++;
      else unexplained.push(`${submission} ran again without a kill`);
    }
  }
  for (const user of new Set(calls.map((each) => each.user))) {
    const { state } = await lock.inspect(user);
    if (state !== "free") left.push(`the lock of ${user} is ${state}`);
  }
  const replayed = [...values.values()].filter((value) => value.replayed).length;
  return {
    calls: calls.length,
    kills: play.kills,
    again,
    others: [...new Set(others)],
    fresh: values.size - replayed,
    replayed,
    differing: [...new Set(differing.map(({ submission }) => submission))],
    overlaps: overlapping(ledger.holdings).length,
    ...counts,
    unexplained,
    left,
  };
}

/** The notes of one process, by what and run. */
function seen(caller: Caller) {
  const notes = caller.notes();
  const times = new Map(notes.map(({ at, run, what }) => [`${what} ${run}`, at]));
  return {
    killedAt: caller.killedAt,
    of: (what: "begun") => notes.filter((note) => note.what === what),
    at: (what: "ended" | "lost", run: string) =>
      times.get(`${what} ${run}`) ?? Number.POSITIVE_INFINITY,
  };
}

/** What was not as it should be. */
export function misses(result: CallsResult): string[] {
  const { calls, differing, fresh, left, others, overlaps, replayed, unexplained } = result;
  const found = [
    ...others.map((other) => `a call was told: ${other}`),
    ...differing.map((submission) => `the callers of ${submission} have different values`),
    ...unexplained,
    ...left,
  ];
  if (fresh + replayed !== calls) found.push(`${calls - fresh - replayed} calls have no value`);
  if (overlaps > 0) found.push(`${overlaps} runs overlapped under a valid lease`);
  return found;
}

/** A process that calls `once`, seen from outside. */
interface Caller {
  /** When it was killed; `undefined` while it lives. */
  readonly killedAt: number | undefined;
  make(call: Call): void;
  /** Every line of its log. */
  notes(): Note[];
  kill(): Promise<void>;
}

/** Resolves when it takes calls. */
async function startCaller(
  settings: CallerSettings,
  onReply: (reply: Exclude<FromCaller, { ready: true }>) => void,
): Promise<Caller> {
  const script = new URL("./caller-process.ts", import.meta.url);
  const child = new Child<FromCaller, Call>(script, [JSON.stringify(settings)]);
  let killedAt: number | undefined;
  child.onMessage((message) => {
    // What it has said before its death and is heard later: its parent asks another one by then.
    if (!("ready" in message) && killedAt === undefined) onReply(message);
  });
  await child.next();
  return {
    get killedAt() {
      return killedAt;
    },
    make: (call) => child.send(call),
    notes: () => {
      if (!existsSync(settings.log)) return [];
      const lines = readFileSync(settings.log, "utf8").split("\n");
      return lines.filter((line) => line !== "").map((line) => JSON.parse(line));
    },
    async kill() {
      const killed = child.kill();
      killedAt = now();
      await killed;
    },
  };
}
