import type { Participant } from "../participant.ts";
import type { EventLoop } from "../time/event-loop.ts";
import { slackMs } from "./key-watch.ts";
import type { Verdict } from "./verdict.ts";

interface Call {
  readonly what: string;
  readonly participant: Participant;
  readonly dueAt: number;
  readonly afterPauseMs: number;
}

/** Watches that every call settles within its bound, by the clock of its process. */
export class CallWatch {
  readonly #calls = new Set<Call>();
  readonly #loop: EventLoop;
  readonly #verdict: Verdict;

  constructor(loop: EventLoop, verdict: Verdict) {
    this.#loop = loop;
    this.#verdict = verdict;
  }

  get pending(): number {
    return this.#calls.size;
  }

  /**
   * @param boundMs by the clock of the process.
   * @param afterPauseMs how long it may still take when the process goes on after a pause.
   */
  async settles<Result>(
    what: string,
    participant: Participant,
    boundMs: number,
    promise: Promise<Result>,
    afterPauseMs = 0,
  ): Promise<Result> {
    const dueAt = this.#loop.now + boundMs / participant.machine.rate + slackMs;
    const call: Call = { what, participant, dueAt, afterPauseMs };
    this.#calls.add(call);
    try {
      return await promise;
    } finally {
      this.#calls.delete(call);
    }
  }

  check(): void {
    const { now } = this.#loop;
    for (const { what, participant, dueAt, afterPauseMs } of this.#calls) {
      if (now <= dueAt) continue;
      const { machine } = participant;
      // A process that is paused answers when it goes on.
      if (
        machine.isDead ||
        machine.isPaused ||
        now - machine.resumedAt <= 1.01 * afterPauseMs + slackMs
      )
        continue;
      this.#verdict.broken("settled", `${what} has not settled within its bound`);
    }
  }
}
