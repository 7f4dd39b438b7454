import type { SimulatedRedis } from "../server/simulated-redis.ts";
import type { EventLoop } from "../time/event-loop.ts";
import type { Machine } from "../time/machine.ts";

/** What happens to one write and its answer on their way. All zero is a healthy network. */
export interface Delays {
  readonly requestMs: number;
  readonly replyMs: number;
}

const healthy: Delays = { requestMs: 0, replyMs: 0 };

/**
 * One TCP connection: two directions, each first in, first out. What was written before the client
 * lost the connection may still land afterwards; what is answered then is never heard.
 */
export class Connection {
  readonly #loop: EventLoop;
  readonly #client: Machine;
  readonly #server: SimulatedRedis;
  readonly #latency: () => number;
  readonly #serverLife: number;
  /** Nothing that overtakes: the time of the last arrival in each direction. */
  #lastThere = 0;
  #lastBack = 0;
  #closedAtClient = false;
  /** The client has said that it writes nothing more. */
  isEnding = false;
  #vanished = false;

  constructor(loop: EventLoop, client: Machine, server: SimulatedRedis, latency: () => number) {
    this.#loop = loop;
    this.#client = client;
    this.#server = server;
    this.#latency = latency;
    this.#serverLife = server.life;
  }

  get isOpen(): boolean {
    return !this.#closedAtClient;
  }

  /**
   * @param execute what the server does with it; runs at most once.
   * @param answered what the client does with the answer; runs at most once, after `execute`.
   */
  write<Answer>(
    execute: () => Answer,
    answered: (answer: Answer) => void,
    { requestMs, replyMs }: Delays = healthy,
  ): void {
    const { now } = this.#loop;
    this.#lastThere = Math.max(this.#lastThere, now + this.#latency() + requestMs);
    this.#server.machine.after(this.#lastThere - now, () => {
      if (this.#vanished || this.#server.life !== this.#serverLife) return;
      const answer = execute();
      const answeredAt = this.#loop.now;
      this.#lastBack = Math.max(this.#lastBack, answeredAt + this.#latency() + replyMs);
      this.#client.after(this.#lastBack - answeredAt, () => {
        if (!this.#closedAtClient) answered(answer);
      });
    });
  }

  /** Both directions stand still, and nothing of it is lost. */
  stall(untilMs: number): void {
    this.#lastThere = Math.max(this.#lastThere, untilMs);
    this.#lastBack = Math.max(this.#lastBack, untilMs);
  }

  /** @param stillLands whether what is on its way to the server arrives there nevertheless. */
  closeAtClient(stillLands: boolean): void {
    this.#closedAtClient = true;
    if (!stillLands) this.#vanished = true;
  }
}
