import type { Participant } from "../participant.ts";
import type { SimulatedRedis } from "../server/simulated-redis.ts";
import type { EventLoop } from "../time/event-loop.ts";
import type { Owner } from "./owners.ts";
import type { Verdict } from "./verdict.ts";

interface Highest {
  readonly token: number;
  readonly owner: Owner;
  readonly serverLife: number;
  readonly at: number;
}

/**
 * Rule 20: the token of a lease is above that of every earlier lease of its key. The limit: a clock
 * of Redis that was set back further than the process had heard when it asked.
 */
export class FenceWatch {
  readonly #highest = new Map<string, Highest>();
  /** What each process had heard of clocks and tokens, and when: both rise. */
  readonly #heard = new Map<
    Participant,
    { readonly at: number; readonly microseconds: number }[]
  >();
  readonly #loop: EventLoop;
  readonly #verdict: Verdict;
  readonly #server: () => SimulatedRedis;

  constructor(loop: EventLoop, verdict: Verdict, server: () => SimulatedRedis) {
    this.#loop = loop;
    this.#verdict = verdict;
    this.#server = server;
  }

  /** An answer has brought a process a clock or a token. */
  heard(participant: Participant, microseconds: number): void {
    const heard = this.#heard.get(participant) ?? [];
    this.#heard.set(participant, heard);
    const at = this.#loop.now;
    if (microseconds > (heard.at(-1)?.microseconds ?? 0)) heard.push({ at, microseconds });
  }

  taken(key: string, owner: Owner, token: number, sentAt: number): void {
    // A copy that comes late has an older floor, and makes no lease.
    if (owner.overAt !== undefined) return;
    const { life, setBackMs } = this.#server();
    const before = this.#highest.get(key);
    if (before?.serverLife === life && before.token >= token) {
      const isLimit =
        before.owner === owner ||
        // No script takes less than a microsecond, but where it takes no time at all.
        (before.token === token && before.at === this.#loop.now) ||
        (setBackMs > 0 && this.#heardBefore(owner, sentAt) < before.token) ||
        // No floor counts that is so far ahead.
        setBackMs > 60_000;
      if (!isLimit) {
        this.#verdict.broken(
          "fenced",
          `${owner.name} got token ${token} for ${key}, after ${before.token} of ${before.owner.name}`,
        );
      }
      return;
    }
    this.#highest.set(key, { token, owner, serverLife: life, at: this.#loop.now });
  }

  #heardBefore({ participant }: Owner, time: number): number {
    const heard = participant && this.#heard.get(participant);
    return heard?.findLast(({ at }) => at < time)?.microseconds ?? 0;
  }
}
