import type { LockRequest, NoAnswer } from "../../lock/store.ts";
import { performance } from "../../time.ts";
import { isError } from "../../validation.ts";
import { isServerError, type ServerPort } from "./clients/port.ts";
import { type Command, maxEntries } from "./commands/command.ts";
import type { CallResult } from "./connection.ts";
import type { ConnectionPair, Route } from "./connection-pair.ts";
import { isCrossSlot, toNoAnswer, unexpectedReply } from "./redis-errors.ts";

/**
 * How many calls should be in flight to a node. Compared with four, throughput of 32 and 64 callers
 * is 0.56 to 0.71 with 1, 0.77 to 1.06 with 2, 0.85 to 1.15 with 8 (256 callers: 0.76 to 0.84).
 */
const defaultCallsAtOnce = 4;

/**
 * How many entries a call has before a second call pays: in this process a call takes 7 µs, an
 * entry 1.3 µs.
 */
const leastEntries = 8;

/** The requests of one command and one turn of the event loop, written in few calls. */
export class CommandBatch<Request extends LockRequest<Reply | NoAnswer>, Reply> {
  readonly #command: Command<Request, Reply>;
  readonly #connections: ConnectionPair;
  readonly #callsAtOnce: number;
  readonly #acknowledge: Acknowledge | undefined;
  waiting: Request[] = [];

  constructor(
    command: Command<Request, Reply>,
    connections: ConnectionPair,
    acknowledge?: Acknowledge,
    callsAtOnce: number = defaultCallsAtOnce,
  ) {
    this.#command = command;
    this.#connections = connections;
    this.#callsAtOnce = callsAtOnce;
    this.#acknowledge = acknowledge;
  }

  flush(): void {
    let { waiting } = this;
    const [first] = waiting;
    if (first === undefined) return;
    this.waiting = [];
    if (waiting.length === 1) {
      this.#send(waiting, this.#connections.routeOf(first.command, this.#command));
      return;
    }
    while (waiting[0] !== undefined) {
      // A call has requests of one lock only, which share their times.
      const { times } = waiting[0].command;
      const others = waiting.filter(({ command }) => command.times !== times);
      this.#write(
        others.length === 0 ? waiting : waiting.filter(({ command }) => command.times === times),
      );
      waiting = others;
    }
  }

  #write(all: readonly Request[]): void {
    const { command } = all[0] as Request;
    const groups: readonly Group<Request>[] = this.#connections.isCluster
      ? this.#byNode(all)
      : [{ route: this.#connections.routeOf(command, this.#command), requests: all }];
    for (const { requests, route } of groups) {
      // Rule 23: calls are counted by node, so that those to a silent node limit no other node.
      const inFlight = route?.connection.inFlightTo(route.node) ?? 0;
      const wanted = Math.max(1, this.#callsAtOnce - inFlight);
      const calls = Math.min(wanted, Math.ceil(requests.length / leastEntries));
      const most = this.#mayShare(requests, route) ? (this.#command.maxEntries ?? maxEntries) : 1;
      const entries = Math.min(Math.ceil(requests.length / calls), most);
      for (let from = 0; from < requests.length; from += entries) {
        this.#send(requests.slice(from, from + entries), route);
      }
    }
  }

  /** Rule 24: whether requests share a call. On a Cluster, rule 23 has grouped them already. */
  #mayShare(requests: readonly Request[], route: Route | undefined): boolean {
    const [first] = requests;
    if (route === undefined || first === undefined || requests.length === 1) return true;
    return this.#connections.isCluster || route.connection.gathering.mayShare(first.command);
  }

  /** Rule 23: groups requests that may share a call; one whose key must be declared is alone. */
  #byNode(all: readonly Request[]): Group<Request>[] {
    const groups: Group<Request>[] = [];
    const shared = new Map<ServerPort, Request[]>();
    for (const request of all) {
      const route = this.#connections.routeOf(request.command, this.#command);
      const others = route?.gatherOn && shared.get(route.gatherOn);
      if (others !== undefined) {
        others.push(request);
        continue;
      }
      const requests = [request];
      groups.push({ route, requests });
      if (route?.gatherOn !== undefined) shared.set(route.gatherOn, requests);
    }
    return groups;
  }

  #send(requests: readonly Request[], route: Route | undefined): void {
    if (route === undefined) {
      answerAll(requests, this.#connections.unavailableReason());
      return;
    }
    const { connection, gatherOn, node } = route;
    const { clock } = this.#connections;
    const [{ command, deadlineMs: first }] = requests as [Request];
    // Rule 2: the deadline counts from the first write, so that time in a queue is not lost. A
    // repeated write keeps its deadline, which a retire may be waiting for.
    const deadlineMs = first ?? clock.now(node) + command.times.acquireTimeoutMs;
    const keys: string[] = [];
    const floorUs = this.#command.headLength === 2 ? (clock.nodes.get(node)?.floorUs ?? 0) : 0;
    const args = this.#command.head?.({ command, deadlineMs, floorUs }) ?? [];
    try {
      for (const request of requests) {
        request.deadlineMs = deadlineMs;
        this.#command.add(request, keys, args, this.#connections.recordKey);
      }
    } catch {
      // `recordKey` reads the client's `keyPrefix`, which may throw if the application has changed it.
      answerAll(requests, { kind: "unsent", reason: "the Redis client threw an error" });
      return;
    }
    const sentAt = performance.now();
    const answered = (result: CallResult): void => {
      // Rule 2: nothing was executed, so write the requests again. Rule 9 chooses the connection.
      if (result.kind === "not-loaded") this.#write(requests);
      else if (result.kind === "value") this.#answered(requests, result.value, route, sentAt);
      else if (this.#isRefusedTogether(requests, route, result)) this.#write(requests);
      else answerAll(requests, toNoAnswer(result));
    };
    const { gatheredScript, repliesBytes: asBytes, script } = this.#command;
    if (gatherOn === undefined || gatheredScript === undefined) {
      connection.send(node, script, { keys, args, asBytes }, answered);
      return;
    }
    for (const key of keys) args.push(connection.gathering.prefix + key);
    const gathered = { keys: [], args: [...args, keys.length], asBytes };
    connection.send(node, gatheredScript, gathered, answered, gatherOn);
  }

  /** Rule 24: a call that Redis refuses for its keys was not executed: send each request alone. */
  #isRefusedTogether(requests: readonly Request[], route: Route, result: CallResult): boolean {
    const [first, second] = requests;
    if (first === undefined || second === undefined || result.kind !== "error") return false;
    if (this.#connections.isCluster || !isServerError(result.error)) return false;
    const isRefused = isCrossSlot(result.error);
    // A proxy may refuse in its own words: then it is unknown whether the call was executed.
    const isUnknown = toNoAnswer(result).kind === "unknown";
    if (isRefused || isUnknown) route.connection.gathering.refusedTogether(first.command);
    return isRefused;
  }

  #answered(requests: readonly Request[], value: unknown, route: Route, sentAt: number): void {
    const { headLength = 1 } = this.#command;
    let isSound = Array.isArray(value) && value.length === headLength + requests.length;
    const reply = (isSound ? value : []) as (number | string | Buffer | Error)[];
    // `stringNumbers` of ioredis turns numbers into strings. Our texts are longer than any number.
    const areStrings = typeof reply[0] === "string";
    for (const [index, each] of reply.entries()) {
      const isNumber = areStrings && typeof each === "string" && each.length < 20;
      const code = isNumber ? Number(each) : each;
      reply[index] = code;
      isSound &&=
        Number.isSafeInteger(code) ||
        isError(code) ||
        typeof code === "string" ||
        Buffer.isBuffer(code);
    }
    const [redisTimeMs, token] = reply;
    const fencingToken = headLength === 2 ? token : 0;
    if (!isSound || typeof redisTimeMs !== "number" || typeof fencingToken !== "number") {
      answerAll(requests, unexpectedReply(value));
      return;
    }
    const { clock } = this.#connections;
    const readAt = performance.now();
    clock.learn(route.node, redisTimeMs, fencingToken, sentAt, readAt);
    for (const [index, request] of requests.entries()) {
      const code = reply[headLength + index] as number | string | Buffer | Error;
      let entryReply: { readonly kind: string; readonly fencingToken?: number };
      if (typeof code !== "object" || Buffer.isBuffer(code)) {
        entryReply = this.#command.read({ redisTimeMs, fencingToken, code }) as { kind: string };
      } else if (route.gatherOn === undefined) {
        route.connection.refused(code);
        entryReply = toNoAnswer({ kind: "error", error: code });
      } else {
        this.#sendAlone(request, route);
        continue;
      }
      // A confirm's token may be above Redis' clock, if that was set back after the first write.
      if (entryReply.kind === "mine") {
        clock.learn(route.node, redisTimeMs, entryReply.fencingToken ?? 0, sentAt, readAt);
      }
      if (!this.#acknowledge?.(request, entryReply)) request.answer(entryReply as Reply);
    }
  }

  /** Rule 23: an entry with an error was not executed. Writes it alone, with its keys declared. */
  #sendAlone(request: Request, { connection, node }: Route): void {
    connection.gathering.refused(this.#connections.slotOf(request.command.key), node);
    this.#write([request]);
  }
}

/** Rule 21: returns true if it waits for replicas: it then answers with `reply` or `unknown`. */
export type Acknowledge = (
  request: LockRequest<never>,
  reply: { readonly kind: string },
) => boolean;

interface Group<Request> {
  readonly route: Route | undefined;
  readonly requests: readonly Request[];
}

function answerAll<Reply>(requests: readonly LockRequest<Reply>[], reply: Reply): void {
  for (const request of requests) request.answer(reply);
}
