import { setTimeout as sleep } from "node:timers/promises";
import { Pulse } from "../../support/pulse.ts";
import { startServer } from "../../support/server-process.ts";
import { Ledger, overlapping } from "../shop/ledger.ts";
import type { LabClient } from "./clients.ts";
import type { Fault, FaultTarget } from "./fault.ts";
import { type Fixture, openFixture } from "./fixture.ts";
import {
  type Answer,
  type Contender,
  callBoundMs,
  type Hold,
  type Library,
  longRetainMs,
  type Settled,
  settled,
  ttlMs,
} from "./libraries.ts";
import type { Attribution, Observer } from "./observer.ts";

export interface Cell {
  readonly library: Library;
  readonly client: LabClient;
  readonly fault: Fault;
}

/** What a cell showed. Every number was measured in it. */
export type CellResult = Awaited<ReturnType<typeof play>>;

export interface Servers {
  readonly binary: string;
  /** For the faults that leave the server itself alone. */
  readonly sharedPort: number;
}

const workMs = 300;
/** The hold of a rival that can lose its lock to a late release. */
const longHoldMs = 1_000;

export async function runCell(servers: Servers, cell: Cell): Promise<CellResult> {
  const server = cell.fault.ownServer
    ? await startServer(servers.binary, { args: cell.fault.serverArgs ?? [] })
    : undefined;
  try {
    const fixture = await openFixture(server ?? sharedServer(servers.sharedPort), cell);
    const pulse = await Pulse.of(servers.sharedPort);
    try {
      return await play(fixture, cell, pulse);
    } finally {
      pulse.stop();
      await fixture.close();
    }
  } finally {
    await server?.stop();
  }
}

/** Nobody pauses the server that all share. */
function sharedServer(port: number): FaultTarget["server"] {
  const refuse = (): never => {
    throw new Error("A fault that pauses the server needs one of its own.");
  };
  return { port, pause: refuse, resume: refuse };
}

async function play(fixture: Fixture, { client, fault }: Cell, pulse: Pulse) {
  const { observer, user } = fixture;
  const ledger = new Ledger();
  let struckAt = performance.now();
  const strike = async (on: Fault["on"]): Promise<void> => {
    if (fault.on !== on) return;
    struckAt = performance.now();
    await fault.strike(fixture.target);
  };

  await strike("acquire");
  const calledAt = performance.now();
  const calling = settled(fixture.caller.acquire(user), callBoundMs);
  // Rivals that came first would be right to get the lock, and the caller to be refused.
  const isLong = fault.on === "release" || fault.on === "complete";
  const others = Promise.race([calling, observer.firstSeen]).then(() => ({
    rivals: [
      startRival(fixture, "rival 1", isLong ? longHoldMs : 0, ledger),
      startRival(fixture, "rival 2", 0, ledger),
    ],
    retries: startRetries(fixture.rival, user),
  }));
  const answer = await calling;
  const answeredMs = performance.now() - calledAt;
  const ending = await holdAndRelease(answer, { fault, user, ledger, strike });

  const { callEndedAt, ...end } = ending;
  const isCallers = (value: string): boolean =>
    fixture.target.proxy.commands.some((argv) => argv.includes(value));
  const attribution: Attribution = { ledger, callEndedAt, isCallers };
  await sleep(Math.max(300, struckAt + fault.watchMs - performance.now()));
  await fixture.over();
  const patienceEndsAt = performance.now() + ttlMs + 1_000;
  while (observer.isOrphanNow(attribution) && performance.now() < patienceEndsAt) await sleep(20);
  const { rivals, retries } = await others;
  const rivalsStopped = await settled(Promise.all(rivals.map((stop) => stop())), callBoundMs);
  const retried = await retries?.();
  const lastOrphanAt = observer.lastOrphanAt(attribution);
  return {
    client: client.name,
    fault: fault.name,
    /** Whether the command that the fault waits for came by at all. */
    struck: fixture.struck,
    outcome: outcomeOf(answer),
    /** Why not, in the library's words. */
    cause: causeOf(answer),
    /** Until the caller knew. */
    answeredMs,
    ...end,
    /** How long in sum the key held an owner id of the caller after its attempt was over. */
    orphanMs: observer.orphanMs(attribution),
    /** The same for the rivals, whose connection is healthy as long as the server is. */
    rivalOrphanMs: observer.rivalOrphanMs(attribution),
    /** How long after its end the attempt's owner id was last seen at the key; 0 if never. */
    freedAfterMs: lastOrphanAt === undefined ? 0 : lastOrphanAt - callEndedAt,
    /** How often two callers held at once. */
    overlaps: overlapping(ledger.holdings).length,
    /** How often a rival got the lock after the caller's attempt was over. */
    rivalHolds: ledger.holdings.filter(
      ({ holder, from }) => holder !== "caller" && from >= callEndedAt,
    ).length,
    /** What a retry of the same submission met, for a library that keeps answers. */
    once: retried && onceOf(retried, { observer, ledger, callEndedAt, fault }),
    /** Calls that had not settled at the end of the cell. */
    unsettled: [
      ...(retried?.pending ? ["a retry"] : []),
      ...(answer.kind === "pending" ? ["acquire"] : []),
      ...(end.release === "never" ? ["release"] : []),
      ...(rivalsStopped.kind === "pending" ? ["a rival's call"] : []),
    ],
    /** How late the machine itself was at worst: what was measured is no better than that. */
    labLateMs: pulse.worstMs,
  };
}

/** What a caller does with its answer, and when its attempt is over. */
async function holdAndRelease(
  answer: Settled<Answer>,
  {
    fault,
    user,
    ledger,
    strike,
  }: { fault: Fault; user: string; ledger: Ledger; strike(on: Fault["on"]): Promise<void> },
) {
  if (answer.kind !== "fulfilled" || answer.value.outcome !== "acquired") {
    const callEndedAt = performance.now();
    return { release: undefined, releaseMs: 0, toldLost: false, callEndedAt };
  }
  const { hold } = answer.value;
  const { ownerId } = hold;
  const holding = ledger.begin({ holder: "caller", user, ownerId, from: performance.now() });
  const end = () => ledger.end(holding, performance.now());
  await strike("extend");
  const toldLost = await work(hold, fault.holdMs ?? workMs, end);
  await strike("release");
  await strike("complete");
  end();
  const callEndedAt = performance.now();
  const released = await settled(hold.release(), callBoundMs);
  const releaseMs = performance.now() - callEndedAt;
  const words = { rejected: "error", pending: "never" } as const;
  const release = released.kind === "fulfilled" ? released.value : words[released.kind];
  return {
    /** What the release came to, in the library's own word, and how long it took. */
    release,
    releaseMs,
    /** The library told the holder that the lock is lost. */
    toldLost,
    callEndedAt,
  };
}

function outcomeOf(answer: Settled<Answer>): Answer["outcome"] | "error" | "never" {
  if (answer.kind === "pending") return "never";
  return answer.kind === "rejected" ? "error" : answer.value.outcome;
}

function causeOf(answer: Settled<Answer>): string | undefined {
  if (answer.kind === "rejected") return String(answer.error);
  return answer.kind === "fulfilled" && "cause" in answer.value ? answer.value.cause : undefined;
}

/** The caller works, and stops when it is told that the lock is lost. */
async function work(hold: Hold, ms: number, onLost: () => void): Promise<boolean> {
  const endsAt = performance.now() + ms;
  let lost = false;
  const lose = (): void => {
    lost = true;
    onLost();
  };
  if (hold.signal?.aborted) lose();
  hold.signal?.addEventListener("abort", lose);
  while (!lost && performance.now() < endsAt) await sleep(Math.min(20, endsAt - performance.now()));
  hold.signal?.removeEventListener("abort", lose);
  return lost;
}

/** A record may expire so much earlier by our clock: its time counts from when Redis was last heard. */
const expirySlackMs = 200;

/** What a cell showed of one submission that came again and again. */
function onceOf(
  { ranAt, replayedAt, wrongAnswers }: Retries,
  {
    observer,
    ledger,
    callEndedAt,
    fault,
  }: { observer: Observer; ledger: Ledger; callEndedAt: number; fault: Fault },
) {
  // By the end of the acquire at the latest the store's time was known; the expiry counts from it.
  const keptUntil = callEndedAt + (fault.retainMs ?? longRetainMs) - expirySlackMs;
  const ownerId = ledger.holdings.find(({ holder }) => holder === "caller")?.ownerId ?? "";
  return {
    /** How often a retry got the lock while the answer was to be kept. */
    secondRuns: ranAt.filter((at) => at < keptUntil).length,
    wrongAnswers,
    /** From the complete to the first retry that was given the answer; ∞ if none was. */
    replayedAfterMs: (replayedAt ?? Number.POSITIVE_INFINITY) - callEndedAt,
    /** How often neither the caller's lock nor a record was there. */
    gaps: observer.gaps(ownerId, keptUntil),
    isRecordedAtEnd: observer.isRecordedNow,
  };
}

const everyMs = 20;

/** Does something again and again. @returns stops it, and resolves when the last time is over */
function again(what: () => Promise<void>): () => Promise<void> {
  let stopped = false;
  const run = async () => {
    while (!stopped) {
      await what();
      await sleep(everyMs);
    }
  };
  const running = run();
  return () => {
    stopped = true;
    return running;
  };
}

/**
 * Another request of the same user on a healthy connection: tries all the time, and holds for
 * `holdMs` when it gets the lock. A short hold proves an overlap as well as a long one, and leaves
 * the key free for whatever lands late; a long one can be deleted by another's late release.
 */
function startRival({ rival, user }: Fixture, holder: string, holdMs: number, ledger: Ledger) {
  return again(async () => {
    const answer = await settled(rival.acquire(user), callBoundMs);
    if (answer.kind !== "fulfilled" || answer.value.outcome !== "acquired") return;
    const { hold } = answer.value;
    const { ownerId } = hold;
    const holding = ledger.begin({ holder, user, ownerId, from: performance.now() });
    if (holdMs > 0) await sleep(holdMs);
    ledger.end(holding, performance.now());
    await settled(hold.release(), callBoundMs);
  });
}

/** What became of the retries of one submission. */
interface Retries {
  /** When one got the lock. */
  readonly ranAt: number[];
  /** When one was given the answer for the first time. */
  replayedAt?: number;
  wrongAnswers: number;
  /** One had not settled at the end. */
  pending: boolean;
}

/** Submits the same again and again on a healthy connection, until it is stopped. */
function startRetries({ retry }: Contender, user: string) {
  if (retry === undefined) return undefined;
  const seen: Retries = { ranAt: [], wrongAnswers: 0, pending: false };
  const stop = again(async () => {
    if (seen.pending) return;
    const end = await settled(retry(user), callBoundMs);
    seen.pending = end.kind === "pending";
    if (end.kind !== "fulfilled") return;
    if (end.value === "ran") seen.ranAt.push(performance.now());
    if (end.value === "replayed") seen.replayedAt ??= performance.now();
    if (end.value === "another answer") seen.wrongAnswers++;
  });
  return () => stop().then(() => seen);
}
