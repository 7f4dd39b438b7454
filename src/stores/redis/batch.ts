import type { LockRequest, NoAnswer } from "../../lock/store.ts";
import type { Command } from "./commands.ts";
import type { ConnectionPair } from "./connection-pair.ts";
import type { RedisClock } from "./redis-clock.ts";
import { type CallResult, odd, scriptReply, toNoAnswer } from "./replies.ts";

/** How many calls are to be under way, so that neither Redis nor this process waits for the other. */
const callsAtOnce = 4;

/** With fewer keys, another call would cost more than it saves. */
const leastKeys = 8;

/**
 * One command's copies of one turn of the event loop, gathered into few calls. What a client costs
 * is the call, not the key: many callers at once share it, and a lone one waits for no longer than
 * its own turn.
 */
export class Batch<Reply> {
  readonly #command: Command<Reply>;
  readonly #lanes: ConnectionPair;
  readonly #clock: RedisClock;
  readonly #maxKeys: number;
  #waiting: LockRequest<Reply | NoAnswer>[] = [];

  /** @param maxKeys the most keys in one call, so that no call holds Redis for long. */
  constructor(command: Command<Reply>, lanes: ConnectionPair, clock: RedisClock, maxKeys: number) {
    this.#command = command;
    this.#lanes = lanes;
    this.#clock = clock;
    this.#maxKeys = maxKeys;
  }

  add(copy: LockRequest<Reply | NoAnswer>): void {
    this.#waiting.push(copy);
  }

  /** Writes what was gathered. */
  flush(): void {
    let waiting = this.#waiting;
    if (waiting.length === 0) return;
    this.#waiting = [];
    while (waiting[0] !== undefined) {
      // Those of one lock travel together: they share their times, and their permissions.
      const { times } = waiting[0].command;
      const others = waiting.filter(({ command }) => command.times !== times);
      this.#write(
        others.length === 0 ? waiting : waiting.filter(({ command }) => command.times === times),
      );
      waiting = others;
    }
  }

  /**
   * In as many calls as keep Redis at work while this process reads the answer to the first: one
   * call for everything would have each of the two wait for the other.
   */
  #write(copies: readonly LockRequest<Reply | NoAnswer>[]): void {
    const wanted = Math.max(1, callsAtOnce - this.#lanes.underWay);
    const calls = Math.min(wanted, Math.ceil(copies.length / leastKeys));
    const keys = Math.min(Math.ceil(copies.length / calls), this.#maxKeys);
    for (let from = 0; from < copies.length; from += keys) {
      this.#call(copies.slice(from, from + keys));
    }
  }

  #call(copies: readonly LockRequest<Reply | NoAnswer>[]): void {
    const [first] = copies;
    if (first === undefined) return;
    const { key, times } = first.command;
    const lane = this.#lanes.pick(key, times.commandTimeoutMs);
    if (lane === undefined) {
      answerAll(copies, this.#lanes.unavailableReason());
      return;
    }
    // Stamped when it is written: a copy that has waited in a queue has not used up its time.
    const deadlineMs = this.#clock.now() + times.acquireTimeoutMs;
    const keys: string[] = [];
    const ownerIds: string[] = [];
    for (const copy of copies) {
      copy.deadlineMs = deadlineMs;
      keys.push(copy.command.key);
      ownerIds.push(copy.command.ownerId);
    }
    const sentAt = performance.now();
    lane.send(
      this.#command.script,
      keys,
      this.#command.args(ownerIds, times, deadlineMs),
      (result) => this.#answered(copies, result, sentAt),
    );
  }

  #answered(
    copies: readonly LockRequest<Reply | NoAnswer>[],
    result: CallResult,
    sentAt: number,
  ): void {
    if (result.kind !== "value") {
      answerAll(copies, toNoAnswer(result));
      return;
    }
    const reply = scriptReply(result.value, copies.length);
    if (reply === undefined) {
      answerAll(copies, odd(result.value));
      return;
    }
    const { redisTimeMs, codes } = reply;
    this.#clock.learn(redisTimeMs, sentAt, performance.now());
    for (const [index, copy] of copies.entries()) {
      const code = codes[index] as number | Error;
      copy.answer(
        code instanceof Error
          ? toNoAnswer({ kind: "error", error: code })
          : this.#command.reply(code, redisTimeMs),
      );
    }
  }
}

function answerAll<Reply>(copies: readonly LockRequest<Reply>[], reply: Reply): void {
  for (const copy of copies) copy.answer(reply);
}
