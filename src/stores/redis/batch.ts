import type { LockRequest, NoAnswer } from "../../lock/store.ts";
import { type Command, scriptReply, toNoAnswer, unexpectedReply } from "./commands.ts";
import type { CallResult } from "./connection.ts";
import type { ConnectionPair } from "./connection-pair.ts";

/**
 * How many calls are to be in flight, so that Redis works on one while this process reads the answer
 * to another. Pairs a second with 32 and 64 callers on two idle cores, 4 calls being 1.00: one call
 * 0.56 to 0.71, two 0.77 to 1.06, eight 0.85 to 1.15; with 256 callers eight make 0.76 to 0.84.
 */
const callsAtOnce = 4;

/**
 * The fewest keys of a call that is split off. The call itself takes about 7 µs of this process, and
 * a key 1.3 µs (bench/results.md): with fewer keys, most of the work would be the call's.
 */
const leastKeys = 8;

/**
 * The requests of one command that one turn of the event loop made, written in few calls. A client's
 * cost is by the call and not by the key, so many requests share one; a lone one waits no longer than
 * for the end of its own turn.
 */
export class CommandBatch<Reply> {
  readonly #command: Command<Reply>;
  readonly #connections: ConnectionPair;
  readonly #maxKeys: number;
  #waiting: LockRequest<Reply | NoAnswer>[] = [];

  /** @param maxKeys the most keys in one call, so that no call holds Redis for long. */
  constructor(command: Command<Reply>, connections: ConnectionPair, maxKeys: number) {
    this.#command = command;
    this.#connections = connections;
    this.#maxKeys = maxKeys;
  }

  add(request: LockRequest<Reply | NoAnswer>): void {
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
  #write(requests: readonly LockRequest<Reply | NoAnswer>[]): void {
    const wanted = Math.max(1, callsAtOnce - this.#connections.inFlight);
    const calls = Math.min(wanted, Math.ceil(requests.length / leastKeys));
    const keys = Math.min(Math.ceil(requests.length / calls), this.#maxKeys);
    for (let from = 0; from < requests.length; from += keys) {
      this.#call(requests.slice(from, from + keys));
    }
  }

  #call(requests: readonly LockRequest<Reply | NoAnswer>[]): void {
    const [first] = requests;
    if (first === undefined) return;
    const { key, times } = first.command;
    const connection = this.#connections.pick(key, times.commandTimeoutMs);
    if (connection === undefined) {
      answerAll(requests, this.#connections.unavailableReason());
      return;
    }
    // Rule 2: stamped when it is written, so that a request that waited in a queue has all its time.
    const deadlineMs = this.#connections.clock.now() + times.acquireTimeoutMs;
    const keys: string[] = [];
    const ownerIds: string[] = [];
    for (const request of requests) {
      request.deadlineMs = deadlineMs;
      keys.push(request.command.key);
      ownerIds.push(request.command.ownerId);
    }
    const sentAt = performance.now();
    connection.send(
      this.#command.script,
      keys,
      this.#command.args(ownerIds, times, deadlineMs),
      (result) => this.#answered(requests, result, sentAt),
    );
  }

  #answered(
    requests: readonly LockRequest<Reply | NoAnswer>[],
    result: CallResult,
    sentAt: number,
  ): void {
    if (result.kind !== "value") {
      answerAll(requests, toNoAnswer(result));
      return;
    }
    const reply = scriptReply(result.value, requests.length);
    if (reply === undefined) {
      answerAll(requests, unexpectedReply(result.value));
      return;
    }
    const { redisTimeMs, codes } = reply;
    // Rule 12: every reply improves the estimate of Redis' clock.
    this.#connections.clock.learn(redisTimeMs, sentAt, performance.now());
    for (const [index, request] of requests.entries()) {
      const code = codes[index] as number | Error;
      request.answer(
        code instanceof Error
          ? toNoAnswer({ kind: "error", error: code })
          : this.#command.reply(code, redisTimeMs),
      );
    }
  }
}

function answerAll<Reply>(requests: readonly LockRequest<Reply>[], reply: Reply): void {
  for (const request of requests) request.answer(reply);
}
