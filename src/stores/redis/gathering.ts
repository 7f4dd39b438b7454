import type { Copy, LockCommand, NoAnswer } from "../../lock/store.ts";
import type { Command } from "./commands.ts";
import type { Lanes } from "./lanes.ts";
import type { RedisClock } from "./redis-clock.ts";
import { type CallResult, noAnswerOf, odd, scriptReply } from "./replies.ts";

/** One entry of a gathered call. */
class GatheredCopy<Reply> implements Copy<Reply> {
  readonly command: LockCommand;
  readonly reply: Promise<Reply>;
  resolve!: (reply: Reply) => void;
  deadlineMs: number | undefined;

  constructor(command: LockCommand) {
    this.command = command;
    this.reply = new Promise((resolve) => {
      this.resolve = resolve;
    });
  }
}

/**
 * One command's copies of one turn of the event loop, gathered into few calls. What a client costs
 * is the call, not the key: many callers at once share it, and a lone one waits for no longer than
 * its own turn.
 */
export class Gathering<Reply> {
  readonly #command: Command<Reply>;
  readonly #lanes: Lanes;
  readonly #clock: RedisClock;
  readonly #maxKeys: number;
  #waiting: GatheredCopy<Reply | NoAnswer>[] = [];

  /** @param maxKeys the most keys in one call, so that no call holds Redis for long. */
  constructor(command: Command<Reply>, lanes: Lanes, clock: RedisClock, maxKeys: number) {
    this.#command = command;
    this.#lanes = lanes;
    this.#clock = clock;
    this.#maxKeys = maxKeys;
  }

  add(command: LockCommand): Copy<Reply | NoAnswer> {
    const copy = new GatheredCopy<Reply | NoAnswer>(command);
    this.#waiting.push(copy);
    return copy;
  }

  /** Writes what was gathered. */
  flush(): void {
    let waiting = this.#waiting;
    this.#waiting = [];
    while (waiting[0] !== undefined) {
      // Those of one lock travel together: they share their times, and their permissions.
      const { times } = waiting[0].command;
      const together = waiting.filter(({ command }) => command.times === times);
      if (together.length === waiting.length) waiting = [];
      else waiting = waiting.filter(({ command }) => command.times !== times);
      this.#write(together);
    }
  }

  #write(copies: readonly GatheredCopy<Reply | NoAnswer>[]): void {
    for (let from = 0; from < copies.length; from += this.#maxKeys) {
      this.#call(copies.slice(from, from + this.#maxKeys));
    }
  }

  #call(copies: readonly GatheredCopy<Reply | NoAnswer>[]): void {
    const [first] = copies;
    if (first === undefined) return;
    const { key, times } = first.command;
    const lane = this.#lanes.pick(key, times.commandTimeoutMs);
    if (lane === undefined) {
      answerAll(copies, this.#lanes.whyNone());
      return;
    }
    // Stamped when it is written: a copy that has waited in a queue has not used up its time.
    const deadlineMs = this.#clock.now() + times.acquireTimeoutMs;
    const commands = copies.map((copy) => copy.command);
    for (const copy of copies) copy.deadlineMs = deadlineMs;
    const sentAt = performance.now();
    lane.send(
      this.#command.script,
      commands.map(({ key }) => key),
      this.#command.args(commands, times, deadlineMs),
      (result) => this.#answered(copies, result, sentAt),
    );
  }

  #answered(
    copies: readonly GatheredCopy<Reply | NoAnswer>[],
    result: CallResult,
    sentAt: number,
  ): void {
    if (result.kind !== "value") {
      answerAll(copies, noAnswerOf(result));
      return;
    }
    const reply = scriptReply(result.value, copies.length);
    if (reply === undefined) {
      answerAll(copies, odd(result.value));
      return;
    }
    const { redisTimeMs, codes } = reply;
    this.#clock.learn(redisTimeMs, sentAt, performance.now());
    copies.forEach((copy, index) => {
      const code = codes[index] as number | Error;
      copy.resolve(
        code instanceof Error
          ? noAnswerOf({ kind: "error", error: code })
          : this.#command.reply(code, redisTimeMs),
      );
    });
  }
}

function answerAll<Reply>(copies: readonly GatheredCopy<Reply>[], reply: Reply): void {
  for (const copy of copies) copy.resolve(reply);
}
