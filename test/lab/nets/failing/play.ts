import { AsyncLocalStorage } from "node:async_hooks";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import type { Server } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { MemoryStore, SubmitLock } from "../../../../src/index.ts";
import type { Framework } from "../../../http/frameworks.ts";
import { type Call, type HttpClient, listen, openClient } from "../../../http/http-client.ts";
import { freshUser } from "../../../support/ids.ts";
import { until } from "../../../support/until.ts";
import { Fault, type ValueName, type Way } from "./fault.ts";
import { type Outcome, place, type Site, short } from "./site.ts";

/** One fault at one site of one framework. */
export interface Program {
  readonly framework: string;
  readonly site: string;
  readonly way: Way;
  readonly value: ValueName;
  /** How many calls at the site go well before. */
  readonly after: number;
  readonly isOnce: boolean;
  /** The client leaves in the middle. */
  readonly leaves: boolean;
}

/** How it is played. */
export interface Play {
  readonly framework: Framework;
  readonly site: Site;
  readonly program: Program;
  readonly outcome: Outcome;
  /** Without the guard. */
  readonly isBare: boolean;
  /** What every time is multiplied by, on a busy machine. */
  readonly pace: number;
}

/** What came of the order. */
export class Seen {
  /** "none" where the client has left without an answer, "broken" for a broken connection. */
  status: number | "none" | "broken" = "none";
  runs = 0;
  readonly errors: unknown[] = [];
  /** What reached the process: the name of the event, and the value. */
  readonly strays: [event: string, value: unknown][] = [];
  fault: Fault;
  readonly problems: string[] = [];

  constructor(fault: Fault) {
    this.fault = fault;
  }
}

const current = new AsyncLocalStorage<Seen>();

/** Makes the process one that notes what reaches it, and whose logger fails. */
export function prepareProcess(): void {
  for (const event of ["unhandledRejection", "uncaughtException"]) {
    process.on(event, (value) => {
      const seen = current.getStore();
      if (seen === undefined) throw value;
      seen.strays.push([event, value]);
    });
  }
  const { emitWarning } = process;
  process.emitWarning = (...args: unknown[]) => {
    const [, options] = args as [unknown, { type?: string } | undefined];
    if (options?.type === "SubmitLockWarning") throw new Error("the logger has failed");
    Reflect.apply(emitWarning, process, args);
  };
}

/** How long what comes may take, in ms: at a pace of 8 as at 1. */
const boundAt = (pace: number) => Math.max(8, pace) * 1_000;
const patient = { ttlMs: 60_000, maxHoldMs: 120_000 };

export async function play(how: Play): Promise<Seen> {
  const { program, site } = how;
  const after = site.isInside ? program.after : 0;
  const seen = new Seen(new Fault(program.way, program.value, after, how.pace));
  await current.run(seen, () => order(how, seen));
  return seen;
}

async function order({ framework, isBare, outcome, pace, program, site }: Play, seen: Seen) {
  const { fault } = seen;
  const boundMs = boundAt(pace);
  const user = freshUser();
  const store = new MemoryStore();
  site.store?.(store, fault);
  const times = site.times ?? (site.isUnseen || outcome === "held" ? short : undefined);
  const lock = new SubmitLock({
    store,
    commandTimeoutMs: Math.min(100 * pace, 500),
    ...(times ? { ttlMs: pace * times.ttlMs, maxHoldMs: pace * times.maxHoldMs } : patient),
  });
  // What a callback of the guard does, the handler of the bare application does.
  const isHandlers = isBare && outcome === "error";
  const handler = isHandlers ? fault.in(place) : (site.handler ?? place);
  const parts = site.parts?.(fault, framework);
  const isOnce = program.isOnce || site.meets !== undefined;
  const guard = parts?.guard ?? (isOnce ? { idempotency: {} } : {});
  const server = framework.makeServer({
    ...parts,
    guard,
    onError: (error) => seen.errors.push(error),
    lock: isBare ? undefined : lock,
    handler: (turn) => {
      if (turn.req.headers["x-plain"]) return place(turn);
      seen.runs++;
      if (site.isInside) fault.isArmed = true;
      return site.isSync ? handler(turn, fault) : inPromise(() => handler(turn, fault));
    },
  }) as Server;
  const port = await listen(server);
  const clients: HttpClient[] = [];
  const submit: Submitting = (headers = {}, body = "[1]") => {
    // A connection of its own, because the fault may break it.
    const client = openClient(1, port);
    clients.push(client);
    const usual = {
      "x-user": user,
      "idempotency-key": "order-7",
      "content-type": "application/json",
    };
    return client.call({ headers: { ...usual, ...headers }, body });
  };
  try {
    const part = await meet(site, user, lock, store, submit);
    const runsBefore = seen.runs;
    listenTo(site, fault, user);
    fault.isArmed = !site.isInside;
    const call = submit({
      ...(site.meets === "nobody" && { "x-user": "" }),
      ...(site.meets === "no key" && { "idempotency-key": "" }),
    });
    const leaves = program.leaves || outcome === "hangs" || outcome === "held";
    const replied = call.reply.then(
      ({ status }) => status,
      () => "broken" as const,
    );
    const isUnderWay = () => fault.hasStruck || seen.runs > runsBefore;
    const patience = async () => {
      const isExpected = !leaves && !isBare && outcome !== "any";
      if (isExpected) return await sleep(boundMs, undefined, { ref: false });
      await until(isUnderWay, { what: "the fault", boundMs: pace * 2_000 }).catch(() => {});
      await sleep(pace * (leaves ? 30 : 300));
    };
    seen.status = await Promise.race([replied, patience().then(() => "none" as const)]);
    if (seen.status === "none") call.abort();
    if (isBare) return;
    if (seen.status === "none" && !leaves && outcome !== "any")
      seen.problems.push("the client got no answer");
    fault.undoAll();
    await part();
    const what = "the user to be free";
    await until(() => isFree(lock, user), { what, boundMs }).catch(() => {
      seen.problems.push(`the user is locked out for more than ${boundMs} ms`);
    });
    seen.runs -= runsBefore;
    const hasStruck = fault.hasStruck;
    fault.hasStruck = true;
    const mayRunAgain = guard.idempotency === undefined || site.mayRunAgain || site.isUnseen;
    if (!mayRunAgain && site.meets === undefined && Number(seen.status) < 300) {
      const before = seen.runs;
      await submit().reply.catch(() => {});
      if (seen.runs > before) seen.problems.push(`answered ${seen.status}, and a repeat ran again`);
      seen.runs = before;
    }
    fault.hasStruck = hasStruck;
    fault.isArmed = false;
    const { status } = await submit({ "x-user": freshUser(), "x-plain": "1" }).reply;
    if (status !== 201) seen.problems.push(`another user's order is answered ${status}`);
  } finally {
    fault.undoAll();
    // What nobody awaits comes a moment later.
    await sleep(5);
    for (const client of clients) client.close();
    server.closeAllConnections();
    server.close();
    await lock.close({ timeoutMs: 0 });
  }
}

/** As handlers should be written: only a promise shows when the work is over. */
async function inPromise(work: () => unknown): Promise<unknown> {
  return await work();
}

type Submitting = (headers?: Record<string, string>, body?: string) => Call;

/** Prepares what the order meets, and returns a function that takes it away. */
async function meet(
  { meets }: Site,
  user: string,
  lock: SubmitLock,
  store: MemoryStore,
  submit: Submitting,
): Promise<() => unknown> {
  if (meets === "a lock") {
    const attempt = await lock.acquire(user);
    return () => attempt.outcome === "acquired" && attempt.lease.release();
  }
  if (meets === "no store") {
    const { acquire } = store;
    store.acquire = ({ answer }) =>
      answer({ kind: "rejected", cause: new Error("there is no store"), misconfigured: false });
    return () => {
      store.acquire = acquire;
    };
  }
  if (meets === "other content" || meets === "its answer") {
    await submit({}, meets === "its answer" ? "[1]" : "[2]").reply;
    await until(() => isFree(lock, user), { what: "the first order to be over" });
  }
  return () => {};
}

async function isFree(lock: SubmitLock, user: string): Promise<boolean> {
  const attempt = await lock.acquire(user);
  if (attempt.outcome !== "acquired") return false;
  await attempt.lease.release();
  return true;
}

/** Other programs of this process publish on the same channels. */
function listenTo({ subscribes }: Site, fault: Fault, user: string): void {
  if (subscribes === undefined) return;
  const hear = fault.in(() => {});
  const listener = (message: unknown) => {
    if ((message as { key: string }).key.includes(user)) hear();
  };
  subscribe(subscribes, listener);
  fault.undo.push(() => unsubscribe(subscribes, listener));
}
