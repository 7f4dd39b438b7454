import { setTimeout as sleep } from "node:timers/promises";
import { Pulse } from "../../support/pulse.ts";
import { startServer } from "../../support/server-process.ts";
import { Ledger, overlapping } from "../ledger.ts";
import type { LabClient } from "./clients.ts";
import { longRetainMs } from "./complete-faults.ts";
import type { Fault, FaultTarget } from "./fault.ts";
import { type Fixture, openFixture, type Retries, startRetries } from "./fixture.ts";
import {
  type Answer,
  type Contender,
  callBoundMs,
  type Hold,
  type Library,
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
export interface CellResult {
  readonly library: string;
  readonly client: string;
  readonly fault: string;
  /** Whether the command that the fault waits for came by at all. */
  readonly struck: boolean;
  readonly outcome: "acquired" | "contended" | "unavailable" | "error" | "never";
  /** Why not, in the library's words. */
  readonly cause: string | undefined;
  /** Until the caller knew. */
  readonly answeredMs: number;
  /** What the release came to, in the library's own word, and how long it took. */
  readonly release: string | undefined;
  readonly releaseMs: number;
  /** The library told the holder that the lock is lost. */
  readonly toldLost: boolean;
  /** How long in sum the key held an owner id of the caller after its attempt was over. */
  readonly orphanMs: number;
  /** The same for the rivals, whose connection is healthy as long as the server is. */
  readonly rivalOrphanMs: number;
  /** How long after its end the attempt's owner id was last seen at the key; 0 if never. */
  readonly freedAfterMs: number;
  /** How often two callers held at once. */
  readonly overlaps: number;
  /** How often a rival got the lock after the caller's attempt was over. */
  readonly rivalHolds: number;
  /** What a retry of the same submission met, for a library that keeps answers. */
  readonly once: Once | undefined;
  /** Calls that had not settled at the end of the cell. */
  readonly unsettled: readonly string[];
  /** How late the machine itself was at worst: what was measured is no better than that. */
  readonly labLateMs: number;
}

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

async function play(
  fixture: Fixture,
  { library, client, fault }: Cell,
  pulse: Pulse,
): Promise<CellResult> {
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
  const others = Promise.race([calling, observer.firstSeen]).then(() => ({
    rivals: startRivals(fixture, fault, ledger),
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
  const stopping = Promise.all(rivals.map((one) => one.stop()));
  const rivalsStopped = await settled(stopping, callBoundMs);
  const retried = await retries.stop();
  const lastOrphanAt = observer.lastOrphanAt(attribution);
  return {
    library: library.name,
    client: client.name,
    fault: fault.name,
    struck: fixture.struck,
    outcome: outcomeOf(answer),
    cause: causeOf(answer),
    answeredMs,
    ...end,
    orphanMs: observer.orphanMs(attribution),
    rivalOrphanMs: observer.rivalOrphanMs(attribution),
    freedAfterMs: lastOrphanAt === undefined ? 0 : lastOrphanAt - callEndedAt,
    overlaps: overlapping(ledger.holdings).length,
    rivalHolds: ledger.holdings.filter(
      ({ holder, from }) => holder !== "caller" && from >= callEndedAt,
    ).length,
    once: retried && onceOf(retried, { observer, ledger, callEndedAt, fault }),
    unsettled: [
      ...(retried?.pending ? ["a retry"] : []),
      ...(answer.kind === "pending" ? ["acquire"] : []),
      ...(end.release === "never" ? ["release"] : []),
      ...(rivalsStopped.kind === "pending" ? ["a rival's call"] : []),
    ],
    labLateMs: pulse.worstMs,
  };
}

function startRivals({ rival, user }: Fixture, { on }: Fault, ledger: Ledger): Rival[] {
  const holdMs = on === "release" || on === "complete" ? longHoldMs : 0;
  return [
    startRival(rival, user, { who: "rival 1", holdMs, ledger }),
    startRival(rival, user, { who: "rival 2", holdMs: 0, ledger }),
  ];
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
): Promise<Pick<CellResult, "release" | "releaseMs" | "toldLost"> & { callEndedAt: number }> {
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
  return { release, releaseMs, toldLost, callEndedAt };
}

function outcomeOf(answer: Settled<Answer>): CellResult["outcome"] {
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

/** What a cell showed of one submission that came again and again. */
interface Once {
  /** How often a retry got the lock while the answer was to be kept. */
  readonly secondRuns: number;
  readonly wrongAnswers: number;
  /** From the complete to the first retry that was given the answer; ∞ if none was. */
  readonly replayedAfterMs: number;
  /** How often neither the caller's lock nor a record was there. */
  readonly gaps: number;
  readonly isRecordedAtEnd: boolean;
}

/** A record may expire so much earlier by our clock: its time counts from when Redis was last heard. */
const expirySlackMs = 200;

function onceOf(
  { ranAt, replayedAt = Number.POSITIVE_INFINITY, wrongAnswers }: Retries,
  {
    observer,
    ledger,
    callEndedAt,
    fault,
  }: { observer: Observer; ledger: Ledger; callEndedAt: number; fault: Fault },
): Once {
  // By the end of the acquire at the latest the store's time was known; the expiry counts from it.
  const keptUntil = callEndedAt + (fault.retainMs ?? longRetainMs) - expirySlackMs;
  const ownerId = ledger.holdings.find(({ holder }) => holder === "caller")?.ownerId ?? "";
  return {
    secondRuns: ranAt.filter((at) => at < keptUntil).length,
    wrongAnswers,
    replayedAfterMs: replayedAt - callEndedAt,
    gaps: observer.gaps(ownerId, keptUntil),
    isRecordedAtEnd: observer.isRecordedNow,
  };
}

const everyMs = 20;

interface Rival {
  stop(): Promise<void>;
}

/**
 * Another request of the same user on a healthy connection: tries all the time, and holds for
 * `holdMs` when it gets the lock. A short hold proves an overlap as well as a long one, and leaves
 * the key free for whatever lands late; a long one can be deleted by somebody else's late release.
 */
function startRival(
  contender: Contender,
  user: string,
  { who, holdMs, ledger }: { who: string; holdMs: number; ledger: Ledger },
): Rival {
  let stopped = false;
  const run = async (): Promise<void> => {
    while (!stopped) {
      const answer = await settled(contender.acquire(user), callBoundMs);
      if (answer.kind === "fulfilled" && answer.value.outcome === "acquired") {
        const { hold } = answer.value;
        const holding = ledger.begin({
          holder: who,
          user,
          ownerId: hold.ownerId,
          from: performance.now(),
        });
        if (holdMs > 0) await sleep(holdMs);
        ledger.end(holding, performance.now());
        await settled(hold.release(), callBoundMs);
      }
      await sleep(everyMs);
    }
  };
  const running = run();
  return {
    stop() {
      stopped = true;
      return running;
    },
  };
}
