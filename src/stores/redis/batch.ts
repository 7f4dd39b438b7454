import type { LockCommand, LockRequest, NoAnswer } from "../../lock/store.ts";
import { leastToken } from "./commands/acquire.ts";
import type { Command } from "./commands/command.ts";
import type { CallResult, Connection } from "./connection.ts";
import type { ConnectionPair } from "./connection-pair.ts";
import { toNoAnswer, unexpectedReply } from "./no-answers.ts";

/**
 * How many calls should be in flight, so that Redis works on one while this process reads the answer
 * to another. Pairs a second with 32 and 64 callers on two idle cores, 4 calls being 1.00: one call
 * 0.56 to 0.71, two 0.77 to 1.06, eight 0.85 to 1.15; with 256 callers eight make 0.76 to 0.84.
 */
const defaultCallsAtOnce = 4;

/**
 * The fewest entries of a call that is split off. The call itself takes about 7 µs of this process,
 * and an entry 1.3 µs (bench/results.md): with fewer, most of the work would be the call's.
 */
const leastEntries = 8;

/**
 * The requests of one command that one turn of the event loop made, written in few calls. A client's
 * cost is by the call and not by the key, so many requests share one; a lone one waits no longer than
 * for the end of its own turn.
 */
export class CommandBatch<Request extends LockRequest<Reply | NoAnswer>, Reply> {
  readonly #command: Command<Request, Reply>;
  readonly #connections: ConnectionPair;
  readonly #callsAtOnce: number;
  readonly #confirmed: Confirmed;
  #waiting: Request[] = [];
  readonly #recordKey: (command: LockCommand) => string;

  /**
   * @param confirmed rule 21: returns true where it answers the request later.
   * @param callsAtOnce how many calls should be in flight.
   */
  constructor(
    command: Command<Request, Reply>,
    connections: ConnectionPair,
    confirmed: Confirmed,
    callsAtOnce: number = defaultCallsAtOnce,
  ) {
    this.#command = command;
    this.#connections = connections;
    this.#callsAtOnce = callsAtOnce;
    this.#confirmed = confirmed;
    this.#recordKey = (of) => connections.recordKey(of);
  }

  add(request: Request): void {
    this.#waiting.push(request);
  }

  /** Writes what was added. */
  flush(): void {
    let waiting = this.#waiting;
    if (waiting.length === 0) return;
    this.#waiting = [];
    while (waiting[0] !== undefined) {
      // The requests of one lock travel together: they share their times.
      const { times } = waiting[0].command;
      const others = waiting.filter(({ command }) => command.times !== times);
      this.#write(
        others.length === 0 ? waiting : waiting.filter(({ command }) => command.times === times),
      );
      waiting = others;
    }
  }

  /** Splits them into as many calls as there may be in flight, none of them too small or too large. */
  #write(requests: readonly Request[]): void {
    const wanted = Math.max(1, this.#callsAtOnce - this.#connections.inFlight);
    const calls = Math.min(wanted, Math.ceil(requests.length / leastEntries));
    const { maxEntries } = this.#connections.isCluster ? oneEntry : this.#command;
    const entries = Math.min(Math.ceil(requests.length / calls), maxEntries);
    for (let from = 0; from < requests.length; from += entries) {
      this.#call(requests.slice(from, from + entries));
    }
  }

  #call(requests: readonly Request[]): void {
    const [first] = requests;
    if (first === undefined) return;
    const route = this.#routeFor(requests);
    if (route === undefined) return;
    const { clock } = this.#connections;
    // Rule 2: stamped when it is written, so that a request that waited in a queue has all its time.
    const deadlineMs = clock.now() + first.command.times.acquireTimeoutMs;
    const keys: string[] = [];
    const args = this.#command.head({
      command: first.command,
      deadlineMs,
      floorUs: clock.floorUs(route.node),
    });
    for (const request of requests) {
      request.deadlineMs = deadlineMs;
      this.#command.add(request, keys, args, this.#recordKey);
    }
    this.#send(route, { requests, keys, args });
  }

  /** Where a call goes; `undefined` when there is no connection and its requests were told so. */
  #routeFor(requests: readonly Request[]): Route | undefined {
    const { key, times } = (requests[0] as Request).command;
    const slot = this.#connections.slotOf(key);
    const connection = this.#connections.pick(slot, key, times.commandTimeoutMs);
    if (connection !== undefined) return { connection, node: connection.nodeOf(slot) };
    answerAll(requests, this.#connections.unavailableReason());
    return undefined;
  }

  #send({ connection, node }: Route, call: ScriptCall<Request>): void {
    const { requests, keys, args } = call;
    const sentAt = performance.now();
    connection.send(node, this.#command.script, keys, args, (result) => {
      if (result.kind === "not-loaded") this.#sendAgain(call);
      else this.#answered(requests, result, node, sentAt);
    });
  }

  /**
   * Rule 2: nothing was executed, so this is the only write that can take effect. It has the deadline
   * of the first, which its requests go by, and rule 9 chooses its connection anew.
   */
  #sendAgain(call: ScriptCall<Request>): void {
    const route = this.#routeFor(call.requests);
    if (route !== undefined) this.#send(route, call);
  }

  #answered(requests: readonly Request[], result: Answer, node: string, sentAt: number): void {
    if (result.kind !== "value") {
      answerAll(requests, toNoAnswer(result));
      return;
    }
    const { headLength } = this.#command;
    const reply = scriptReply(result.value, headLength, requests.length);
    const [redisTimeMs, fencingToken = 0] = reply?.head ?? [];
    if (reply === undefined || redisTimeMs === undefined) {
      answerAll(requests, unexpectedReply(result.value));
      return;
    }
    // Rule 12: every reply improves the estimate of Redis' clock.
    this.#connections.clock.learn(redisTimeMs, sentAt, performance.now());
    // Rule 20: later tokens are higher than any that was heard.
    this.#connections.clock.hear(node, Math.max(redisTimeMs * 1_000, fencingToken));
    for (const [index, request] of requests.entries()) {
      const code = reply.codes[index] as number | string | Error;
      // A confirm brings the token of its first write, which the clock may have been set back behind.
      if (typeof code === "number" && code <= -leastToken) {
        this.#connections.clock.hear(node, -code);
      }
      const entryReply =
        code instanceof Error
          ? toNoAnswer({ kind: "error", error: code })
          : this.#command.read({ redisTimeMs, fencingToken, code });
      if (!this.#confirmed(request, entryReply as { kind: string })) request.answer(entryReply);
    }
  }
}

/** Whether the request is answered later, by other means. */
export type Confirmed = (request: LockRequest<never>, reply: { readonly kind: string }) => boolean;

type Answer = Exclude<CallResult, { kind: "not-loaded" }>;

/** A connection, and the node behind it. */
interface Route {
  readonly connection: Pick<Connection, "nodeOf" | "send">;
  readonly node: string;
}

/** The requests and arguments of one call. */
interface ScriptCall<Request> {
  readonly requests: readonly Request[];
  readonly keys: readonly string[];
  readonly args: readonly (string | number)[];
}

/** On a Cluster the keys of one call have to be in one slot. */
const oneEntry = { maxEntries: 1 };

function answerAll<Reply>(requests: readonly LockRequest<Reply>[], reply: Reply): void {
  for (const request of requests) request.answer(reply);
}

/** A script's reply: the numbers that it begins with, and a code, a record or an error for each entry. */
interface ScriptReply {
  readonly head: readonly number[];
  readonly codes: readonly (number | string | Error)[];
}

/** `undefined` for anything that none of the scripts can have said. */
function scriptReply(value: unknown, headLength: number, entries: number): ScriptReply | undefined {
  if (!Array.isArray(value) || value.length !== headLength + entries) return undefined;
  // ioredis with `stringNumbers` turns numbers into strings.
  const all = typeof value[0] === "string" ? value.map(asNumber) : value;
  const head = all.slice(0, headLength);
  const codes = all.slice(headLength);
  return head.every(Number.isSafeInteger) && codes.every(isCode) ? { head, codes } : undefined;
}

/** A record is longer than any number. */
function asNumber(value: unknown): unknown {
  return typeof value === "string" && value.length < 20 ? Number(value) : value;
}

function isCode(code: unknown): code is number | string | Error {
  return Number.isSafeInteger(code) || typeof code === "string" || code instanceof Error;
}
