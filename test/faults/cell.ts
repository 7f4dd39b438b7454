import { once } from "node:events";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import type { AnyRedis } from "../support/clients.ts";
import { freshUser } from "../support/ids.ts";
import { startProxy } from "../support/proxy.ts";
import { type RedisServer, startServer } from "../support/server-process.ts";
import { settled } from "./bounded.ts";
import type { LabClient } from "./clients.ts";
import type { Fault, Scene } from "./faults.ts";
import { Ledger } from "./ledger.ts";
import { type Contender, type Hold, type Library, ttlMs } from "./library.ts";
import { type Attribution, Observer } from "./observer.ts";
import { startRival } from "./rivals.ts";

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
  /** Calls that had not settled at the end of the cell. */
  readonly unsettled: readonly string[];
  /** How late the lab's own event loop was at worst: what it measured is no better than that. */
  readonly labLateMs: number;
}

export interface Lab {
  readonly binary: string;
  /** For the faults that leave the server itself alone. */
  readonly sharedPort: number;
}

const callBoundMs = 15_000;
const workMs = 300;
/** The hold of a rival that can lose its lock to a late release. */
const longHoldMs = 1_000;

export async function runCell(lab: Lab, cell: Cell): Promise<CellResult> {
  const server = cell.fault.ownServer
    ? await startServer(lab.binary, { args: cell.fault.serverArgs ?? [] })
    : undefined;
  try {
    return await runOnServer(server ?? sharedServer(lab.sharedPort), cell);
  } finally {
    await server?.stop();
  }
}

/** Nobody pauses the server that all share. */
function sharedServer(port: number): Scene["server"] {
  const refuse = (): never => {
    throw new Error("A fault that pauses the server needs one of its own.");
  };
  return { port, pause: refuse, resume: refuse };
}

async function runOnServer(
  server: Pick<RedisServer, "port" | "pause" | "resume">,
  { library, client, fault }: Cell,
): Promise<CellResult> {
  const proxy = await startProxy(server.port);
  const user = freshUser();
  const pending = new Set<Promise<unknown>>();
  let struck = true;
  const scene: Scene = {
    proxy,
    server,
    isOurs: (argv) => argv.some((argument) => argument.includes(user)),
    whenStruck(happened) {
      struck = false;
      void happened.then(() => {
        struck = true;
      });
    },
    later(ms, what) {
      pending.add(sleep(ms).then(what));
    },
  };
  await fault.prepare?.(scene);
  const redis = await ready(client.connect(proxy.port, fault.login));
  const rivalRedis = await ready(client.connect(server.port));
  const caller = library.open(redis);
  const rival = (library.openRival ?? library.open)(rivalRedis);
  const observer = new Observer(server.port, client.keyPrefix + library.keyOf(user));
  const ledger = new Ledger();
  await observer.start();
  // An application has placed orders before: scripts are loaded, clocks are known.
  await warmUp(caller);
  await warmUp(rival);

  const unsettled: string[] = [];
  let struckAt = performance.now();
  const strike = async (on: Fault["on"]): Promise<void> => {
    if (fault.on !== on) return;
    struckAt = performance.now();
    await fault.strike(scene);
  };

  const eventLoop = monitorEventLoopDelay({ resolution: 10 });
  eventLoop.enable();
  await strike("acquire");
  const calledAt = performance.now();
  const calling = settled(caller.acquire(user), callBoundMs);
  // Rivals that came first would be right to get the lock, and the caller to be refused.
  const rivals = Promise.race([calling, observer.firstSeen]).then(() => [
    startRival(rival, user, {
      who: "rival 1",
      holdMs: fault.on === "release" ? longHoldMs : 0,
      ledger,
    }),
    startRival(rival, user, { who: "rival 2", holdMs: 0, ledger }),
  ]);
  const answer = await calling;
  const answeredMs = performance.now() - calledAt;
  if (answer.kind === "pending") unsettled.push("acquire");
  let callEndedAt = performance.now();
  let end: { release: string | undefined; releaseMs: number; toldLost: boolean } = {
    release: undefined,
    releaseMs: 0,
    toldLost: false,
  };
  if (answer.kind === "fulfilled" && answer.value.outcome === "acquired") {
    const { hold } = answer.value;
    const holding = ledger.begin("caller", hold.ownerId);
    await strike("extend");
    const toldLost = await work(hold, fault.holdMs ?? workMs, () => ledger.end(holding));
    await strike("release");
    ledger.end(holding);
    callEndedAt = performance.now();
    const release = await settled(hold.release(), callBoundMs);
    if (release.kind === "pending") unsettled.push("release");
    end = {
      release: release.kind === "fulfilled" ? release.value : wordFor(release.kind),
      releaseMs: performance.now() - callEndedAt,
      toldLost,
    };
  }

  const attribution: Attribution = {
    ledger,
    callEndedAt,
    isCallers: (value) => proxy.commands.some((argv) => argv.includes(value)),
  };
  await sleep(Math.max(300, struckAt + fault.watchMs - performance.now()));
  await Promise.all(pending);
  const patienceEndsAt = performance.now() + ttlMs + 1_000;
  while (observer.isOrphanNow(attribution) && performance.now() < patienceEndsAt) await sleep(20);
  const stopping = Promise.all((await rivals).map((one) => one.stop()));
  if ((await settled(stopping, callBoundMs)).kind === "pending") unsettled.push("a rival's call");
  const lastOrphanAt = observer.lastOrphanAt(attribution);
  const result: CellResult = {
    library: library.name,
    client: client.name,
    fault: fault.name,
    struck,
    outcome: outcomeOf(answer),
    answeredMs,
    ...end,
    orphanMs: observer.orphanMs(attribution),
    rivalOrphanMs: observer.rivalOrphanMs(attribution),
    freedAfterMs: lastOrphanAt === undefined ? 0 : lastOrphanAt - callEndedAt,
    overlaps: ledger.overlaps,
    rivalHolds: ledger.countSince(callEndedAt, (who) => who !== "caller"),
    unsettled,
    // The monitor counts its own interval in.
    labLateMs: Math.max(0, eventLoop.max / 1e6 - 10),
  };
  eventLoop.disable();
  await observer.stop();
  await Promise.all([settled(caller.close(), callBoundMs), settled(rival.close(), callBoundMs)]);
  for (const connection of [redis, rivalRedis]) connection.disconnect();
  await proxy.stop();
  return result;
}

function outcomeOf(answer: Awaited<ReturnType<typeof settled<{ outcome: string }>>>) {
  if (answer.kind === "pending") return "never";
  return answer.kind === "rejected" ? "error" : (answer.value.outcome as CellResult["outcome"]);
}

function wordFor(kind: "rejected" | "pending"): string {
  return kind === "rejected" ? "error" : "never";
}

async function ready(client: AnyRedis): Promise<AnyRedis> {
  if (client.status !== "ready") await once(client as NodeJS.EventEmitter, "ready");
  return client;
}

/** On a busy machine a client's own time bound may end the first try. */
async function warmUp(contender: Contender): Promise<void> {
  for (let left = 5; left > 0; left--) {
    const answer = await settled(contender.acquire(freshUser()), callBoundMs);
    if (answer.kind !== "fulfilled" || answer.value.outcome !== "acquired") continue;
    if ((await settled(answer.value.hold.release(), callBoundMs)).kind === "fulfilled") return;
  }
  throw new Error("Without a fault the lock could not be acquired and released.");
}

/** The caller works, extends where that is its business, and stops when it is told that the lock is lost. */
async function work(hold: Hold, ms: number, onLost: () => void): Promise<boolean> {
  const endsAt = performance.now() + ms;
  let lost = false;
  const lose = (): void => {
    lost = true;
    onLost();
  };
  if (hold.signal?.aborted) lose();
  hold.signal?.addEventListener("abort", lose);
  let extendAt = performance.now() + ttlMs / 3;
  while (!lost && performance.now() < endsAt) {
    await sleep(Math.min(20, endsAt - performance.now()));
    if (lost || hold.extend === undefined || performance.now() < extendAt) continue;
    extendAt = performance.now() + ttlMs / 3;
    const extended = await settled(hold.extend(), callBoundMs);
    if (extended.kind !== "fulfilled") lose();
  }
  hold.signal?.removeEventListener("abort", lose);
  return lost;
}
